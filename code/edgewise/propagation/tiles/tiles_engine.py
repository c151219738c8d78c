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
from edgewise.propagation.fields import Fields, MaybeTensor, Tensors, absent_to_empty, empty_to_absent
from edgewise.propagation.operators import make_operator
from edgewise.propagation.precision import HALF, refusing_second_derivatives, run_in_float32, without_autocast
from edgewise.propagation.tiles.tile_layout import Bucket, Layout, LayoutTensors, Placement, unpack_layout
from edgewise.propagation.tiles.tile_plan import ALWAYS_AFFORDABLE, MOST_WASTE, plan_tiles, score_positions


def tiles(graph: AttentionGraph, fields: Fields, with_lse: bool = False) -> Any:
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
    # Scores are multiplied out below, or a bias is more precise than the kernel.
    needs_float32 = with_lse or fields.factors is not None or (bias is not None and bias.dtype != dtype)
    if needs_float32 and dtype in HALF:
        return run_in_float32(tiles)(graph, fields, with_lse)
    plan = plan_tiles(graph)
    if not plan.affordable:
        raise ValueError(
            f"tiles would compute {plan.scores:,} scores for {plan.edges:,} edges, more than {MOST_WASTE} "
            f"per edge and more than {ALWAYS_AFFORDABLE:,}; use engine='csr' or 'auto'"
        )
    positions = () if bias is None and fields.factors is None and not with_lse else score_positions(graph)
    tensors = _tensors(graph)
    if with_lse:
        found = [_with_lse(*each) for each in _in_tiles(plan.layout, positions, fields)]
        slots = [_as_slots(x) for x in zip(*found, strict=True)]
        output, lse = (from_slots(x, plan.layout.receivers) for x in slots)
        never = torch.ones(graph.num_dst, 1, dtype=torch.bool, device=graph.device)
        never[plan.layout.receivers.tokens] = False  # in no slot
        lse = lse.squeeze(-1).masked_fill(never, -math.inf)
        return refusing_second_derivatives(output), refusing_second_derivatives(lse)
    if torch.compiler.is_compiling():
        return _operator(absent_to_empty(fields), [*tensors, *positions], 0)[0]
    return refusing_second_derivatives(_execute(plan.layout, positions, fields))


@per_graph
def _tensors(graph: AttentionGraph) -> LayoutTensors:
    """The layout as tensors, the form in which a compiled program takes it."""
    return plan_tiles(graph).tensors


def _execute(layout: Layout, positions: Sequence[Tensor], fields: Fields) -> Tensor:
    answers = [_attend(*each) for each in _in_tiles(layout, positions, fields)]
    return from_slots(_as_slots(answers), layout.receivers)


def _attend(
    bucket: Bucket, q: Tensor, k: Tensor, v: Tensor, added: MaybeTensor, factor: MaybeTensor
) -> Tensor:
    """Attend inside of a bucket's tiles: queries [tiles, h, rows, d] to [tiles, h, rows, d_v]."""
    mask, causal = (bucket.mask, bucket.is_causal) if added is None else (added, False)
    if factor is None:
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
    assert mask is not None  # factors come with biases, of zero if there are none
    return _weigh(q, k, v, mask, factor)[0]


def _with_lse(
    bucket: Bucket, q: Tensor, k: Tensor, v: Tensor, added: MaybeTensor, factor: MaybeTensor
) -> tuple[Tensor, Tensor]:
    """The same, multiplied out; and log-sum-exps of scores, [tiles, h, rows, 1]."""
    assert added is not None  # zeros, if there are no biases
    output, score, nobody = _weigh(q, k, v, added, factor)
    return output, score.logsumexp(-1, keepdim=True).masked_fill(nobody, -math.inf)


def _weigh(
    q: Tensor, k: Tensor, v: Tensor, added: Tensor, factor: MaybeTensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What a tile's rows get, its scores, zero in rows of none, and which rows these are."""
    score = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + added
    nobody = score.amax(-1, keepdim=True) == -math.inf  # whose biases are all minus infinity
    score = score.masked_fill(nobody, 0.0)
    weight = score.softmax(-1).masked_fill(nobody, 0.0)
    return (weight if factor is None else weight * factor) @ v, score, nobody


def _in_tiles(
    layout: Layout, positions: Sequence[Tensor], fields: Fields
) -> list[tuple[Bucket, Tensor, Tensor, Tensor, MaybeTensor, MaybeTensor]]:
    """Queries, keys and values [N, h, d], biases and factors [E, h], as those of each bucket's tiles."""
    buckets, receivers, senders = layout
    k, v, bias = fields.k, fields.v, fields.bias
    queries = _as_tiles(to_slots(fields.q, receivers), [(b.num_tiles, b.rows) for b in buckets])
    columns = [(b.num_tiles, b.columns) for b in buckets]
    keys, values = (_as_tiles(to_slots(x, senders), columns) for x in (k, v))
    added: list[MaybeTensor] = [None] * len(buckets)
    factors = [*added]
    if positions:
        shown = bias if bias is not None else k.new_zeros(len(positions[0]), 1)
        nowhere = shown.new_zeros(len(positions[1]), 1).masked_fill(positions[1][:, None], -math.inf)
        added = _as_scores(buckets, positions[0], shown, nowhere)
        if fields.factors is not None:
            zeros = fields.factors.new_zeros(len(nowhere), 1)
            factors = _as_scores(buckets, positions[0], fields.factors, zeros)
    return list(zip(buckets, queries, keys, values, added, factors, strict=True))


def _as_scores(
    buckets: list[Bucket], position: Tensor, values: Tensor, elsewhere: Tensor
) -> list[MaybeTensor]:
    """Numbers of edges [E, h] at their scores: [tiles, h, rows, columns] of each bucket."""
    table = elsewhere.expand(-1, values.shape[1]).index_copy(0, position, values)
    parts = table.split([b.num_tiles * b.rows * b.columns for b in buckets])
    shapes = [(b.num_tiles, b.rows, b.columns, -1) for b in buckets]
    return [part.view(shape).permute(0, 3, 1, 2) for part, shape in zip(parts, shapes, strict=True)]


def _as_tiles(slots: Tensor, shapes: list[tuple[int, int]]) -> Tensors:
    """Slots [slots, h, d] as the tiles of each shape, [tiles, h, n, d], without a copy."""
    parts = [slots] if len(shapes) == 1 else slots.split([tiles * n for tiles, n in shapes])
    return [
        part.view(*shape, *slots.shape[1:]).transpose(1, 2) for part, shape in zip(parts, shapes, strict=True)
    ]


def _as_slots(parts: Sequence[Tensor]) -> Tensor:
    """And back."""
    parts = [part.transpose(1, 2).flatten(0, 1) for part in parts]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def to_slots(tokens: Tensor, placement: Placement) -> Tensor:
    """Copy tokens [N, h, d] into the slots of all tiles [slots, h, d]."""
    return tokens if placement.trivial else _ToSlots.apply(tokens, placement)


def from_slots(slots: Tensor, placement: Placement) -> Tensor:
    """Collect one output per token from the slots; a token in no slot gets zeros."""
    return slots if placement.trivial else _FromSlots.apply(slots, placement)


class _ToSlots(torch.autograd.Function):
    """The backward pass is a gather too if no token is in two slots."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, placement: Placement) -> Tensor:
        ctx.placement = placement
        return tokens.index_select(0, placement.source)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _sum_slots(grad, ctx.placement), None


class _FromSlots(torch.autograd.Function):
    """Padding gets no gradient."""

    @staticmethod
    def forward(ctx: Any, slots: Tensor, placement: Placement) -> Tensor:
        ctx.placement = placement
        return _sum_slots(slots, placement)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _fill_slots(grad, ctx.placement), None


def _sum_slots(slots: Tensor, place: Placement) -> Tensor:
    """Add up each token's slots: [slots, h, d] to [N, h, d]."""
    taken = slots.index_select(0, place.slots)
    if place.everywhere:
        return taken
    total = slots.new_zeros(place.num_tokens, *slots.shape[1:])
    if place.in_one_slot:
        return total.index_copy_(0, place.tokens, taken)
    return total.index_add_(0, place.tokens, taken)


def _fill_slots(tokens: Tensor, place: Placement) -> Tensor:
    """Copy tokens into their slots, zeros into padding: [N, h, d] to [slots, h, d]."""
    slots = tokens.new_zeros(len(place.source), *tokens.shape[1:])
    return slots.index_copy_(0, place.slots, tokens.index_select(0, place.tokens))


def _forward(fields: Tensors, plan: Tensors, count: int) -> Tensors:
    """As :func:`_execute`, whatever the number of buckets: what a compiled program calls."""
    layout = unpack_layout(LayoutTensors(*plan[:3]))
    return [_execute(layout, plan[3:], Fields._make(empty_to_absent(fields))).contiguous()]


def _fake_results(fields: Tensors, plan: Tensors, count: int) -> Tensors:
    q, _, v, *_ = fields
    return [q.new_empty(*q.shape[:2], v.shape[2])]


def _backward(
    fields: Tensors, plan: Tensors, count: int, results: Tensors, grads: Tensors, wanted: list[bool]
) -> Fields:
    """Gradients of queries, keys, values, and a bias if wanted; the forward pass is computed again."""
    buckets, receivers, senders = layout = unpack_layout(LayoutTensors(*plan[:3]))
    with_bias, grad = Fields._make(wanted).bias, grads[0]
    upstream = _as_tiles(_fill_slots(grad, receivers), [(b.num_tiles, b.rows) for b in buckets])
    parts = _in_tiles(layout, plan[3:], Fields._make(empty_to_absent(fields)))
    with without_autocast(grad.device.type):
        found = [_pull_back(*each, bool(with_bias)) for each in zip(upstream, parts, strict=True)]
    slots = [_as_slots(x) for x in list(zip(*found, strict=True))[:3]]
    sums = [_sum_slots(x, place) for x, place in zip(slots, (receivers, senders, senders), strict=True)]
    if with_bias:
        scores = [grad_added.permute(0, 2, 3, 1).flatten(0, 2) for *_, grad_added in found]
        sums.append(torch.cat(scores).index_select(0, plan[3]))
    return Fields(*sums)


def _pull_back(grad: Tensor, tile: tuple[Any, ...], with_bias: bool) -> tuple[Tensor, ...]:
    """Gradients of a bucket's queries, keys, values and bias; autograd itself does not run in an operator."""
    bucket, *fields, added, factor = tile

    def attend(q: Tensor, k: Tensor, v: Tensor, bias: MaybeTensor = added) -> Tensor:
        return _attend(bucket, q, k, v, bias, factor)

    return torch.func.vjp(attend, *fields, *[added] * with_bias)[1](grad)


_operator = make_operator("tiles", _forward, _fake_results, _backward, saved=slice(0))
