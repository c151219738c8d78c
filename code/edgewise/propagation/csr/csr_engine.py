"""Attention by PyTorch's own sparse kernels: a dot product per edge, a weighted sum per receiver.

DGL's two built-ins: ``sampled_addmm`` computes the first (SDDMM), ``embedding_bag`` the second (SpMM). An
edge never holds more than one number per head.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag
from torch.sparse import sampled_addmm

from edgewise.graphs import AttentionGraph
from edgewise.propagation.csr.pattern import (
    Pattern,
    edge_order,
    heads_at_once,
    inverse,
    pattern_of,
    runs_sparse,
)
from edgewise.propagation.fields import Fields, KernelFields, OnEdges, pack
from edgewise.propagation.precision import in_full_precision, without_second_derivatives
from edgewise.propagation.scatter import scatter

SAFE = 20.0
"""Scores between this and its negative need no maximum: their exponentials neither over- nor underflow."""

LARGE = 1e20
"""Values from which weights must be normalised before they are multiplied, or sums might overflow."""

with warnings.catch_warnings():  # PyTorch says once that its CSR tensors are in beta
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0], [], [], (0, 0))


@in_full_precision
def csr(graph: AttentionGraph, fields: Fields) -> Tensor:
    r"""Compute scores, exponentials and sums along edges. There are no second derivatives.

    With :math:`W` for the projection of attributes :math:`a`, :math:`q^\top W a = (W^\top q)^\top a`
    and :math:`\sum_e w_e W a_e = W \sum_e w_e a_e`, so no attribute is projected edge by edge.
    """
    if not runs_sparse(graph):
        return scatter(graph, fields)
    q, k, v, bias, factors, attr, proj = fields
    heads = heads_at_once(graph, q.shape[1])
    pattern = pattern_of(graph, heads)
    order = None if bias is None and factors is None and attr is None else edge_order(graph, heads)

    def of_turns(x: Tensor) -> Tensor:
        """[E, h] to [turns, E * heads]."""
        return x.unflatten(1, (-1, heads)).transpose(0, 1).flatten(1)

    added = None if bias is None else of_turns(bias)
    kept = None if factors is None or order is None else of_turns(factors).index_select(1, order)
    asked = None if proj is None else torch.einsum("nhd,chd->nhc", q, proj)
    given = KernelFields(q, k, v, added, kept, asked, attr)
    output, of_edges, *_ = _operator([*pattern], heads, order, pack(given))
    return output if proj is None else output + torch.einsum("nhc,chd->nhd", of_edges, proj)


def _forward(p: Pattern, heads: int, order: OnEdges, fields: KernelFields) -> tuple[Tensor, ...]:
    """Output [n, h, d_v], summed attributes [n, h, c], exponentials [turns, E * heads] and their sums.

    Of the ``fields``, numbers of edges are [turns, E * heads], ``factors`` in the pattern's order, into which
    ``order`` puts ``bias``.
    """
    q, k, v, bias, factors, asked, attr = fields
    scale, turns = q.shape[2] ** -0.5, q.shape[1] // heads
    weights = q.new_zeros(turns, len(p.columns))
    if bias is not None and order is not None:
        weights = bias.index_select(1, order)
    sums = q.new_empty(turns, len(p.rows) - 1, 1)
    small = all(_within(LARGE, x) for x in (v, attr) if x is not None)
    edge = None if attr is None or order is None else order // heads
    output, of_edges = None, None
    for turn, (q_, k_, v_, asked_) in enumerate(_in_turns(heads, q, k, v, asked)):
        scores = weights[turn]
        _add_dots(p.rows, p.columns, scores, q_, k_, scale)
        if edge is not None:
            _add_dots(p.rows, edge, scores, asked_, attr, scale)
        sums[turn] = _exponentiate(p, scores, small)
        used = scores if factors is None else scores * factors[turn]
        output = _put(output, turn, q, _weighted_sums(p.rows, p.columns, used, v_).div_(sums[turn]))
        if edge is not None:
            of_edges = _put(of_edges, turn, q, _weighted_sums(p.rows, edge, used, attr).div_(sums[turn]))
    assert output is not None  # there is a head
    return output, q.new_empty(0) if of_edges is None else of_edges, weights, sums


def _backward(
    p: Pattern,
    heads: int,
    order: OnEdges,
    fields: KernelFields,
    results: Sequence[Tensor],
    wanted: KernelFields,
) -> KernelFields:
    """Gradients of the fields, where they are given; ``factors`` have none, bias and attributes if wanted.

    ``results`` are weights, sums, and gradients of both outputs.
    """
    (q, k, v, bias, factors, asked, attr), scale = fields, fields.q.shape[2] ** -0.5
    weights, sums, *grads = results
    of_q, of_k, of_v, of_asked = [None] * 4
    to_attr = attr.new_zeros(attr.shape) if attr is not None and wanted.attr else None
    of_bias = bias.new_empty(bias.shape) if bias is not None and wanted.bias else None
    places = None if of_bias is None or order is None else order.long()
    edge = None if attr is None or order is None else order // heads
    both = q, k, v, grads[0], asked, None if edge is None else grads[1]
    for turn, (q_, k_, v_, grad, asked_, grad_e) in enumerate(_in_turns(heads, *both)):
        share = weights[turn]
        used, grad = share if factors is None else share * factors[turn], grad / sums[turn]
        of_scores = torch.zeros_like(share)
        _add_dots(p.rows, p.columns, of_scores, grad, v_, scale)
        if edge is not None:
            grad_e = grad_e / sums[turn]
            _add_dots(p.rows, edge, of_scores, grad_e, attr, scale)
        mean = _sums(p, of_scores.mul_(used)).div_(sums[turn]).flatten()
        of_scores.addcmul_(share, mean.index_select(0, p.receivers), value=-1)
        if of_bias is not None and places is not None:
            of_bias[turn].index_copy_(0, places, of_scores / scale)
        sent, of_sent = (x.index_select(0, p.by_sender) for x in (used, of_scores))
        of_q = _put(of_q, turn, q, _weighted_sums(p.rows, p.columns, of_scores, k_))
        of_k = _put(of_k, turn, k, _weighted_sums(p.sender_rows, p.sender_columns, of_sent, q_))
        of_v = _put(of_v, turn, v, _weighted_sums(p.sender_rows, p.sender_columns, sent, grad))
        if edge is not None:
            of_asked = _put(of_asked, turn, q, _weighted_sums(p.rows, edge, of_scores, attr))
        if to_attr is not None:
            to_attr += _sums_of_edges(p, heads, order, (of_scores, asked_), (used, grad_e))
    return KernelFields(of_q, of_k, of_v, of_bias, None, of_asked, to_attr)


def _in_turns(heads: int, *fields: OnEdges) -> Iterator[list[Any]]:
    """Fields [n, h, d] as [n * heads, d], so many heads at a time."""
    num_heads = next(x.shape[1] for x in fields if x is not None)
    for first in range(0, num_heads, heads):
        part = slice(first, first + heads)
        yield [None if x is None else x[:, part].reshape(-1, x.shape[2]) for x in fields]


def _put(whole: OnEdges, turn: int, like: Tensor, part: Tensor) -> Tensor:
    """Put [n * heads, d] where these heads are in [n, h, d], which the first turn makes."""
    part = part.view(len(like), -1, part.shape[1])
    heads, every = part.shape[1], like.shape[1]
    if heads == every:
        return part
    whole = part.new_empty(len(like), every, part.shape[2]) if whole is None else whole
    whole[:, turn * heads : (turn + 1) * heads] = part
    return whole


def _sums_of_edges(p: Pattern, heads: int, order: OnEdges, *terms: tuple[Tensor, Tensor]) -> Tensor:
    """For each edge of the graph, add up numbers times its receiver's ``x`` over these heads: [E, c]."""
    assert order is not None  # it comes with attributes
    places = inverse(order)
    begins = torch.arange(0, len(order) + 1, heads, dtype=order.dtype, device=order.device)
    receivers = p.receivers.index_select(0, places)
    parts = [_weighted_sums(begins, receivers, values.index_select(0, places), x) for values, x in terms]
    return parts[0].add_(parts[1])


def _matrix(rows: Tensor, columns: Tensor, values: Tensor, width: int) -> Tensor:
    return torch.sparse_csr_tensor(rows, columns, values, (len(rows) - 1, width), check_invariants=False)


def _add_dots(rows: Tensor, columns: Tensor, values: Tensor, x: Tensor, y: Tensor, scale: float) -> None:
    """Add ``scale * x[row] . y[column]`` to the number on each edge."""
    matrix = _matrix(rows, columns, values, len(y))
    sampled_addmm(matrix, x, y.T, alpha=scale, out=matrix)


def _weighted_sums(rows: Tensor, columns: Tensor, weights: Tensor, x: Tensor) -> Tensor:
    """Add up ``weights * x[column]`` over the edges of each row: [rows, d]."""
    if x.dtype == torch.float32:
        return embedding_bag(
            columns, x, rows, mode="sum", per_sample_weights=weights, include_last_offset=True
        )
    return _matrix(rows, columns, weights, len(x)) @ x  # embedding_bag is slow in float64


def _sums(p: Pattern, values: Tensor) -> Tensor:
    """Sum over each receiver's edges: [receivers, 1]."""
    width = len(p.sender_rows) - 1
    return torch.mv(_matrix(p.rows, p.columns, values, width), values.new_ones(width))[:, None]


def _within(bound: float, x: Tensor) -> bool:
    """Whether all numbers are smaller; NaN is not, and a GPU is not asked, since it would have to halt."""
    if x.device.type != "cpu":
        return False
    low, high = torch.aminmax(x)
    return -bound < float(low) and float(high) < bound


def _exponentiate(p: Pattern, scores: Tensor, small: bool) -> Tensor:
    """Turn scores into their exponentials, in place; return each receiver's sum.

    Unless scores and what they will weigh are small, the highest is subtracted and the sums are made one.
    """
    receivers = None if small and _within(SAFE, scores) else p.receivers.long()
    if receivers is not None:
        highest = scores.new_full((len(p.rows) - 1,), -torch.inf).scatter_reduce_(
            0, receivers, scores, "amax"
        )
        scores.sub_(highest.masked_fill_(highest == -torch.inf, 0.0)[receivers])
    sums = _sums(p, scores.exp_())
    sums.masked_fill_(sums == 0, 1.0)  # no edges, or all hidden
    if receivers is None:
        return sums
    scores.div_(sums[receivers, 0])
    return torch.ones_like(sums)


@torch.library.custom_op("edgewise::csr", mutates_args=())
def _operator(
    pattern: list[Tensor], heads: int, order: Tensor | None, fields: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The forward pass as one call, opaque to a compiler; what is not given is empty."""
    found = _forward(Pattern(*pattern), heads, order, KernelFields.unpack(fields))
    output, of_edges, weights, sums = found
    return output, of_edges, weights, sums


@_operator.register_fake
def _shapes(pattern: list[Tensor], heads: int, order: OnEdges, fields: Sequence[Any]) -> tuple[Tensor, ...]:
    q, _, v, _, _, asked, _ = KernelFields.unpack(fields)
    turns, of_edges = q.shape[1] // heads, (0,) if asked is None else asked.shape
    begins, columns = (x.shape[0] for x in pattern[:2])  # len() would make constants of them
    sizes = (*q.shape[:2], v.shape[2]), of_edges, (turns, columns), (turns, begins - 1, 1)
    return tuple(q.new_empty(size) for size in sizes)


@torch.library.custom_op("edgewise::csr_backward", mutates_args=())
def _backward_operator(
    pattern: list[Tensor],
    heads: int,
    order: Tensor | None,
    fields: list[Tensor],
    results: list[Tensor],
    wanted: list[bool],
) -> list[Tensor]:
    """Gradients of the fields that are wanted; ``results`` are weights, sums, and gradients of outputs."""
    given = KernelFields.unpack(fields)
    found = _backward(Pattern(*pattern), heads, order, given, results, KernelFields._make(wanted))
    return [x for x, want in zip(found, wanted, strict=True) if want and x is not None]


@_backward_operator.register_fake
def _shapes_of_gradients(
    pattern: list[Tensor],
    heads: int,
    order: OnEdges,
    fields: list[Tensor],
    results: list[Tensor],
    wanted: list[bool],
) -> list[Tensor]:
    return [x.new_empty(x.shape) for x, want in zip(fields, wanted, strict=True) if want]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    pattern, ctx.heads, order, fields = inputs
    named = zip(KernelFields._fields, fields, strict=True)
    ctx.wanted = [x.requires_grad and x.dim() > 1 and name != "factors" for name, x in named]
    ctx.save_for_backward(order, *pattern, *fields, *output[2:])
    ctx.set_materialize_grads(False)  # or weights and sums, which lead nowhere, would get zeros


@without_second_derivatives("engine='scatter'", batches=False)
def _differentiate(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
    many, all_fields = len(Pattern._fields), len(KernelFields._fields)
    if grads[0] is None:  # from above comes nothing
        return [None] * many, None, None, [None] * all_fields
    order, *saved = ctx.saved_tensors
    pattern, fields, results = saved[:many], saved[many : many + all_fields], saved[many + all_fields :]
    results += pack(grads[:2])
    found = iter(_backward_operator(pattern, ctx.heads, order, fields, results, ctx.wanted))
    return [None] * many, None, None, [next(found) if want else None for want in ctx.wanted]


_operator.register_autograd(_differentiate, setup_context=_save)
