"""Attention in dense tiles: sparse graphs on dense kernels.

Receivers are cut into tiles; each tile gathers the senders of all its receivers, and attends to them densely.
A sentence is one tile. Tiles of similar size share one call of ``scaled_dot_product_attention``; pairs
without an edge are masked.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from edgewise.graphs import AttentionGraph
from edgewise.graphs.per_graph import per_graph
from edgewise.propagation.fields import Fields, OnEdges, pack, unpack
from edgewise.propagation.precision import (
    HALF,
    in_full_precision,
    without_autocast,
    without_second_derivatives,
)
from edgewise.propagation.tiles.tile_layout import Bucket, Layout, PackedLayout, Placement, unpack_layout
from edgewise.propagation.tiles.tile_plan import ALWAYS_AFFORDABLE, MOST_WASTE, plan_tiles, score_places


def tiles(graph: AttentionGraph, fields: Fields) -> Tensor:
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
    dtype, bias = fields.q.dtype, fields.bias
    wide = fields.factors is not None or (bias is not None and bias.dtype != dtype)
    if wide and dtype in HALF:  # scores are multiplied out below, or a bias is more precise than the kernel
        return in_full_precision(tiles)(graph, fields)
    plan = plan_tiles(graph)
    if not plan.affordable:
        raise ValueError(
            f"tiles would compute {plan.scores:,} scores for {plan.edges:,} edges, more than {MOST_WASTE} "
            f"per edge and more than {ALWAYS_AFFORDABLE:,}; use engine='csr' or 'auto'"
        )
    places, tensors = () if bias is None and fields.factors is None else score_places(graph), _tensors(graph)
    if torch.compiler.is_compiling():
        return _operator(pack(fields), [*tensors, *places])
    return _execute(plan.layout, places, fields)


@per_graph
def _tensors(graph: AttentionGraph) -> PackedLayout:
    """The plan as a compiled program is given it."""
    return plan_tiles(graph).tensors


def _execute(layout: Layout, places: Sequence[Tensor], fields: Fields) -> Tensor:
    answers = [_attend(*each) for each in _in_tiles(layout, places, fields)]
    return collect(_as_slots(answers), layout.receivers)


def _attend(bucket: Bucket, q: Tensor, k: Tensor, v: Tensor, added: OnEdges, factor: OnEdges) -> Tensor:
    """Attend inside of a bucket's tiles: queries [tiles, h, rows, d] to [tiles, h, rows, d_v]."""
    mask, causal = (bucket.mask, bucket.is_causal) if added is None else (added, False)
    if factor is None:
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
    assert mask is not None  # factors come with biases, of zero if there are none
    score = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + mask
    nobody = score.amax(-1, keepdim=True) == -math.inf  # whose biases are all minus infinity
    return (score.masked_fill(nobody, 0.0).softmax(-1).masked_fill(nobody, 0.0) * factor) @ v


def _in_tiles(
    layout: Layout, places: Sequence[Tensor], fields: Fields
) -> list[tuple[Bucket, Tensor, Tensor, Tensor, OnEdges, OnEdges]]:
    """Queries, keys and values [N, h, d], biases and factors [E, h], as those of each bucket's tiles."""
    buckets, receivers, senders = layout
    k, v, bias = fields.k, fields.v, fields.bias
    queries = _as_tiles(spread(fields.q, receivers), [(b.num_tiles, b.rows) for b in buckets])
    columns = [(b.num_tiles, b.columns) for b in buckets]
    keys, values = (_as_tiles(spread(x, senders), columns) for x in (k, v))
    added: list[OnEdges] = [None] * len(buckets)
    factors = [*added]
    if places:
        shown = bias if bias is not None else k.new_zeros(len(places[0]), 1)
        nowhere = shown.new_zeros(len(places[1]), 1).masked_fill(places[1][:, None], -math.inf)
        added = _as_scores(buckets, places[0], shown, nowhere)
        if fields.factors is not None:
            none = fields.factors.new_zeros(len(nowhere), 1)
            factors = _as_scores(buckets, places[0], fields.factors, none)
    return list(zip(buckets, queries, keys, values, added, factors, strict=True))


def _as_scores(buckets: list[Bucket], place: Tensor, values: Tensor, elsewhere: Tensor) -> list[OnEdges]:
    """Numbers of edges [E, h] at their scores: [tiles, h, rows, columns] of each bucket."""
    table = elsewhere.expand(-1, values.shape[1]).index_copy(0, place, values)
    parts = table.split([b.num_tiles * b.rows * b.columns for b in buckets])
    shapes = [(b.num_tiles, b.rows, b.columns, -1) for b in buckets]
    return [part.view(shape).permute(0, 3, 1, 2) for part, shape in zip(parts, shapes, strict=True)]


def _as_tiles(slots: Tensor, shapes: list[tuple[int, int]]) -> list[Tensor]:
    """Slots [slots, h, d] as the tiles of each shape, [tiles, h, n, d], without a copy."""
    parts = [slots] if len(shapes) == 1 else slots.split([tiles * n for tiles, n in shapes])
    return [
        part.view(*shape, *slots.shape[1:]).transpose(1, 2) for part, shape in zip(parts, shapes, strict=True)
    ]


def _as_slots(tiles: Sequence[Tensor]) -> Tensor:
    """And back."""
    parts = [part.transpose(1, 2).flatten(0, 1) for part in tiles]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def spread(tokens: Tensor, placement: Placement) -> Tensor:
    """Copy tokens [N, h, d] into the slots of all tiles [slots, h, d]."""
    return tokens if placement.trivial else _Spread.apply(tokens, placement)


def collect(slots: Tensor, placement: Placement) -> Tensor:
    """Collect one output per token from the slots; a token in no slot gets zeros."""
    return _Once.apply(slots) if placement.trivial else _Collect.apply(slots, placement)


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


class _Once(torch.autograd.Function):
    """Nothing, but that PyTorch's kernels would refuse second derivatives without naming a remedy."""

    @staticmethod
    def forward(ctx: Any, slots: Tensor) -> Tensor:
        return slots.view_as(slots)

    @staticmethod
    @without_second_derivatives("engine='scatter'")
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class _Collect(torch.autograd.Function):
    """Padding gets no gradient."""

    @staticmethod
    def forward(ctx: Any, slots: Tensor, placement: Placement) -> Tensor:
        ctx.placement = placement
        return _sum_slots(slots, placement)

    @staticmethod
    @without_second_derivatives("engine='scatter'")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _fill_slots(grad, ctx.placement), None


def _sum_slots(slots: Tensor, place: Placement) -> Tensor:
    """Add up each token's slots: [slots, h, d] to [N, h, d]."""
    taken = slots.index_select(0, place.slots)
    if place.everywhere:
        return taken
    total = slots.new_zeros(place.num_tokens, *slots.shape[1:])
    if place.once:
        return total.index_copy_(0, place.tokens, taken)
    return total.index_add_(0, place.tokens, taken)


def _fill_slots(tokens: Tensor, place: Placement) -> Tensor:
    """Copy tokens into their slots, zeros into padding: [N, h, d] to [slots, h, d]."""
    slots = tokens.new_zeros(len(place.source), *tokens.shape[1:])
    return slots.index_copy_(0, place.slots, tokens.index_select(0, place.tokens))


@torch.library.custom_op("edgewise::tiles", mutates_args=())
def _operator(fields: list[Tensor], plan: list[Tensor]) -> Tensor:
    """The same as a compiled program sees it: one opaque call, whatever the number of buckets."""
    layout = unpack_layout(PackedLayout(*plan[:3]))
    return _execute(layout, plan[3:], Fields._make(unpack(fields))).contiguous()


@_operator.register_fake
def _shape(fields: list[Tensor], plan: list[Tensor]) -> Tensor:
    q, _, v, *_ = fields
    return q.new_empty(*q.shape[:2], v.shape[2])


@torch.library.custom_op("edgewise::tiles_backward", mutates_args=())
def _backward_operator(fields: list[Tensor], plan: list[Tensor], grad: Tensor, of_bias: bool) -> list[Tensor]:
    """Gradients of queries, keys, values, and a bias if wanted; the forward pass is computed again."""
    buckets, receivers, senders = layout = unpack_layout(PackedLayout(*plan[:3]))
    upstream = _as_tiles(_fill_slots(grad, receivers), [(b.num_tiles, b.rows) for b in buckets])
    tiles = _in_tiles(layout, plan[3:], Fields._make(unpack(fields)))
    with without_autocast(grad.device.type):
        found = [_pull_back(*each, of_bias) for each in zip(upstream, tiles, strict=True)]
    of_tokens = [_as_slots(x) for x in list(zip(*found, strict=True))[:3]]
    sums = [_sum_slots(x, place) for x, place in zip(of_tokens, (receivers, senders, senders), strict=True)]
    if of_bias:
        scores = [of_added.permute(0, 2, 3, 1).flatten(0, 2) for *_, of_added in found]
        sums.append(torch.cat(scores).index_select(0, plan[3]))
    return [x.contiguous() for x in sums]


def _pull_back(above: Tensor, tile: tuple[Any, ...], of_bias: bool) -> tuple[Tensor, ...]:
    """Gradients of a bucket's queries, keys, values and bias; autograd itself does not run in an operator."""
    bucket, *fields, added, factor = tile

    def attend(q: Tensor, k: Tensor, v: Tensor, bias: OnEdges = added) -> Tensor:
        return _attend(bucket, q, k, v, bias, factor)

    return torch.func.vjp(attend, *fields, *[added] * of_bias)[1](above)


@_backward_operator.register_fake
def _shapes_of_gradients(
    fields: list[Tensor], plan: list[Tensor], grad: Tensor, of_bias: bool
) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in fields[: 3 + of_bias]]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    fields, plan = inputs
    ctx.save_for_backward(*fields, *plan)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    many = len(Fields._fields)
    fields, plan = ctx.saved_tensors[:many], ctx.saved_tensors[many:]
    bias: Any = Fields._make(fields).bias  # empty if there is none
    found = _backward_operator(fields, plan, grad, bias.requires_grad)
    return [*found, *[None] * (many - len(found))], [None] * len(plan)


_operator.register_autograd(_differentiate, setup_context=_save)
