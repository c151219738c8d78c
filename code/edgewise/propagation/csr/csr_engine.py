"""Attention by PyTorch's own sparse kernels: a dot product per edge, a weighted sum per receiver.

DGL's two built-ins: ``sampled_addmm`` computes the first (SDDMM), ``embedding_bag`` the second (SpMM). An
edge never holds more than one number per head.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag
from torch.sparse import sampled_addmm

from edgewise.graphs import AttentionGraph
from edgewise.propagation.csr.pattern import (
    Pattern,
    edge_order,
    has_sparse_kernels,
    heads_at_once,
    inverse,
    pattern_of,
)
from edgewise.propagation.fields import (
    Fields,
    KernelFields,
    MaybeTensor,
    Tensors,
    absent_to_empty,
    empty_to_absent,
)
from edgewise.propagation.operators import make_operator
from edgewise.propagation.precision import run_in_float32
from edgewise.propagation.scatter import scatter

SAFE = 20.0
"""Scores between this and its negative need no maximum: their exponentials neither over- nor underflow."""

LARGE = 1e20
"""Values from which weights must be normalised before they are multiplied, or sums might overflow."""

with warnings.catch_warnings():  # PyTorch says once that its CSR tensors are in beta
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0], [], [], (0, 0))


@run_in_float32
def csr(graph: AttentionGraph, fields: Fields, with_lse: bool = False) -> Any:
    r"""Compute scores, exponentials and sums along edges. There are no second derivatives.

    With :math:`W` for the projection of attributes :math:`a`, :math:`q^\top W a = (W^\top q)^\top a`
    and :math:`\sum_e w_e W a_e = W \sum_e w_e a_e`, so no attribute is projected edge by edge.
    """
    if not has_sparse_kernels(graph):
        return scatter(graph, fields, with_lse)
    q, k, v, bias, factors, attr, proj = fields
    heads = heads_at_once(graph, q.shape[1])
    pattern = pattern_of(graph, heads)
    order = None if bias is None and factors is None and attr is None else edge_order(graph, heads)

    def by_chunk(x: Tensor) -> Tensor:
        """[E, h] to [chunks, E * heads]."""
        return x.unflatten(1, (-1, heads)).transpose(0, 1).flatten(1)

    bias = None if bias is None else by_chunk(bias)
    factors = None if factors is None or order is None else by_chunk(factors).index_select(1, order)
    q_attr = None if proj is None else torch.einsum("nhd,chd->nhc", q, proj)
    plan = [*pattern] if order is None else [*pattern, order]
    output, attr_sums, lse, *_ = _operator(
        absent_to_empty(KernelFields(q, k, v, bias, factors, q_attr, attr)), plan, heads
    )
    output = output if proj is None else output + torch.einsum("nhc,chd->nhd", attr_sums, proj)
    return (output, lse.squeeze(-1)) if with_lse else output


def _forward(fields: Tensors, plan: Tensors, heads: int) -> tuple[Tensor, ...]:
    """Output [n, h, d_v], summed attributes, log-sum-exps, exponentials [chunks, E * heads] and their sums.

    The ``heads`` that are computed together are a chunk. Of the fields, numbers of edges are
    [chunks, E * heads], ``factors`` in the pattern's order, into which the plan's last tensor puts ``bias``.
    """
    p, order = Pattern(*plan[:6]), plan[6] if len(plan) > 6 else None
    q, k, v, bias, factors, q_attr, attr = KernelFields._make(empty_to_absent(fields))
    scale, chunks = q.shape[2] ** -0.5, q.shape[1] // heads
    exponentials = q.new_zeros(chunks, len(p.columns))
    if bias is not None and order is not None:
        exponentials = bias.index_select(1, order)
    sums = q.new_empty(chunks, len(p.rows) - 1, 1)
    small = all(_all_below(LARGE, x) for x in (v, attr) if x is not None)
    edge = None if attr is None or order is None else order // heads
    output, attr_sums, lse = None, None, None
    for chunk, (q_, k_, v_, q_attr_) in enumerate(_in_chunks(heads, q, k, v, q_attr)):
        scores = exponentials[chunk]
        _add_dots(p.rows, p.columns, scores, q_, k_, scale)
        if edge is not None:
            _add_dots(p.rows, edge, scores, q_attr_, attr, scale)
        sums[chunk], found = _exponentiate(p, scores, small)
        lse = _put(lse, chunk, q, found)
        used = scores if factors is None else scores * factors[chunk]
        output = _put(output, chunk, q, _weighted_sums(p.rows, p.columns, used, v_).div_(sums[chunk]))
        if edge is not None:
            attr_sums = _put(attr_sums, chunk, q, _weighted_sums(p.rows, edge, used, attr).div_(sums[chunk]))
    assert output is not None  # there is a head
    assert lse is not None
    return output, q.new_empty(0) if attr_sums is None else attr_sums, lse, exponentials, sums


def _fake_results(fields: Tensors, plan: Tensors, heads: int) -> Tensors:
    q, _, v, _, _, q_attr, _ = KernelFields._make(empty_to_absent(fields))
    chunks, attr_sums = q.shape[1] // heads, (0,) if q_attr is None else q_attr.shape
    begins, columns = (x.shape[0] for x in plan[:2])  # len() would make constants of them
    sizes = (
        (*q.shape[:2], v.shape[2]),
        attr_sums,
        (*q.shape[:2], 1),
        (chunks, columns),
        (chunks, begins - 1, 1),
    )
    return [q.new_empty(size) for size in sizes]


def _backward(
    fields: Tensors, plan: Tensors, heads: int, results: Tensors, grads: Tensors, wanted: list[bool]
) -> KernelFields:
    """Gradients of the fields, where they are given; ``factors`` have none, bias and attributes if wanted.

    ``results`` are exponentials and sums.
    """
    p, order = Pattern(*plan[:6]), plan[6] if len(plan) > 6 else None
    q, k, v, bias, factors, q_attr, attr = KernelFields._make(empty_to_absent(fields))
    (exponentials, sums), scale, want = results, q.shape[2] ** -0.5, KernelFields._make(wanted)
    grad_q, grad_k, grad_v, grad_q_attr = [None] * 4
    grad_attr = attr.new_zeros(attr.shape) if attr is not None and want.attr else None
    grad_bias = bias.new_empty(bias.shape) if bias is not None and want.bias else None
    edge = None if attr is None or order is None else order // heads
    grad_output = q.new_zeros(*q.shape[:2], v.shape[2]) if not grads[0].numel() else grads[0]
    of_lse = None if not grads[2].numel() else grads[2]
    operands = q, k, v, grad_output, q_attr, None if edge is None else grads[1], of_lse
    for chunk, (q_, k_, v_, grad, q_attr_, grad_sums, grad_lse) in enumerate(_in_chunks(heads, *operands)):
        exponential = exponentials[chunk]
        used, grad = exponential if factors is None else exponential * factors[chunk], grad / sums[chunk]
        grad_scores = torch.zeros_like(exponential)
        _add_dots(p.rows, p.columns, grad_scores, grad, v_, scale)
        if edge is not None:
            grad_sums = grad_sums / sums[chunk]
            _add_dots(p.rows, edge, grad_scores, grad_sums, attr, scale)
        mean = _sums(p, grad_scores.mul_(used)).div_(sums[chunk]).flatten()
        if grad_lse is not None:
            mean = mean - scale * grad_lse.flatten() / sums[chunk].flatten()
        grad_scores.addcmul_(exponential, mean.index_select(0, p.receivers), value=-1)
        if grad_bias is not None and order is not None:
            grad_bias[chunk].index_copy_(0, order.long(), grad_scores / scale)
        sent, sent_grad = (x.index_select(0, p.by_sender) for x in (used, grad_scores))
        grad_q = _put(grad_q, chunk, q, _weighted_sums(p.rows, p.columns, grad_scores, k_))
        grad_k = _put(grad_k, chunk, k, _weighted_sums(p.sender_rows, p.sender_columns, sent_grad, q_))
        grad_v = _put(grad_v, chunk, v, _weighted_sums(p.sender_rows, p.sender_columns, sent, grad))
        if edge is not None:
            grad_q_attr = _put(grad_q_attr, chunk, q, _weighted_sums(p.rows, edge, grad_scores, attr))
        if grad_attr is not None and order is not None:
            grad_attr += _sums_of_edges(p, heads, order, (grad_scores, q_attr_), (used, grad_sums))
    return KernelFields(grad_q, grad_k, grad_v, grad_bias, None, grad_q_attr, grad_attr)


_operator = make_operator("csr", _forward, _fake_results, _backward, saved=slice(3, 5))


def _in_chunks(heads: int, *fields: MaybeTensor) -> Iterator[list[Any]]:
    """Fields [n, h, d] as [n * heads, d], so many heads at a time."""
    num_heads = next(x.shape[1] for x in fields if x is not None)
    for first in range(0, num_heads, heads):
        part = slice(first, first + heads)
        yield [None if x is None else x[:, part].reshape(-1, x.shape[2]) for x in fields]


def _put(whole: MaybeTensor, chunk: int, like: Tensor, part: Tensor) -> Tensor:
    """Put [n * heads, d] where these heads are in [n, h, d], which the first chunk makes."""
    part = part.view(len(like), -1, part.shape[1])
    heads, every = part.shape[1], like.shape[1]
    if heads == every:
        return part
    whole = part.new_empty(len(like), every, part.shape[2]) if whole is None else whole
    whole[:, chunk * heads : (chunk + 1) * heads] = part
    return whole


def _sums_of_edges(p: Pattern, heads: int, order: Tensor, *terms: tuple[Tensor, Tensor]) -> Tensor:
    """For each edge of the graph, add up numbers times its receiver's ``x`` over these heads: [E, c]."""
    positions = inverse(order)
    begins = torch.arange(0, len(order) + 1, heads, dtype=order.dtype, device=order.device)
    receivers = p.receivers.index_select(0, positions)
    parts = [_weighted_sums(begins, receivers, values.index_select(0, positions), x) for values, x in terms]
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


def _all_below(bound: float, x: Tensor) -> bool:
    """Whether all numbers are smaller; NaN is not, and a GPU is not asked, since it would have to halt."""
    if x.device.type != "cpu":
        return False
    low, high = torch.aminmax(x)
    return -bound < float(low) and float(high) < bound


def _exponentiate(p: Pattern, scores: Tensor, small: bool) -> tuple[Tensor, Tensor]:
    """Turn scores into their exponentials, in place; return each receiver's sum, and the scores' log-sum-exp.

    Unless scores and values are small, each maximum is subtracted, and exponentials are normalised: their
    sums are one.
    """
    receivers = None if small and _all_below(SAFE, scores) else p.receivers.long()
    if receivers is not None:
        highest = scores.new_full((len(p.rows) - 1,), -torch.inf).scatter_reduce_(
            0, receivers, scores, "amax"
        )
        scores.sub_(highest.masked_fill_(highest == -torch.inf, 0.0)[receivers])
    sums = _sums(p, scores.exp_())
    lse = sums.log()
    sums.masked_fill_(sums == 0, 1.0)  # no edges, or all hidden
    if receivers is None:
        return sums, lse
    scores.div_(sums[receivers, 0])
    return torch.ones_like(sums), lse.add_(highest[:, None])
