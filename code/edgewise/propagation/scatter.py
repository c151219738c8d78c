"""Attention by gather and scatter in plain PyTorch: any graph, any device, no DGL."""

import math
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph
from edgewise.propagation.fields import Fields, MaybeTensor
from edgewise.propagation.precision import run_in_float32


def edge_softmax(graph: AttentionGraph, fields: Fields) -> Tensor:
    """Score every edge, add its bias and attributes, and normalise over each receiver's in-edges: [E, h]."""
    return softmax_over_in_edges(graph, _scores(graph, fields, _projected_attributes(fields)))


def _projected_attributes(fields: Fields) -> Tensor | None:
    """What attributes [E, c] add to keys and values: [E, h, d]."""
    if fields.attr is None or fields.proj is None:
        return None
    return (fields.attr @ fields.proj.flatten(1)).unflatten(1, fields.proj.shape[1:])


def _scores(graph: AttentionGraph, fields: Fields, extra: Tensor | None) -> Tensor:
    key = fields.k.index_select(0, graph._src)
    score = (fields.q.index_select(0, graph._dst) * (key if extra is None else key + extra)).sum(-1)
    score = score / math.sqrt(fields.q.shape[-1])
    return score if fields.bias is None else score + fields.bias


def softmax_over_in_edges(graph: AttentionGraph, score: Tensor) -> Tensor:
    """Turn any scores [E, h] into weights that sum to one at each receiver; to zero if all are -inf."""
    return _softmax_and_lse(graph, score, with_lse=False)[0]


def _softmax_and_lse(graph: AttentionGraph, score: Tensor, with_lse: bool) -> tuple[Tensor, MaybeTensor]:
    """And the log-sum-exp of each receiver's scores, [num_dst, h], if it is wanted."""
    dst, lowest = graph._dst, torch.finfo(score.dtype).min
    highest = score.new_full((graph.num_dst, score.shape[1]), lowest).scatter_reduce_(
        0, dst[:, None].expand_as(score), score.detach(), "amax"
    )
    weight = (score - highest.index_select(0, dst)).exp()
    total = torch.zeros_like(highest).index_add_(0, dst, weight)
    empty = total == 0  # receivers with nothing to attend to: weights of zero
    total = total + empty
    lse = (total.log() + highest).masked_fill(empty, -math.inf) if with_lse else None
    return weight / total.index_select(0, dst), lse


@run_in_float32
def scatter(graph: AttentionGraph, fields: Fields, with_lse: bool = False) -> Any:
    """Gather and weight the sender's value for every edge, then sum at the receivers.

    Attributes of edges, projected, are added to the senders' keys and values.
    """
    value, extra = fields.v.index_select(0, graph._src), _projected_attributes(fields)  # [E, h, d]
    share, lse = _softmax_and_lse(graph, _scores(graph, fields, extra), with_lse)
    message = value if extra is None else value + extra
    weighted = (share if fields.factors is None else share * fields.factors)[..., None] * message
    output = weighted.new_zeros(graph.num_dst, *weighted.shape[1:]).index_add_(0, graph._dst, weighted)
    return (output, lse) if with_lse else output
