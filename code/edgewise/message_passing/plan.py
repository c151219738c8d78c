"""Tile plans: made once per graph, used by every layer and every pass."""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph
from edgewise.message_passing.cuts import Cut, cut_graph

MOST_WASTE = 8
"""Scores per edge that a plan may compute."""

ALWAYS_AFFORDABLE = 10_000_000
"""Total scores that a plan may always compute, whatever their number per edge."""

BUCKET_RATIO = 1.5
"""Tiles whose longer sides differ by less than about this factor share a bucket; if that wastes too much,
both sides must."""


@dataclass(frozen=True, eq=False)
class Placement:
    """Where tokens are in the padded slots of all tiles.

    Token ``tokens[i]`` is in slot ``slots[i]``; slot ``s`` is filled from token ``source[s]``, padding
    included. ``once``: no token is in two slots; ``everywhere``: moreover, ``tokens`` is all of them in
    order; ``trivial``: slots and tokens are the same list.
    """

    num_tokens: int
    tokens: Tensor
    slots: Tensor
    source: Tensor
    once: bool
    everywhere: bool
    trivial: bool

    @classmethod
    def of(cls, num_tokens: int, source: Tensor, real: Tensor) -> "Placement":
        """``source`` holds a token for each slot; slots with ``real`` false are padding."""
        slots = real.nonzero().squeeze(1)
        tokens = source[slots]
        once = len(tokens) <= num_tokens and bool((torch.bincount(tokens, minlength=1) <= 1).all())
        everywhere = once and len(tokens) == num_tokens
        if everywhere:
            slots = torch.empty_like(slots).index_copy_(0, tokens, slots)
            tokens = torch.arange(num_tokens, device=tokens.device)
        trivial = everywhere and len(source) == num_tokens and torch.equal(source, tokens)
        return cls(num_tokens, tokens, slots, source, once, everywhere, trivial)


@dataclass(frozen=True, eq=False)
class Bucket:
    """Tiles of similar size, padded to one shape and executed by one dense call.

    ``mask`` is bool [num_tiles, 1, 1 or rows, columns]; without it every row attends to every column, or with
    ``is_causal`` to those up to its own number.
    """

    num_tiles: int
    rows: int
    columns: int
    mask: Tensor | None = None
    is_causal: bool = False

    def connected(self, device: torch.device) -> Tensor:
        """Bool, broadcast to [num_tiles, rows, columns]: which rows attend to which columns."""
        if self.mask is not None:
            return self.mask[:, 0]
        pairs = torch.ones(1, self.rows, self.columns, dtype=torch.bool, device=device)
        return pairs.tril() if self.is_causal else pairs


@dataclass(frozen=True, eq=False)
class TilePlan:
    """Tiles of a graph.

    Attributes
    ----------
    scores : int
        Query-key products that the plan computes, padding included.
    edges : int
        Products that the graph needs.
    buckets : list of Bucket
        Empty if the plan exceeds the limits.
    receivers, senders : Placement or None
        Placement of queries and of keys and values; ``None`` if there is nothing to do.
    """

    scores: int
    edges: int
    buckets: list[Bucket]
    receivers: Placement | None = None
    senders: Placement | None = None

    @property
    def slots(self) -> tuple[list[int], list[int]]:
        """Slots of receivers and of senders in each bucket."""
        return [b.num_tiles * b.rows for b in self.buckets], [b.num_tiles * b.columns for b in self.buckets]

    @property
    def economical(self) -> bool:
        """Whether the plan stays within ``MOST_WASTE`` scores per edge."""
        return self.scores <= MOST_WASTE * self.edges

    @property
    def affordable(self) -> bool:
        """Whether the plan is economical or stays within ``ALWAYS_AFFORDABLE`` scores in all."""
        return self.economical or self.scores <= ALWAYS_AFFORDABLE


Mask = Callable[[Tensor, Tensor], dict[str, Any]]
"""Rows [tiles, height] of a bucket and which of its columns are real [tiles, width], to its mask."""


RECENT = 64
"""Plans of sentences kept for later graphs of the same lengths."""

_recent: OrderedDict[tuple[Any, torch.device], TilePlan] = OrderedDict()
_lock = threading.Lock()


def plan_tiles(graph: AttentionGraph) -> TilePlan:
    """Return the graph's plan; made on first use and cached on the graph.

    Graphs of sentences of equal lengths share one, if there was such a graph among the latest.
    """
    return graph.cached("tiles", lambda: _plan(graph) if graph.lengths is None else _shared(graph))


def forget_plans() -> None:
    """Forget the plans that graphs to come would share."""
    with _lock:
        _recent.clear()


def _shared(graph: AttentionGraph) -> TilePlan:
    key = graph.lengths, graph.device
    with _lock:
        plan = _recent.pop(key, None)
    if plan is None:
        plan = _plan(graph)
    with _lock:
        _recent[key] = plan
        if len(_recent) > RECENT:
            _recent.popitem(last=False)
    return plan


def _plan(graph: AttentionGraph) -> TilePlan:
    if graph.num_edges == 0:
        return TilePlan(0, 0, [])
    cut = cut_graph(graph)
    longer = torch.maximum(cut.rows, cut.columns)
    for sides in (longer, longer), (cut.rows, cut.columns):
        groups = _group_by_size(cut, *sides)
        plan = TilePlan(groups.scores, graph.num_edges, [])
        if plan.economical:
            break
    return _lay_out(graph, cut, groups) if plan.affordable else plan


class _Groups(NamedTuple):
    """Tiles of similar size: their numbers, group by group; each group's tiles, rows and columns."""

    order: Tensor
    tiles: list[int]
    rows: list[int]
    columns: list[int]

    @property
    def scores(self) -> int:
        return sum(n * r * c for n, r, c in zip(self.tiles, self.rows, self.columns, strict=True))


def _group_by_size(cut: Cut, *sides: Tensor) -> _Groups:
    """Group tiles by the logarithms of two lengths; a group is as high and wide as its largest tile."""
    first, second = ((side.double().log() / math.log(BUCKET_RATIO)).long() for side in sides)
    _, group, tiles = (first * (int(second.max()) + 1) + second).unique(
        return_inverse=True, return_counts=True
    )
    none = torch.zeros_like(tiles)
    largest = (none.scatter_reduce(0, group, lengths, "amax") for lengths in (cut.rows, cut.columns))
    return _Groups(group.argsort(stable=True), *(x.tolist() for x in (tiles, *largest)))


def _lay_out(graph: AttentionGraph, cut: Cut, groups: _Groups) -> TilePlan:
    """Assign a slot to every row and column of every tile, group by group."""
    first_row = cut.rows.cumsum(0) - cut.rows
    row, real_row = _padded(first_row, cut.rows, groups.order, groups.tiles, groups.rows)
    column, real_column = _padded(cut.first, cut.columns, groups.order, groups.tiles, groups.columns)
    received, sent = cut.receivers[row], column if cut.senders is None else cut.senders[column]
    receivers = senders = Placement.of(graph.num_dst, received, real_row)
    same = (
        graph.num_src == graph.num_dst and torch.equal(received, sent) and torch.equal(real_row, real_column)
    )
    if not same:
        senders = Placement.of(graph.num_src, sent, real_column)
    attends = _pairs(cut) if cut.senders is not None else _runs(cut, first_row)
    buckets = []
    shapes = list(zip(groups.tiles, groups.rows, groups.columns, strict=True))
    rows, columns = row.split([n * r for n, r, _ in shapes]), real_column.split([n * c for n, _, c in shapes])
    for shape, own, real in zip(shapes, rows, columns, strict=True):
        buckets.append(Bucket(*shape, **attends(own.view(shape[0], -1), real.view(shape[0], -1))))
    return TilePlan(groups.scores, graph.num_edges, buckets, receivers, senders)


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
    place = torch.arange(len(tile), device=tile.device) - before
    count = count[tile]
    return first[tile] + torch.minimum(place, count - 1), place < count


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
        place = torch.arange(real.shape[1], device=row.device)
        return {"mask": ((place >= start[row][..., None]) & (place < stop[row][..., None]))[:, None]}

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
        place = torch.arange(len(slot), device=row.device) - (count.cumsum(0) - count)[slot]
        mask = torch.zeros(len(rows), real.shape[1], dtype=torch.bool, device=row.device)
        mask[slot, column[by_receiver[first[rows][slot] + place]]] = True
        return {"mask": mask.view(len(row), 1, -1, real.shape[1])}

    return of_pairs


def score_places(graph: AttentionGraph) -> tuple[Tensor, Tensor]:
    """Where a plan computes the score of each edge, and which scores it must leave out.

    Returns
    -------
    places : Tensor
        int64 [E]: each edge's number among the scores of all tiles, bucket by bucket, row by row.
    absent : Tensor
        bool [scores]: pairs without an edge, but for those of padding rows, whose outputs nobody reads.
    """
    return graph.cached("score places", lambda: _score_places(graph, plan_tiles(graph)))


def _score_places(graph: AttentionGraph, plan: TilePlan) -> tuple[Tensor, Tensor]:
    assert plan.receivers is not None  # the graph has edges
    assert plan.senders is not None
    real = torch.zeros(len(plan.receivers.source), dtype=torch.bool, device=graph.device)
    real[plan.receivers.slots] = True
    pairs, absent = [], []
    rows, columns = plan.slots
    parts = zip(
        real.split(rows), plan.receivers.source.split(rows), plan.senders.source.split(columns), strict=True
    )
    for bucket, (is_real, receiver, sender) in zip(plan.buckets, parts, strict=True):
        shape = (bucket.num_tiles, bucket.rows, bucket.columns)
        there = is_real.view(bucket.num_tiles, -1, 1)
        connected = bucket.connected(graph.device).expand(shape) & there
        number = receiver.view(bucket.num_tiles, -1, 1) * graph.num_src + sender.view(bucket.num_tiles, 1, -1)
        pairs.append(torch.where(connected, number, -1).flatten())
        absent.append((there & ~connected).flatten())
    pair, order = torch.cat(pairs).sort()
    return order[torch.searchsorted(pair, graph.dst * graph.num_src + graph.src)], torch.cat(absent)
