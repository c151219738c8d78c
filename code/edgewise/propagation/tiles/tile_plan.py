"""Tile plans: made once per graph, used by every layer and every pass."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph
from edgewise.graphs.per_graph import per_graph
from edgewise.propagation.precision import widest
from edgewise.propagation.tiles.tile_cuts import Cut, cut_graph
from edgewise.propagation.tiles.tile_layout import (
    Bucket,
    Layout,
    LayoutTensors,
    Placement,
    pack_layout,
    unpack_layout,
)

MOST_WASTE = 8
"""Scores per edge that a plan may compute."""

ALWAYS_AFFORDABLE = 10_000_000
"""Total scores that a plan may always compute, whatever their number per edge."""

SINGLE = 64**2
"""Pairs of tokens up to which a graph is one masked tile, without being cut."""

DENSE = 2
"""Pairs per edge up to which a list of edges is one, too."""

TOO_FEW = {"cuda": 2**21}
"""Scores up to which all tiles share a bucket, because fewer would not fill the device."""

BUCKET_RATIO = 1.5
"""Tiles whose longer sides differ by less than about this factor share a bucket; if that wastes too much,
those whose both sides do."""


@dataclass(frozen=True, eq=False)
class TilePlan:
    """Tiles of a graph.

    Attributes
    ----------
    scores : int
        Query-key products that the plan computes, padding included.
    edges : int
        Products that the graph needs.
    slots : int
        Rows and columns of all tiles, padding included.
    calls : int
        Shapes of tiles, each of which is one dense call.
    lay_out : callable
        Makes the layout, packed.
    """

    scores: int
    edges: int
    slots: int
    calls: int
    lay_out: Callable[[], LayoutTensors]

    @cached_property
    def tensors(self) -> LayoutTensors:
        """The layout as tensors, made when tiles are first executed."""
        with torch.inference_mode(False):  # a later pass may need gradients
            return self.lay_out()

    @cached_property
    def layout(self) -> Layout:
        """The same, taken apart."""
        return unpack_layout(self.tensors)

    @property
    def size(self) -> int:
        """Most bytes that the layout takes, and a few for what surrounds it."""
        return 2**16 + 48 * self.slots + self.scores

    @property
    def economical(self) -> bool:
        """Whether the plan stays within ``MOST_WASTE`` scores per edge."""
        return self.scores <= MOST_WASTE * self.edges

    @property
    def affordable(self) -> bool:
        """Whether the plan is economical or stays within ``ALWAYS_AFFORDABLE`` scores in all."""
        return self.economical or self.scores <= ALWAYS_AFFORDABLE


Mask = Callable[[Tensor, Tensor], dict[str, Any]]
"""Takes the rows [tiles, height] of a bucket and which of its columns are no padding [tiles, width]."""


def is_one_tile(graph: AttentionGraph) -> bool:
    """Whether a graph is executed as one masked tile, without being cut."""
    most = SINGLE if graph.in_intervals else max(SINGLE, DENSE * graph.num_edges)
    return graph.num_dst * graph.num_src <= most


@per_graph
def plan_tiles(graph: AttentionGraph) -> TilePlan:
    """Return the graph's plan."""
    if graph.has_multi_edges:
        raise ValueError(
            "tiles take each pair of tokens once, the graph has two edges of the same pair; use engine='csr'"
        )
    sides = graph.num_dst, graph.num_src
    pairs = math.prod(sides)
    if graph.num_edges == 0:
        return TilePlan(0, 0, 0, 0, partial(_single_tile, *sides, graph.device, None))  # never laid out
    if is_one_tile(graph):
        full = graph.num_edges == pairs
        lay_out = partial(_single_tile, *sides, graph.device, None if full else graph.to_mask()[None, None])
        return TilePlan(pairs, graph.num_edges, sum(sides), 1, lay_out)
    most_in_one_bucket = TOO_FEW.get(graph.device.type, 0)
    cut = cut_graph(graph if not graph.in_intervals else graph.to("cpu"))  # its questions would halt a GPU
    longer = torch.maximum(cut.rows, cut.columns)
    if len(longer) * int(cut.rows.max()) * int(cut.columns.max()) <= most_in_one_bucket:
        groups = _group_by_size(cut, *[torch.ones_like(longer)] * 2)
    else:
        groups = _group_by_size(cut, longer, longer)
        if groups.scores > MOST_WASTE * graph.num_edges:
            groups = _group_by_size(cut, cut.rows, cut.columns)
    if groups.scores > most_in_one_bucket:
        cut, groups = cut.to(graph.device), groups._replace(order=groups.order.to(graph.device))
    lay_out = partial(_lay_out, *sides, cut, groups, graph.device)
    return TilePlan(groups.scores, graph.num_edges, groups.slots, len(groups.tiles), lay_out)


def _single_tile(num_dst: int, num_src: int, device: torch.device, mask: Tensor | None) -> LayoutTensors:
    receivers = senders = _everywhere(num_src, device)
    if mask is not None and not bool((receiving := mask.any(-1).flatten()).all()):
        # Kernels do not agree on rows without a column.
        receivers = Placement.of(num_dst, torch.arange(num_dst, device=device), receiving)
    elif num_src != num_dst:
        receivers = _everywhere(num_dst, device)
    return pack_layout(Layout([Bucket(1, num_dst, num_src, mask)], receivers, senders))


def _everywhere(count: int, device: torch.device) -> Placement:
    tokens = torch.arange(count, device=device)
    return Placement(count, tokens, tokens, tokens, in_one_slot=True, everywhere=True, trivial=True)


class _Groups(NamedTuple):
    """Tiles of similar size: their numbers, group by group; each group's tiles, rows and columns."""

    order: Tensor
    tiles: list[int]
    rows: list[int]
    columns: list[int]

    @property
    def scores(self) -> int:
        return sum(n * r * c for n, r, c in zip(self.tiles, self.rows, self.columns, strict=True))

    @property
    def slots(self) -> int:
        return sum(n * (r + c) for n, r, c in zip(self.tiles, self.rows, self.columns, strict=True))


def _group_by_size(cut: Cut, *sides: Tensor) -> _Groups:
    """Group tiles by the logarithms of two lengths; a group is as high and wide as its largest tile."""
    first, second = ((side.to(widest(side.device)).log() / math.log(BUCKET_RATIO)).long() for side in sides)
    _, group, tiles = (first * (int(second.max()) + 1) + second).unique(
        return_inverse=True, return_counts=True
    )
    none = torch.zeros_like(tiles)
    largest = (none.scatter_reduce(0, group, lengths, "amax") for lengths in (cut.rows, cut.columns))
    return _Groups(group.argsort(stable=True), *(x.tolist() for x in (tiles, *largest)))


def _lay_out(num_dst: int, num_src: int, cut: Cut, groups: _Groups, device: torch.device) -> LayoutTensors:
    """Assign a slot to every row and column of every tile, group by group; then move them to a device."""
    first_row = cut.rows.cumsum(0) - cut.rows
    row, real_row = _padded(first_row, cut.rows, groups.order, groups.tiles, groups.rows)
    column, real_column = _padded(cut.first, cut.columns, groups.order, groups.tiles, groups.columns)
    received, sent = cut.receivers[row], column if cut.senders is None else cut.senders[column]
    receivers = senders = Placement.of(num_dst, received, real_row)
    same = num_src == num_dst and torch.equal(received, sent) and torch.equal(real_row, real_column)
    if not same:
        senders = Placement.of(num_src, sent, real_column)
    attends = _pairs(cut) if cut.senders is not None else _runs(cut, first_row)
    buckets = []
    shapes = list(zip(groups.tiles, groups.rows, groups.columns, strict=True))
    rows, columns = row.split([n * r for n, r, _ in shapes]), real_column.split([n * c for n, _, c in shapes])
    for shape, own, real in zip(shapes, rows, columns, strict=True):
        buckets.append(Bucket(*shape, **attends(own.view(shape[0], -1), real.view(shape[0], -1))))
    return pack_layout(Layout(buckets, receivers, senders)).to(device)


def _padded(
    first: Tensor, count: Tensor, order: Tensor, tiles: list[int], lengths: list[int]
) -> tuple[Tensor, Tensor]:
    """Runs ``first .. first + count - 1``, in an order, each made as long as its group by its last element.

    Returns the elements of all runs, and which of them are no repetitions.
    """
    group_length, group_tiles = (order.new_tensor(x) for x in (lengths, tiles))
    length = group_length.repeat_interleave(group_tiles)
    tile = order.repeat_interleave(length)
    before = (length.cumsum(0) - length).repeat_interleave(length)
    position = torch.arange(len(tile), device=tile.device) - before
    count = count[tile]
    return first[tile] + torch.minimum(position, count - 1), position < count


def _runs(cut: Cut, first_row: Tensor) -> Mask:
    """Masks where each row attends to a run of columns: none, causal, of padding alone, or of each row."""
    start, stop = cut.attended
    from_first = not bool(start.any())
    if from_first and torch.equal(stop, cut.columns.repeat_interleave(cut.rows)):
        return lambda row, real: {} if bool(real.all()) else {"mask": real[:, None, None]}
    number = torch.arange(len(stop), device=stop.device) - first_row.repeat_interleave(cut.rows)
    if from_first and torch.equal(stop, number + 1):
        return lambda row, real: {"is_causal": True}

    def each_row(row: Tensor, real: Tensor) -> dict[str, Any]:
        position = torch.arange(real.shape[1], device=row.device)
        return {"mask": ((position >= start[row][..., None]) & (position < stop[row][..., None]))[:, None]}

    return each_row


def _pairs(cut: Cut) -> Mask:
    """Masks of single pairs; a row of padding repeats the one before it."""
    receiver, column = cut.attended
    by_receiver = receiver.argsort(stable=True)
    degree = torch.bincount(receiver, minlength=len(cut.receivers))
    first = degree.cumsum(0) - degree

    def of_pairs(row: Tensor, real: Tensor) -> dict[str, Any]:
        rows = row.flatten()
        count = degree[rows]
        slot = torch.arange(len(rows), device=row.device).repeat_interleave(count)
        position = torch.arange(len(slot), device=row.device) - (count.cumsum(0) - count)[slot]
        mask = torch.zeros(len(rows), real.shape[1], dtype=torch.bool, device=row.device)
        mask[slot, column[by_receiver[first[rows][slot] + position]]] = True
        return {"mask": mask.view(len(row), 1, -1, real.shape[1])}

    return of_pairs


@per_graph
def score_positions(graph: AttentionGraph) -> tuple[Tensor, Tensor]:
    """Where a plan computes the score of each edge, and which scores it must leave out.

    Returns
    -------
    positions : Tensor
        int64 [E]: each edge's number among the scores of all tiles, bucket by bucket, row by row.
    absent : Tensor
        bool [scores]: pairs without an edge, but for those of padding rows, whose outputs nobody reads.
    """
    buckets, receivers, senders = plan_tiles(graph).layout
    real = torch.zeros(len(receivers.source), dtype=torch.bool, device=graph.device)
    real[receivers.slots] = True
    pairs, absent, row, column = [], [], 0, 0
    for bucket in buckets:
        shape = (bucket.num_tiles, bucket.rows, bucket.columns)
        rows, columns = slice(row, row + shape[0] * shape[1]), slice(column, column + shape[0] * shape[2])
        there = real[rows].view(*shape[:2], 1)
        connected = bucket.connected(graph.device).expand(shape) & there
        receiver = receivers.source[rows].view(*shape[:2], 1)
        number = receiver * graph.num_src + senders.source[columns].view(shape[0], 1, shape[2])
        pairs.append(torch.where(connected, number, -1).flatten())
        absent.append((there & ~connected).flatten())
        row, column = rows.stop, columns.stop
    pair, order = torch.cat(pairs).sort()
    return order[torch.searchsorted(pair, graph._dst * graph.num_src + graph._src)], torch.cat(absent)
