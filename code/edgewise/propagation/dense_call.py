"""Packed sequences of one length as one call of PyTorch's dense attention: nothing is planned or gathered."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import scaled_dot_product_attention

from edgewise.graphs import AttentionGraph
from edgewise.graphs.per_graph import per_graph
from edgewise.propagation.fields import MaybeTensor
from edgewise.propagation.precision import HALF, in_a_transform, refusing_second_derivatives, without_autocast

SMALL, FULL = 2**14, 3
"""Pairs of tokens up to which a mask is used, and pairs per edge up to which it is used above that."""

SHORT = 128
"""Senders of a receiver, side by side, up to which Triton's kernel is taken on a GPU, not dense tiles."""

MOST_DRAWS = 2**24
"""Weights up to which dropout draws for each edge; above that PyTorch draws in a dense call."""


class DenseCall(NamedTuple):
    """Sequences of ``rows`` receivers and ``columns`` senders each.

    ``mask`` is bool [1 or sequences, 1, rows, columns]; without it every row attends to every column, or with
    ``is_causal`` to those up to its own number. Rows that are ``empty``, bool [sequences, 1, rows, 1], attend
    to nothing; their masks are full, since kernels do not agree on rows without a column.
    """

    sequences: int
    rows: int
    columns: int
    is_causal: bool = False
    mask: MaybeTensor = None
    empty: MaybeTensor = None


def dense_call_of(graph: AttentionGraph) -> DenseCall | None:
    """How a graph is dense, if it is; whole and causal sequences are told by their lengths alone."""
    packed = graph.packed
    if packed is None:
        return _of_blocks(graph) if graph._blocks else None
    columns, *others = set(packed.senders) or {0}
    rows, *more = {columns} if packed.receivers is None else set(packed.receivers)
    if others or more or not columns or not rows:
        return None
    if packed.left is None or packed.left >= columns - 1:
        if packed.right is None or packed.right >= rows - 1:
            return DenseCall(len(packed.senders), rows, columns)
        if packed.right == 0 and rows == columns:
            return DenseCall(len(packed.senders), rows, columns, is_causal=True)
    return _of_windows(graph, rows, columns)


@per_graph
def _of_windows(graph: AttentionGraph, rows: int, columns: int) -> DenseCall | None:
    assert graph.packed is not None  # asked of no other
    one = graph.packed._replace(senders=(columns,), receivers=(rows,))
    return _masked(graph, len(graph.packed.senders), one.intervals(graph.device))


@per_graph
def _of_blocks(graph: AttentionGraph) -> DenseCall | None:
    assert graph._blocks is not None  # asked of no other
    assert graph._intervals is not None
    first = torch.arange(graph._blocks, device=graph.device)[:, None] * (graph.num_src // graph._blocks)
    start, stop = (ends.view(graph._blocks, -1) - first for ends in graph._intervals)
    return _masked(graph, graph._blocks, (start, stop))


def _masked(graph: AttentionGraph, sequences: int, intervals: tuple[Tensor, Tensor]) -> DenseCall | None:
    """Of intervals [1 or sequences, rows] within a sequence, if its mask is small or mostly edges."""
    columns = graph.num_src // sequences
    if graph.num_dst * columns > max(SMALL, FULL * graph.num_edges):
        return None
    column = torch.arange(columns, device=graph.device)
    start, stop = (ends.view(-1, 1, graph.num_dst // sequences, 1) for ends in intervals)
    empty = start == stop
    mask = (column >= start) & (column < stop) | empty
    return DenseCall(sequences, mask.shape[2], columns, mask=mask, empty=empty if bool(empty.any()) else None)


def dense_if_quickest(graph: AttentionGraph, num_heads: int, dropout: float) -> DenseCall | None:
    """Return the dense call, if it is the quickest way; on a GPU not for short or masked sequences."""
    if (graph.packed is None and not graph._blocks) or torch.compiler.is_compiling() or in_a_transform():
        return None
    if dropout and graph.num_edges * num_heads <= MOST_DRAWS:
        return None
    if graph.device.type == "cpu":
        return dense_call_of(graph)
    form = None if graph.packed is None else dense_call_of(graph)
    return None if form is None or form.mask is not None or form.columns <= SHORT else form


def attend_densely(
    form: DenseCall, q: Tensor, k: Tensor, v: Tensor, scale: float | None, dropout: float
) -> Tensor | None:
    """Queries, keys and values [sequences, n, h, d] to [sequences, rows, h, d_v].

    None if on a CPU a number is not finite: masked pairs are multiplied by zero, so NaN would spread, and of
    a row of NaN PyTorch's kernel makes zeros. Without a mask all rows see the first key; if this is finite,
    NaN of others is seen in the output.
    """
    if (group := q.shape[2] // k.shape[2]) > 1:
        k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    with without_autocast(q.device.type):
        output = scaled_dot_product_attention(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            attn_mask=form.mask,
            dropout_p=dropout,
            is_causal=form.is_causal,
            scale=scale,
        )
    if form.empty is not None:
        output = output.masked_fill(form.empty, 0.0)
    if not all_finite(q, k.select(1, 0) if form.mask is None else k, output):
        return None
    return refusing_second_derivatives(output.transpose(1, 2))


def all_finite(q: Tensor, k: Tensor, output: Tensor) -> bool:
    """Whether all numbers are finite, asked of a CPU alone: a GPU would have to halt."""
    if q.device.type != "cpu":
        return True
    wide = torch.float32 if q.dtype in HALF else None
    if torch.is_grad_enabled():
        q, k, output = q.detach(), k.detach(), output.detach()
    sizes = vector_norm(q, dtype=wide), vector_norm(k, dtype=wide), vector_norm(output, dtype=wide)
    return math.isfinite(sizes[0]) and math.isfinite(sizes[1]) and math.isfinite(sizes[2])
