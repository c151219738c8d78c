"""Chapter 5: attention in DGL, three ways: mailboxes, built-in functions, fused kernels."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph, dgl_available, load_dgl
from edgewise.graphs.per_graph import per_graph
from edgewise.propagation import propagate_attention


@per_graph
def _as_dgl(graph: AttentionGraph) -> Any:
    return graph.to_dgl()


def mailbox(graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Send score and value along each edge; reduce each receiver's mailbox."""
    g = _as_dgl(graph).local_var()
    g.srcdata.update({"k": k, "v": v})
    g.dstdata.update({"q": q})
    g.update_all(send_score_and_value, read_mailbox)
    return g.dstdata["wv"]


def send_score_and_value(edges: Any) -> dict[str, Tensor]:
    """What DGL calls a message function: the edge's score, and its sender's value."""
    score = (edges.src["k"] * edges.dst["q"]).sum(-1, keepdim=True)  # [E, h, 1]
    return {"score": score / math.sqrt(edges.src["k"].shape[-1]), "v": edges.src["v"]}


def read_mailbox(nodes: Any) -> dict[str, Tensor]:
    """DGL's reduce function: softmax over a receiver's scores, then the weighted sum of the values."""
    weight = nodes.mailbox["score"].softmax(1)  # [N, in-degree, h, 1]
    return {"wv": (weight * nodes.mailbox["v"]).sum(1)}


def builtin(graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The DGL tutorial's decomposition, made stable: each receiver's highest score is subtracted."""
    fn = load_dgl().function
    g = _as_dgl(graph).local_var()
    g.srcdata.update({"k": k, "v": v})
    g.dstdata.update({"q": q})
    g.apply_edges(src_dot_dst("k", "q", "score"))
    with torch.no_grad():  # a softmax does not change when its scores are shifted
        g.update_all(fn.copy_e("score", "m"), fn.max("m", "highest"))
    g.apply_edges(scaled_exp("score", math.sqrt(q.shape[-1]), "highest"))
    g.update_all(fn.copy_e("score", "m"), fn.sum("m", "z"))
    g.update_all(fn.u_mul_e("v", "score", "m"), fn.sum("m", "wv"))
    connected = (g.in_degrees() > 0)[:, None, None]
    return g.dstdata["wv"] / torch.where(connected, g.dstdata["z"], 1.0)


def src_dot_dst(src_field: str, dst_field: str, out_field: str) -> Callable[[Any], dict[str, Tensor]]:
    """Return an edge function: the dot product of sender and receiver, [E, h, 1]."""
    return lambda edges: {out_field: (edges.src[src_field] * edges.dst[dst_field]).sum(-1, keepdim=True)}


def scaled_exp(field: str, scale_constant: float, highest_field: str) -> Callable[[Any], dict[str, Tensor]]:
    """Return an edge function: exp of a score, less its receiver's highest, over ``scale_constant``."""
    return lambda edges: {field: ((edges.data[field] - edges.dst[highest_field]) / scale_constant).exp()}


def fused(graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Three kernels that copy no value to an edge: score, softmax, weighted sum.

    Not to be differentiated twice: DGL's softmax takes some second derivatives for zero.
    """
    dgl, g = load_dgl(), _as_dgl(graph)
    score = dgl.ops.v_dot_u(g, q, k) / math.sqrt(q.shape[-1])  # [E, h, 1]
    return dgl.ops.u_mul_e_sum(g, v, dgl.ops.edge_softmax(g, score))


def in_dgl(device: str = "cpu") -> dict[str, Callable[..., Tensor]]:
    """Return the three by name; none where DGL cannot be imported, or on another device than a CPU."""
    there = device == "cpu" and dgl_available()
    ways = {"mailbox": mailbox, "builtin": builtin, "fused": fused} if there else {}
    return {name: partial(_of_any_edges, way) for name, way in ways.items()}


def _of_any_edges(
    way: Callable[..., Tensor], graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor
) -> Tensor:
    """Where no message is sent, DGL makes no field of sums, which are zero."""
    return way(graph, q, k, v) if graph.num_edges else propagate_attention(graph, q, k, v, engine="scatter")
