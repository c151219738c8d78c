"""Attention by gather and scatter in plain PyTorch: any graph, any device, no DGL."""

import math

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph
from edgewise.propagation.precision import in_full_precision


def edge_softmax(
    graph: AttentionGraph,
    q: Tensor,
    k: Tensor,
    bias: Tensor | None = None,
    attr: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """Score every edge, add its bias and attributes, and normalise over each receiver's in-edges: [E, h]."""
    return softmax_over_in_edges(graph, _scores(graph, q, k, bias, _of_attributes(attr, weight)))


def _of_attributes(attr: Tensor | None, weight: Tensor | None) -> Tensor | None:
    """What attributes [E, c] add to keys and values: [E, h, d]."""
    if attr is None or weight is None:
        return None
    return (attr @ weight.flatten(1)).unflatten(1, weight.shape[1:])


def _scores(graph: AttentionGraph, q: Tensor, k: Tensor, bias: Tensor | None, extra: Tensor | None) -> Tensor:
    key = k.index_select(0, graph._src)
    score = (q.index_select(0, graph._dst) * (key if extra is None else key + extra)).sum(-1)
    score = score / math.sqrt(q.shape[-1])
    return score if bias is None else score + bias


def softmax_over_in_edges(graph: AttentionGraph, score: Tensor) -> Tensor:
    """Turn any scores [E, h] into weights that sum to one at each receiver; to zero if all are -inf."""
    dst, lowest = graph._dst, torch.finfo(score.dtype).min
    highest = score.new_full((graph.num_dst, score.shape[1]), lowest).scatter_reduce_(
        0, dst[:, None].expand_as(score), score.detach(), "amax"
    )
    weight = (score - highest.index_select(0, dst)).exp()
    total = torch.zeros_like(highest).index_add_(0, dst, weight)
    total = total + (total == 0)  # nothing to attend to: weights of zero
    return weight / total.index_select(0, dst)


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
    value, extra = v.index_select(0, graph._src), _of_attributes(attr, weight)  # [E, h, d]
    share = softmax_over_in_edges(graph, _scores(graph, q, k, bias, extra))
    message = value if extra is None else value + extra
    weighted = (share if keep is None else share * keep)[..., None] * message
    return weighted.new_zeros(graph.num_dst, *weighted.shape[1:]).index_add_(0, graph._dst, weighted)
