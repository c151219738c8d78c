"""Attention in DGL, three ways: mailboxes, built-in functions, fused kernels."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph, load_dgl
from edgewise.message_passing.precision import OnEdges, in_full_precision, without_second_derivatives


@in_full_precision
def mailbox(graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor, bias: OnEdges, keep: OnEdges) -> Tensor:
    """Send score and value along each edge; reduce each receiver's mailbox."""
    g = _local_graph(graph)
    g.srcdata.update({"k": k, "v": v})
    g.dstdata.update({"q": q})
    g.edata.update({name: x[..., None] for name, x in (("bias", bias), ("keep", keep)) if x is not None})
    g.update_all(send_score_and_value, read_mailbox)
    return g.dstdata["wv"]


def send_score_and_value(edges: Any) -> dict[str, Tensor]:
    """Message function: score and value, with the edge's bias and factor if it has them."""
    score = (edges.src["k"] * edges.dst["q"]).sum(-1, keepdim=True)  # [E, h, 1]
    score = score / math.sqrt(edges.src["k"].shape[-1]) + edges.data.get("bias", 0)
    factor = {"keep": edges.data["keep"]} if "keep" in edges.data else {}
    return {"score": score, "v": edges.src["v"]} | factor


def read_mailbox(nodes: Any) -> dict[str, Tensor]:
    """Reduce function: softmax over a receiver's messages, then the weighted sum of their values."""
    weight = nodes.mailbox["score"].softmax(1) * nodes.mailbox.get("keep", 1)  # [N, in-degree, h, 1]
    return {"wv": (weight * nodes.mailbox["v"]).sum(1)}


@in_full_precision
def builtin(graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor, bias: OnEdges, keep: OnEdges) -> Tensor:
    """The DGL tutorial's decomposition, made stable: each receiver's highest score is subtracted."""
    fn = load_dgl().function
    g = _local_graph(graph)
    g.srcdata.update({"k": k, "v": v})
    g.dstdata.update({"q": q})
    g.apply_edges(src_dot_dst("k", "q", "score"))
    if bias is not None:
        g.edata["score"] = g.edata["score"] + bias[..., None]
    with torch.no_grad():  # a softmax does not change when its scores are shifted
        g.update_all(fn.copy_e("score", "m"), fn.max("m", "highest"))
    g.apply_edges(exp_below("score", "highest"))
    g.update_all(fn.copy_e("score", "m"), fn.sum("m", "z"))
    if keep is not None:
        g.edata["score"] = g.edata["score"] * keep[..., None]
    g.update_all(fn.u_mul_e("v", "score", "m"), fn.sum("m", "wv"))
    connected = (g.in_degrees() > 0)[:, None, None]
    return g.dstdata["wv"] / torch.where(connected, g.dstdata["z"], 1.0)


def src_dot_dst(src_field: str, dst_field: str, out_field: str) -> Callable[[Any], dict[str, Tensor]]:
    """Return an edge function: the scaled product of sender and receiver, [E, h, 1]."""

    def score(edges: Any) -> dict[str, Tensor]:
        product = edges.src[src_field] * edges.dst[dst_field]
        return {out_field: product.sum(-1, keepdim=True) / math.sqrt(product.shape[-1])}

    return score


def exp_below(field: str, highest_field: str) -> Callable[[Any], dict[str, Tensor]]:
    """Return an edge function: the exponential of a score minus its receiver's highest."""

    def exponentiate(edges: Any) -> dict[str, Tensor]:
        return {field: (edges.data[field] - edges.dst[highest_field]).exp()}

    return exponentiate


@in_full_precision
def fused(graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor, bias: OnEdges, keep: OnEdges) -> Tensor:
    """Three kernels without feature-wide messages: score, softmax, weighted sum.

    There are no second derivatives: DGL's softmax takes some of them for zero.
    """
    dgl = load_dgl()
    g = _message_graph(graph)
    score = dgl.ops.v_dot_u(g, q, k) / math.sqrt(q.shape[-1])  # [E, h, 1]
    weight = dgl.ops.edge_softmax(g, score if bias is None else score + bias[..., None])
    output = dgl.ops.u_mul_e_sum(g, v, weight if keep is None else weight * keep[..., None])
    return _Once.apply(output)


class _Once(torch.autograd.Function):
    """The identity, whose gradient cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, output: Tensor) -> Tensor:
        return output.view_as(output)

    @staticmethod
    @without_second_derivatives("engine='scatter'")
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def _message_graph(graph: AttentionGraph) -> Any:
    """A bipartite graph of senders and receivers, even if they are the same tokens."""
    dgl = load_dgl()
    return graph.cached(
        "dgl block",
        lambda: dgl.create_block(
            (graph.src, graph.dst), num_src_nodes=graph.num_src, num_dst_nodes=graph.num_dst
        ),
    )


def _local_graph(graph: AttentionGraph) -> Any:
    """A view of the message graph whose features vanish after use."""
    return _message_graph(graph).local_var()
