"""Attention by gather and scatter in plain PyTorch: any graph, any device, no DGL."""

import math

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph
from edgewise.message_passing.precision import in_full_precision


def edge_softmax(
    graph: AttentionGraph,
    q: Tensor,
    k: Tensor,
    bias: Tensor | None = None,
    attr: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """Score every edge, add its bias and attributes, and normalise over each receiver's in-edges: [E, h]."""
    score = (q.index_select(0, graph.dst) * k.index_select(0, graph.src)).sum(-1)
    if attr is not None and weight is not None:
        asked = torch.einsum("nhd,chd->nhc", q, weight).index_select(0, graph.dst)
        score = score + torch.einsum("ehc,ec->eh", asked, attr)
    score = score / math.sqrt(q.shape[-1])
    return softmax_over_in_edges(graph, score if bias is None else score + bias)


def softmax_over_in_edges(graph: AttentionGraph, score: Tensor) -> Tensor:
    """Turn any scores [E, h] into weights that sum to one at each receiver; to zero if all are -inf."""
    dst = graph.dst
    receiver = dst[:, None].expand_as(score)
    highest = score.new_zeros(graph.num_dst, score.shape[1]).scatter_reduce(
        0, receiver, score.detach(), "amax", include_self=False
    )
    highest = highest.masked_fill(highest == -math.inf, 0.0)  # nothing to attend to: weights of zero
    weight = (score - highest[dst]).exp()
    total = torch.zeros_like(highest).index_add(0, dst, weight)
    return weight / total.masked_fill(total == 0, 1.0)[dst]


@in_full_precision
def scatter(
    graph: AttentionGraph,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None = None,
    keep: Tensor | None = None,
    attr: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """Gather and weight the sender's value for every edge, then sum at the receivers.

    Attributes of edges, [E, c], by their weight [c, h, d], are added to the senders' keys and values.
    """
    value = v.index_select(0, graph.src)  # [E, h, d]
    if attr is not None and weight is not None:
        value = value + torch.einsum("ec,chd->ehd", attr, weight)
    share = edge_softmax(graph, q, k, bias, attr, weight)
    message = (share if keep is None else share * keep)[..., None] * value
    return message.new_zeros(graph.num_dst, *message.shape[1:]).index_add(0, graph.dst, message)
