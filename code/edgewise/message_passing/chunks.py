"""Attention by gather and scatter, some edges at a time, so that the messages at work fit a cache.

As :mod:`edgewise.message_passing.scatter`, with a backward pass of its own that gathers again: of all edges
only the weights, [E, h], are stored.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph
from edgewise.message_passing.precision import OnEdges, in_full_precision, without_second_derivatives
from edgewise.message_passing.scatter import softmax_over_in_edges

AT_WORK = 2**19
"""Numbers in the messages of one chunk on a CPU; elsewhere all edges are one chunk."""


@in_full_precision
def chunks(graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor, bias: OnEdges, keep: OnEdges) -> Tensor:
    """Gather, weight and sum, chunk by chunk of edges. There are no second derivatives."""
    return _Chunks.apply(graph, q, k, v, bias, keep)


class _Chunks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor, bias: OnEdges, keep: OnEdges
    ) -> Tensor:
        score = q.new_empty(graph.num_edges, q.shape[1])
        for part, src, dst in _parts(graph, q):
            torch.sum(q.index_select(0, dst).mul_(k.index_select(0, src)), -1, out=score[part])
        score.div_(math.sqrt(q.shape[-1]))
        weight = softmax_over_in_edges(graph, score if bias is None else score.add_(bias))
        used, output = weight if keep is None else weight * keep, v.new_zeros(len(q), *v.shape[1:])
        for part, src, dst in _parts(graph, q):
            output.index_add_(0, dst, v.index_select(0, src).mul_(used[part, :, None]))
        ctx.graph, ctx.biased = graph, bias is not None
        ctx.save_for_backward(q, k, v, weight, keep)
        return output

    @staticmethod
    @without_second_derivatives("engine='scatter'")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (q, k, v, weight, keep), graph = ctx.saved_tensors, ctx.graph
        used, of_weight = weight if keep is None else weight * keep, torch.empty_like(weight)
        of_q, of_k, of_v = (torch.zeros_like(x) for x in (q, k, v))
        for part, src, dst in _parts(graph, q):
            received = grad.index_select(0, dst)
            torch.sum(v.index_select(0, src).mul_(received), -1, out=of_weight[part])
            of_v.index_add_(0, src, received.mul_(used[part, :, None]))
        shares = (of_weight if keep is None else of_weight.mul_(keep)).mul_(weight)
        total = shares.new_zeros(graph.num_dst, shares.shape[1]).index_add_(0, graph.dst, shares)
        of_score = shares.sub_(weight * total.index_select(0, graph.dst))
        scaled = of_score / math.sqrt(q.shape[-1])
        for part, src, dst in _parts(graph, q):
            factor = scaled[part, :, None]
            of_q.index_add_(0, dst, k.index_select(0, src).mul_(factor))
            of_k.index_add_(0, src, q.index_select(0, dst).mul_(factor))
        return None, of_q, of_k, of_v, of_score if ctx.biased else None, None


def _parts(graph: AttentionGraph, q: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Slices of the edges, each with its senders and receivers."""
    size = max(1, AT_WORK // q[0].numel()) if q.device.type == "cpu" else max(1, graph.num_edges)
    for first in range(0, graph.num_edges, size):
        part = slice(first, first + size)
        yield part, graph.src[part], graph.dst[part]
