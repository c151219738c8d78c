"""Attention in dense tiles: sparse graphs on dense kernels.

Receivers are cut into tiles; each tile gathers the senders of all its receivers, and attends to them densely.
A sentence is one tile. Tiles of similar size share one call of ``scaled_dot_product_attention``; pairs
without an edge are masked.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from edgewise.graphs import AttentionGraph
from edgewise.message_passing.plan import (
    ALWAYS_AFFORDABLE,
    MOST_WASTE,
    Placement,
    TilePlan,
    plan_tiles,
    score_places,
)
from edgewise.message_passing.precision import HALF, OnEdges, in_full_precision, without_second_derivatives


def tiles(graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor, bias: OnEdges, keep: OnEdges) -> Tensor:
    """Gather each tile's tokens, attend inside it, scatter the outputs.

    Called by itself it needs finite queries, keys and values, since masked pairs inside a tile are multiplied
    by zero, not skipped; :func:`edgewise.propagate_attention` executes others by ``csr``.
    There are no second derivatives.

    Raises
    ------
    ValueError
        If the graph's tiles would compute more than ``MOST_WASTE`` scores per edge and more than
        ``ALWAYS_AFFORDABLE`` in all.
    """
    wide = keep is not None or (bias is not None and bias.dtype != q.dtype)
    if wide and q.dtype in HALF:  # scores are multiplied out below, or a bias is more precise than the kernel
        return in_full_precision(tiles)(graph, q, k, v, bias, keep)
    plan = plan_tiles(graph)
    if not plan.affordable:
        raise ValueError(
            f"tiles would compute {plan.scores:,} scores for {plan.edges:,} edges, more than {MOST_WASTE} "
            f"per edge and more than {ALWAYS_AFFORDABLE:,}; use engine='csr' or 'auto'"
        )
    buckets, receivers, senders = plan.layout
    queries = _as_tiles(spread(q, receivers), [(b.num_tiles, b.rows) for b in buckets])
    keys, values = (
        _as_tiles(spread(x, senders), [(b.num_tiles, b.columns) for b in buckets]) for x in (k, v)
    )
    answers = []
    for bucket, tile_q, tile_k, tile_v, (added, factor) in zip(
        buckets, queries, keys, values, _in_tiles(graph, plan, bias, keep), strict=True
    ):
        mask, causal = (bucket.mask, bucket.is_causal) if added is None else (added, False)
        if factor is None:
            answer = scaled_dot_product_attention(tile_q, tile_k, tile_v, attn_mask=mask, is_causal=causal)
        else:
            assert mask is not None  # factors come with biases, of zero if there are none
            score = tile_q @ tile_k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + mask
            answer = (score.softmax(-1) * factor) @ tile_v  # [tiles, h, rows, d]
        answers.append(answer.transpose(1, 2).flatten(0, 1))
    return collect(answers[0] if len(answers) == 1 else torch.cat(answers), receivers)


def _in_tiles(
    graph: AttentionGraph, plan: TilePlan, bias: Tensor | None, keep: Tensor | None
) -> list[tuple[Tensor | None, Tensor | None]]:
    """Biases and factors of edges [E, h] as those of each bucket's scores, [tiles, h, rows, columns]."""
    if bias is None and keep is None:
        return [(None, None)] * plan.calls
    places, absent = score_places(graph)
    shapes = [(bucket.num_tiles, bucket.rows, bucket.columns) for bucket in plan.layout.buckets]

    def split(values: Tensor, missing: Tensor | float) -> list[Tensor]:
        table = values.new_zeros(plan.scores, values.shape[1]) + missing
        parts = table.index_copy(0, places, values).split([math.prod(shape) for shape in shapes])
        return [part.view(*shape, -1).permute(0, 3, 1, 2) for part, shape in zip(parts, shapes, strict=True)]

    shown = bias
    if shown is None:
        assert keep is not None  # or there would be nothing to do
        shown = keep.new_zeros(len(keep), 1)
    nowhere = shown.new_zeros(plan.scores, 1).masked_fill(absent[:, None], -math.inf)
    factors = [None] * plan.calls if keep is None else split(keep, 0.0)
    return list(zip(split(shown, nowhere), factors, strict=True))


def _as_tiles(slots: Tensor, shapes: list[tuple[int, int]]) -> list[Tensor]:
    """Slots [slots, h, d] as the tiles of each shape, [tiles, h, n, d], without a copy."""
    parts = [slots] if len(shapes) == 1 else slots.split([tiles * n for tiles, n in shapes])
    return [
        part.view(*shape, *slots.shape[1:]).transpose(1, 2) for part, shape in zip(parts, shapes, strict=True)
    ]


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
    @without_second_derivatives("engine='scatter'")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _sum_slots(grad, ctx.placement), None


class _Collect(torch.autograd.Function):
    """Padding gets no gradient."""

    @staticmethod
    def forward(ctx: Any, slots: Tensor, placement: Placement) -> Tensor:
        ctx.placement = placement
        return _sum_slots(slots, placement)

    @staticmethod
    @without_second_derivatives("engine='scatter'")
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
    return total.index_add_(0, place.tokens, taken)
