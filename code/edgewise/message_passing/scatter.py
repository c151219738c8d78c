"""Attention by gather and scatter in plain PyTorch: any graph, any device, no DGL."""

import math

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph


def edge_softmax(graph: AttentionGraph, q: Tensor, k: Tensor) -> Tensor:
    """Score every edge and normalise over each receiver's in-edges: [E, h]."""
    src, dst = graph.src, graph.dst
    score = (q.index_select(0, dst) * k.index_select(0, src)).sum(-1) / math.sqrt(q.shape[-1])  # [E, h]
    return softmax_over_in_edges(graph, score)


def softmax_over_in_edges(graph: AttentionGraph, score: Tensor) -> Tensor:
    """Turn any scores [E, h] into weights that sum to one at each receiver."""
    dst = graph.dst
    receiver = dst[:, None].expand_as(score)
    highest = score.new_zeros(graph.num_dst, score.shape[1]).scatter_reduce(
        0, receiver, score.detach(), "amax", include_self=False
    )
    weight = (score - highest[dst]).exp()
    total = torch.zeros_like(highest).index_add(0, dst, weight)
    return weight / total[dst]


def scatter(graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Gather and weight the sender's value for every edge, then sum at the receivers."""
    message = edge_softmax(graph, q, k)[..., None] * v.index_select(0, graph.src)  # [E, h, d]
    return torch.zeros_like(q).index_add(0, graph.dst, message)
