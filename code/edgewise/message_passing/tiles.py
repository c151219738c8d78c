"""Attention in dense tiles: sparse graphs on dense kernels.

Receivers are cut into tiles; each tile gathers the senders of all its receivers, and attends to them densely.
A sentence is one tile. Tiles of similar size share one call of ``scaled_dot_product_attention``; pairs
without an edge are masked.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from edgewise.graphs import AttentionGraph
from edgewise.message_passing.plan import ALWAYS_AFFORDABLE, MOST_WASTE, Placement, plan_tiles


def tiles(graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Gather each tile's tokens, attend inside it, scatter the outputs.

    Values must be finite: masked pairs inside a tile are multiplied by zero, not skipped. There are no second
    derivatives.

    Raises
    ------
    ValueError
        If the graph's tiles would compute more than ``MOST_WASTE`` scores per edge and more than
        ``ALWAYS_AFFORDABLE`` in all.
    """
    plan = plan_tiles(graph)
    if not plan.affordable:
        raise ValueError(
            f"tiles would compute {plan.scores:,} scores for {plan.edges:,} edges, more than {MOST_WASTE} "
            f"per edge and more than {ALWAYS_AFFORDABLE:,}; use engine='fused', 'scatter' or 'auto'"
        )
    assert plan.receivers is not None  # the graph has edges
    assert plan.senders is not None
    queries, keys, values = spread(q, plan.receivers), spread(k, plan.senders), spread(v, plan.senders)
    answers, row, column = [], 0, 0
    for bucket in plan.buckets:
        rows, columns = bucket.num_tiles * bucket.rows, bucket.num_tiles * bucket.columns
        tile_q = _as_tiles(queries[row : row + rows], bucket.num_tiles)
        tile_k, tile_v = (_as_tiles(x[column : column + columns], bucket.num_tiles) for x in (keys, values))
        answer = scaled_dot_product_attention(
            tile_q, tile_k, tile_v, attn_mask=bucket.mask, is_causal=bucket.is_causal
        )  # [tiles, h, rows, d]
        answers.append(answer.transpose(1, 2).reshape(rows, *q.shape[1:]))
        row, column = row + rows, column + columns
    return collect(answers[0] if len(answers) == 1 else torch.cat(answers), plan.receivers)


def _as_tiles(slots: Tensor, num_tiles: int) -> Tensor:
    """[tiles * n, h, d] to [tiles, h, n, d], without a copy."""
    return slots.unflatten(0, (num_tiles, -1)).transpose(1, 2)


def spread(tokens: Tensor, placement: Placement) -> Tensor:
    """Copy tokens [N, h, d] into the slots of all tiles [slots, h, d]."""
    return tokens if placement.trivial else _Spread.apply(tokens, placement)


def collect(slots: Tensor, placement: Placement) -> Tensor:
    """Collect one output per token from the slots; a token in no slot gets zeros."""
    return slots if placement.trivial else _Collect.apply(slots, placement)


class _Spread(torch.autograd.Function):
    """The backward pass is a gather too if no token is in two slots."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, placement: Placement) -> Tensor:
        ctx.placement = placement
        return tokens.index_select(0, placement.source)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _sum_slots(grad, ctx.placement), None


class _Collect(torch.autograd.Function):
    """Padding gets no gradient."""

    @staticmethod
    def forward(ctx: Any, slots: Tensor, placement: Placement) -> Tensor:
        ctx.placement = placement
        return _sum_slots(slots, placement)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        place = ctx.placement
        slots = grad.new_zeros(len(place.source), *grad.shape[1:])
        return slots.index_copy_(0, place.slots, grad.index_select(0, place.tokens)), None


def _sum_slots(slots: Tensor, place: Placement) -> Tensor:
    """Add up each token's slots: [slots, h, d] to [N, h, d]."""
    taken = slots.index_select(0, place.slots)
    if place.everywhere:
        return taken
    total = slots.new_zeros(place.num_tokens, *slots.shape[1:])
    if place.once:
        return total.index_copy_(0, place.tokens, taken)
    index = place.tokens[:, None, None].expand_as(taken)
    return total.scatter_add_(0, index, taken)
