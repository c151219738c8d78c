"""Cutting a graph's receivers into tiles that share most of their senders."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph

ROW_LIMITS = (16, 256)
"""Fewest and most receivers in a tile of a window; between the two, as many as it is wide on average."""


HOPELESS = 16
"""Scores per edge from which higher tiles are not tried: they would waste still more."""


@dataclass(frozen=True, eq=False)
class Cut:
    """Tiles before they are laid out; a tile has rows (receivers) and columns (senders).

    Attributes
    ----------
    receivers : Tensor
        The receivers of the first tile, then of the second, and so on.
    rows, columns : Tensor
        Receivers and senders of each tile, [tiles].
    first : Tensor
        Where each tile's senders begin, [tiles]: in ``senders``, or where that is ``None`` among the tokens.
    attended : tuple of two Tensors
        Without ``senders``: each receiver attends to columns ``attended[0] .. attended[1] - 1`` of its tile.
        With ``senders``: one pair (position in ``receivers``, column) per edge.
    senders : Tensor or None
        The senders of the first tile, then of the second, and so on.
    """

    receivers: Tensor
    rows: Tensor
    columns: Tensor
    first: Tensor
    attended: tuple[Tensor, Tensor]
    senders: Tensor | None = None

    def to(self, device: torch.device) -> "Cut":
        """Return the same on another device."""
        receivers, rows, columns, first, *attended = (
            x.to(device) for x in (self.receivers, self.rows, self.columns, self.first, *self.attended)
        )
        senders = None if self.senders is None else self.senders.to(device)
        return Cut(receivers, rows, columns, first, (attended[0], attended[1]), senders)


def cut_graph(graph: AttentionGraph) -> Cut:
    """Cut a graph that has at least one edge; receivers without in-edges are left out."""
    intervals = graph._intervals or _as_intervals(graph)
    return _cut_intervals(*intervals) if intervals else _cut_edges(graph)


def _as_intervals(graph: AttentionGraph) -> tuple[Tensor, Tensor] | None:
    """Intervals of a graph held as edges, if each receiver's senders are contiguous."""
    degree = torch.bincount(graph._dst, minlength=graph.num_dst)
    low = torch.full_like(degree, graph.num_src).scatter_reduce(0, graph._dst, graph._src, "amin")
    high = torch.full_like(degree, -1).scatter_reduce(0, graph._dst, graph._src, "amax")
    connected = degree > 0
    if bool(((high - low + 1)[connected] != degree[connected]).any()):
        return None
    return torch.where(connected, low, 0), torch.where(connected, high + 1, 0)


def _cut_intervals(start: Tensor, stop: Tensor) -> Cut:
    """Cut where intervals stop overlapping, and where a tile would waste more than half its scores."""
    receivers = (stop > start).nonzero().squeeze(1)
    start, stop = start[receivers], stop[receivers]
    if bool((start[1:] < start[:-1]).any()):
        start, order = start.sort(stable=True)
        stop, receivers = stop[order], receivers[order]
    apart = torch.ones_like(start, dtype=torch.bool)
    apart[1:] = start[1:] >= stop.cummax(0).values[:-1]
    group, rows, first_row = _groups(apart)
    width = stop - start
    edges = torch.zeros_like(rows).index_add(0, group, width)
    span = _highest(stop, group, rows) - start[first_row]
    wasteful = rows * span > 2 * edges
    if bool(wasteful.any()):
        most_rows = torch.where(wasteful, (edges // rows).clamp(*ROW_LIMITS), rows)
        position = torch.arange(len(start), device=start.device) - first_row[group]
        group, rows, first_row = _groups(position % most_rows[group] == 0)
        span = _highest(stop, group, rows) - start[first_row]
    first = start[first_row]
    return Cut(receivers, rows, span, first, (start - first[group], stop - first[group]))


def _groups(begins: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Number runs, which start where ``begins`` is true: run of each element, sizes, first elements."""
    first = begins.nonzero().squeeze(1)
    size = torch.diff(first, append=first.new_tensor([len(begins)]))
    return begins.cumsum(0) - 1, size, first


def _highest(values: Tensor, group: Tensor, like: Tensor) -> Tensor:
    return torch.zeros_like(like).scatter_reduce(0, group, values, "amax", include_self=False)


def _cut_edges(graph: AttentionGraph) -> Cut:
    """Cut receivers into runs of the length that needs the fewest scores."""
    degree = torch.bincount(graph._dst, minlength=graph.num_dst)
    receivers, rank = degree.nonzero().squeeze(1), (degree > 0).cumsum(0)[graph._dst] - 1
    cheapest, cut = math.inf, None
    for height in (16, 64, 256):
        tile = rank // height
        keys, position = (tile * graph.num_src + graph._src).unique(return_inverse=True)
        columns = torch.bincount(keys // graph.num_src)
        cost = int(columns.sum()) * min(height, len(receivers)) + 2_000 * len(columns)
        if cost < cheapest:
            first = columns.cumsum(0) - columns
            rows = torch.bincount(torch.arange(len(receivers), device=graph.device) // height)
            cheapest = cost
            cut = Cut(receivers, rows, columns, first, (rank, position - first[tile]), keys % graph.num_src)
        if int(columns.sum()) * height > HOPELESS * graph.num_edges:
            break
    assert cut is not None  # the first height is cheaper than infinity
    return cut
