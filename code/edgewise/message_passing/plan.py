"""Tile plans: made once per graph, used by every layer and every pass."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

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

    def parts(self) -> Iterator[tuple[Bucket, slice, slice]]:
        """Each bucket, with the slots of its receivers and those of its senders."""
        row = column = 0
        for bucket in self.buckets:
            rows, columns = bucket.num_tiles * bucket.rows, bucket.num_tiles * bucket.columns
            yield bucket, slice(row, row + rows), slice(column, column + columns)
            row, column = row + rows, column + columns

    @property
    def economical(self) -> bool:
        """Whether the plan stays within ``MOST_WASTE`` scores per edge."""
        return self.scores <= MOST_WASTE * self.edges

    @property
    def affordable(self) -> bool:
        """Whether the plan is economical or stays within ``ALWAYS_AFFORDABLE`` scores in all."""
        return self.economical or self.scores <= ALWAYS_AFFORDABLE


def plan_tiles(graph: AttentionGraph) -> TilePlan:
    """Return the graph's plan; made on first use and cached on the graph."""
    return graph.cached("tiles", lambda: _plan(graph))


def _plan(graph: AttentionGraph) -> TilePlan:
    if graph.num_edges == 0:
        return TilePlan(0, 0, [])
    cut = cut_graph(graph)
    longer = torch.maximum(cut.rows, cut.columns)
    for sides in (longer, longer), (cut.rows, cut.columns):
        groups = _group_by_size(*sides)
        shapes = [(int(cut.rows[tiles].max()), int(cut.columns[tiles].max())) for tiles in groups]
        scores = sum(len(tiles) * r * c for tiles, (r, c) in zip(groups, shapes, strict=True))
        plan = TilePlan(scores, graph.num_edges, [])
        if plan.economical:
            break
    return _lay_out(graph, cut, groups, shapes, scores) if plan.affordable else plan


def _group_by_size(*sides: Tensor) -> list[Tensor]:
    """Tiles of similar size, by the logarithms of two lengths."""
    first, second = ((side.double().log() / math.log(BUCKET_RATIO)).long() for side in sides)
    group = first * (int(second.max()) + 1) + second
    return [(group == g).nonzero().squeeze(1) for g in group.unique().tolist()]


def _lay_out(
    graph: AttentionGraph, cut: Cut, groups: list[Tensor], shapes: list[tuple[int, int]], scores: int
) -> TilePlan:
    """Assign a slot to every row and column of every tile, bucket by bucket."""
    first_row = cut.rows.cumsum(0) - cut.rows
    buckets: list[Bucket] = []
    sources: tuple[list[Tensor], list[Tensor]] = ([], [])
    reals: tuple[list[Tensor], list[Tensor]] = ([], [])
    for tiles, (height, width) in zip(groups, shapes, strict=True):
        row, real_row = _padded(first_row[tiles], cut.rows[tiles], height)
        column, real_column = _padded(cut.first[tiles], cut.columns[tiles], width)
        if cut.senders is None:
            buckets.append(_bucket_of_runs(cut, row, real_row, real_column))
        else:
            buckets.append(_bucket_of_pairs(cut, row, real_row, width))
            column = cut.senders[column]
        for side, source, real in ((0, cut.receivers[row], real_row), (1, column, real_column)):
            sources[side].append(source.flatten())
            reals[side].append(real.flatten())
    receivers, senders = (
        Placement.of(count, torch.cat(sources[side]), torch.cat(reals[side]))
        for side, count in ((0, graph.num_dst), (1, graph.num_src))
    )
    return TilePlan(scores, graph.num_edges, buckets, receivers, senders)


def _padded(first: Tensor, count: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Runs ``first .. first + count - 1`` as rows of ``width``, the last element repeated as padding."""
    place = torch.arange(width, device=first.device)
    index = first[:, None] + torch.minimum(place, count[:, None] - 1)
    return index, place < count[:, None]


def _bucket_of_runs(cut: Cut, row: Tensor, real_row: Tensor, real_column: Tensor) -> Bucket:
    """The bucket if each row attends to a run of columns: unmasked, causal or masked."""
    (num_tiles, height), width = row.shape, real_column.shape[1]
    start, stop = (x[row] for x in cut.attended)  # [tiles, height]
    place = torch.arange(width, device=row.device)
    from_first = not bool(start.any())
    if from_first and torch.equal(stop, real_column.sum(1, keepdim=True).expand_as(stop)):
        if bool(real_column.all()):
            return Bucket(num_tiles, height, width)
        return Bucket(num_tiles, height, width, real_column[:, None, None])
    if from_first and height == width and bool((stop == place + 1)[real_row].all()):
        return Bucket(num_tiles, height, width, is_causal=True)
    mask = (place >= start[..., None]) & (place < stop[..., None])
    return Bucket(num_tiles, height, width, mask[:, None])


def _bucket_of_pairs(cut: Cut, row: Tensor, real_row: Tensor, width: int) -> Bucket:
    """The bucket of single pairs, all others masked; padding repeats the row before it."""
    slot_of = torch.full((len(cut.receivers),), -1, dtype=torch.int64, device=row.device)
    slot_of[row[real_row]] = real_row.flatten().nonzero().squeeze(1)
    slot, column = slot_of[cut.attended[0]], cut.attended[1]
    mask = torch.zeros(row.numel(), width, dtype=torch.bool, device=row.device)
    mask[slot[slot >= 0], column[slot >= 0]] = True
    mask = mask[slot_of[row.flatten()]]
    return Bucket(row.shape[0], row.shape[1], width, mask.view(len(row), 1, -1, width))


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
    for bucket, rows, columns in plan.parts():
        shape = (bucket.num_tiles, bucket.rows, bucket.columns)
        is_real = real[rows].view(bucket.num_tiles, -1, 1)
        receiver = plan.receivers.source[rows].view(bucket.num_tiles, -1, 1)
        sender = plan.senders.source[columns].view(bucket.num_tiles, 1, -1)
        connected = bucket.connected(graph.device).expand(shape) & is_real
        pairs.append(torch.where(connected, receiver * graph.num_src + sender, -1).flatten())
        absent.append((is_real & ~connected).flatten())
    pair, order = torch.cat(pairs).sort()
    return order[torch.searchsorted(pair, graph.dst * graph.num_src + graph.src)], torch.cat(absent)
