"""Where the numbers on edges are in sparse matrices: found once per graph, as plans of tiles are."""

from typing import NamedTuple

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph
from edgewise.graphs.graph_forms import ascends
from edgewise.graphs.ordering import stable_order
from edgewise.graphs.per_graph import per_graph

STACKED = {"cpu": 2**19}
"""Edges times heads up to which all heads are one graph; beyond, they take turns for the caches' sake."""


class Pattern(NamedTuple):
    """A graph as a sparse matrix (CSR) of receivers against senders, and its transpose; all int32.

    Heads may be stacked: node ``i * heads + j`` is head ``j`` of token ``i``, so that states [n, heads, d]
    are [n * heads, d] without a copy.

    Attributes
    ----------
    rows, columns : Tensor
        [receivers + 1] and [E * heads]: where each receiver's edges begin, and their senders.
    receivers : Tensor
        [E * heads]: the receiver of each edge, in that order.
    sender_rows, sender_columns : Tensor
        Of the transpose: where each sender's edges begin, and their receivers.
    by_sender : Tensor
        [E * heads]: where the transpose's edges are among those ordered by receiver.
    """

    rows: Tensor
    columns: Tensor
    receivers: Tensor
    sender_rows: Tensor
    sender_columns: Tensor
    by_sender: Tensor


def has_sparse_kernels(graph: AttentionGraph) -> bool:
    """Whether PyTorch has the kernels there; they drop entries of a matrix with more edges than pairs."""
    return graph.device.type in ("cpu", "cuda") and graph.num_edges <= graph.num_dst * graph.num_src


def heads_at_once(graph: AttentionGraph, num_heads: int) -> int:
    """All, or one of a graph with many edges."""
    most = STACKED.get(graph.device.type, 2**31 - 1)  # an edge's number is an int32
    return num_heads if graph.num_edges * num_heads <= most else 1


@per_graph
def pattern_of(graph: AttentionGraph, heads: int) -> Pattern:
    """Return a graph's pattern with so many heads stacked; it is kept with the graph."""
    if ascends(graph):
        return _from_intervals(graph, heads)
    return _from_edges(graph) if heads == 1 else _stack(pattern_of(graph, 1), heads)


@per_graph
def edge_order(graph: AttentionGraph, heads: int) -> Tensor:
    """int32 [E * heads]: where a pattern's edges are in [E, heads], which is ordered as the graph is."""
    if heads > 1:
        rows = pattern_of(graph, 1).rows
        edges = _stacked_runs(rows[:-1], rows.diff(), heads)[2]
        return _heads_of(edge_order(graph, 1), heads).index_select(0, edges)
    if ascends(graph):
        return inverse(pattern_of(graph, 1).by_sender)  # as edges of intervals are numbered
    return stable_order(graph._dst, graph.num_dst).int()


def _from_edges(graph: AttentionGraph) -> Pattern:
    order = edge_order(graph, 1)
    receivers, senders = (ends.int().index_select(0, order) for ends in (graph._dst, graph._src))
    by_sender = stable_order(senders, graph.num_src)
    return Pattern(
        rows=_begins(torch.bincount(graph._dst, minlength=graph.num_dst)),
        columns=senders,
        receivers=receivers,
        sender_rows=_begins(torch.bincount(graph._src, minlength=graph.num_src)),
        sender_columns=receivers.index_select(0, by_sender),
        by_sender=by_sender.int(),
    )


def _from_intervals(graph: AttentionGraph, heads: int) -> Pattern:
    """Without sorting."""
    assert graph._intervals is not None  # asked of no other
    start, stop = (ends.int() for ends in graph._intervals)
    sender = torch.arange(graph.num_src, dtype=torch.int32, device=graph.device)
    first, last = (torch.searchsorted(ends, sender, right=True, out_int32=True) for ends in (stop, start))
    rows, receivers, columns = _stacked_runs(start, stop - start, heads)
    sender_rows, senders, sender_columns = _stacked_runs(first, last - first, heads)
    by_sender = (rows[:-1] - start.repeat_interleave(heads)).index_select(0, sender_columns)
    by_sender += sender.repeat_interleave(heads).index_select(0, senders)
    return Pattern(rows, columns, receivers, sender_rows, sender_columns, by_sender)


def _stack(one: Pattern, heads: int) -> Pattern:
    rows, receivers, edges = _stacked_runs(one.rows[:-1], one.rows.diff(), heads)
    sender_rows, _, sender_edges = _stacked_runs(one.sender_rows[:-1], one.sender_rows.diff(), heads)
    by_sender = _heads_of(one.by_sender, heads).index_select(0, sender_edges)
    return Pattern(
        rows=rows,
        columns=_heads_of(one.columns, heads).index_select(0, edges),
        receivers=receivers,
        sender_rows=sender_rows,
        sender_columns=_heads_of(one.sender_columns, heads).index_select(0, sender_edges),
        by_sender=inverse(edges).index_select(0, by_sender),
    )


def _stacked_runs(first: Tensor, count: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of stacked heads, and row and column of each element, where columns are consecutive.

    Row ``i`` has ``count[i]`` of them, from ``first[i]`` on.
    """
    counts = count.repeat_interleave(heads)
    rows = _begins(counts)
    row = torch.repeat_interleave(counts)
    step = torch.arange(0, heads * len(row), heads, dtype=torch.int32, device=row.device)
    return rows, row, (_heads_of(first, heads) - heads * rows[:-1]).index_select(0, row).add_(step)


def _heads_of(tokens: Tensor, heads: int) -> Tensor:
    """What is numbered [n], for all heads: [n * heads]."""
    head = torch.arange(heads, dtype=torch.int32, device=tokens.device)
    return (tokens[:, None] * heads + head).flatten()


def inverse(order: Tensor) -> Tensor:
    """Where each number is in an order of numbers."""
    position = torch.arange(len(order), dtype=torch.int32, device=order.device)
    return torch.empty_like(order).scatter_(0, order.long(), position)


def _begins(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()
