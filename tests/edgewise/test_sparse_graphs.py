"""Sparse graphs: their edges and counts against definitions written out, and attention on them."""

import itertools
import math
import sys

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from edgewise import AttentionGraph, batch, bipartite, complete, graphs, window
from edgewise.graphs import from_runs, random_links
from support import edge_graphs, edges, interval_graphs, refusals, sizes

tokens, small, steps, seeds = st.integers(0, 24), st.integers(0, 6), st.integers(1, 6), st.integers(0, 9)
either = st.booleans()


@given(tokens, small, steps, either)
def test_dilated_windows_and_global_tokens_are_their_definitions(n, count, step, is_causal):
    j, i = torch.arange(n)[:, None], torch.arange(n)
    near = ((j - i) % step == 0) & ((j - i).abs() <= count * step)
    for graph, mask in (
        (graphs.dilated(n, count, step, is_causal), near),
        (graphs.global_tokens(n, count, is_causal), torch.minimum(i, j) < count),
    ):
        assert torch.equal(graph.to_mask(), mask.tril() if is_causal else mask)


def one_or_each(least, count):
    """A number for all or a list of one for each, and such a list of the same."""
    number = st.integers(least, 4)
    lists = st.lists(number, min_size=count, max_size=count)
    return st.one_of(number.map(lambda x: (x, [x] * count)), lists.map(lambda x: (x, x)))


@given(sizes, st.data(), either)
def test_each_sequence_has_numbers_of_its_own(lengths, data, is_causal):
    for make, least in ((graphs.dilated, [0, 1]), (graphs.global_tokens, [0])):
        given, own = zip(*(data.draw(one_or_each(x, len(lengths))) for x in least), strict=True)
        found = make(torch.tensor(lengths), *given, is_causal)
        assert found.same_edges(batch([make(*x, is_causal) for x in zip(lengths, *own, strict=True)]))
        assert (found.intervals is None) == (make is graphs.dilated)


@given(st.lists(st.integers(0, 4), max_size=3), st.data())
def test_grids(shape, data):
    (radius, radii), (block, blocks) = (data.draw(one_or_each(least, len(shape))) for least in (0, 1))
    shifts = [data.draw(st.integers(0, b - 1)) for b in blocks]
    places = list(itertools.product(*map(range, shape)))

    def pairs(near, *each):
        return [[all(map(near, p, q, *each)) for q in places] for p in places]

    boxes = pairs(lambda x, y, r: abs(x - y) <= r, radii)
    tiles = pairs(lambda x, y, b, s: (x - s) // b == (y - s) // b, blocks, shifts)
    assert graphs.grid_window(shape, radius).to_mask().tolist() == boxes
    assert graphs.grid_blocks(shape, block, shifts).to_mask().tolist() == tiles


def test_shifted_blocks_are_those_of_swin():
    """Its code: windows of a rolled image, in which pairs of different regions are masked."""
    h, w, size, shift = 6, 9, 3, 1
    bands = [sum((torch.arange(n) >= n - cut).int() for cut in (size, shift)) for n in (h, w)]
    image = torch.arange(h * w).view(h, w).roll((-shift, -shift), (0, 1))
    images = (x.view(h // size, size, w // size, size) for x in (image, 3 * bands[0][:, None] + bands[1]))
    token, region = (x.transpose(1, 2).reshape(-1, size**2) for x in images)
    expected = torch.zeros(h * w, h * w, dtype=torch.bool)
    expected[token[:, :, None], token[:, None]] = region[:, :, None] == region[:, None]
    assert torch.equal(graphs.grid_blocks((h, w), size, shift).to_mask(), expected)


@example(graphs.causal(2).without_self_loops().reverse(), window(3, 0, 1))
@given(*[st.one_of(edge_graphs(max_tokens=4), interval_graphs())] * 2)
def test_the_mask_of_a_product_is_the_kronecker_product(outer, inner):
    graph, masks = graphs.product(outer, inner), (outer.to_mask(), inner.to_mask())
    assert torch.equal(graph.to_mask(), torch.kron(*(mask.byte() for mask in masks)).bool())
    assert graph.self_attention == (outer.self_attention and inner.self_attention)
    compact = bool((masks[0].sum(1) <= 1).all()) or bool(masks[1].all())
    assert (graph.intervals is not None) == bool(compact and outer.intervals and inner.intervals)
    if graph.intervals:
        AttentionGraph.from_intervals(*graph.intervals, graph.num_src, self_attention=graph.self_attention)


@given(sizes, small, st.sampled_from([0, 1, 1.5, 2]), st.randoms())
def test_points_attend_to_those_near_them(clouds, k, radius, rng):
    """On a lattice, where many are in one place or equally far."""
    points = torch.tensor([[rng.randint(-1, 1) for _ in range(2)] for _ in range(sum(clouds))])
    others = (complete(clouds) - window(clouds, 0, 0)).to_mask()
    far = (points[:, None] - points).square().sum(-1).masked_fill(~others, 99)
    near = graphs.nearest(points.half(), k, clouds).to_mask()
    around = graphs.within(points.half(), radius, torch.tensor(clouds)).to_mask()
    assert torch.equal(around, far <= radius**2)
    for row, chosen, possible in zip(far, near, others, strict=True):
        assert sorted(row[chosen].tolist()) == sorted(row[possible].tolist())[:k]


def test_without_scipy_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.spatial", None)
    with pytest.raises(ImportError, match="pip install scipy"):
        graphs.nearest(torch.eye(3), 1)


@given(st.lists(st.tuples(*[st.integers(0, 7)] * 3), max_size=9))
def test_runs(runs):
    expected = torch.zeros(8, 8, dtype=torch.bool)
    for receiver, start, stop in runs:
        expected[receiver, start : max(start, stop)] = True
    columns = torch.tensor(runs, dtype=torch.int64).view(-1, 3).T
    assert torch.equal(from_runs(*columns, 8).to_mask(), expected)


class TestRandomLinks:
    @given(st.integers(1, 24), small, small, small, seeds, either)
    def test_are_drawn_from_those_not_attended_to_yet(self, n, reach, count, links, seed, is_causal):
        """Of BigBird, and alone: every token draws as many more as it can, none later if causal."""
        j, i = torch.arange(n)[:, None], torch.arange(n)
        near = ((i - j).abs() <= reach) | (torch.minimum(i, j) < count)
        visible = torch.arange(1, n + 1) if is_causal else torch.full((n,), n)
        graph = graphs.bigbird(n, reach, count, links, seed, is_causal)
        alone = random_links(n, links, seed, is_causal)
        ahead, itself = window(n, 0, reach), torch.eye(n, dtype=torch.bool)
        twice = AttentionGraph(ahead.src.repeat(2), ahead.dst.repeat(2), n)
        more = random_links(n, links, seed, is_causal, twice).to_mask()
        for mask, local in (
            (graph.to_mask(), near.tril() if is_causal else near),
            (alone.to_mask() | itself, itself),
            (more | ahead.to_mask(), ahead.to_mask()),
        ):
            assert bool(mask[local].all())
            drawn, seen = mask & ~local, local.tril() if is_causal else local
            assert not is_causal or not bool(drawn.triu(1).any())
            assert torch.equal(drawn.sum(1), (visible - seen.sum(1)).clamp(max=links))
        assert not bool(alone.to_mask().diagonal().any())

    @given(sizes, small, st.data(), seeds, either)
    def test_are_drawn_within_each_sequence(self, lengths, reach, data, seed, is_causal):
        given, own = zip(*(data.draw(one_or_each(0, len(lengths))) for _ in range(2)), strict=True)
        graph = graphs.bigbird(torch.tensor(lengths), reach, *given, seed, is_causal)
        assert graph.num_edges == (graph & complete(lengths)).num_edges
        for n, end, *counts in zip(lengths, itertools.accumulate(lengths), *own, strict=True):
            part = graph.subgraph(*[slice(end - n, end)] * 2)
            assert part.num_edges == graphs.bigbird(n, reach, *counts, causal=is_causal).num_edges
        elsewhere = complete(sum(lengths)) - complete(lengths)
        assert random_links(lengths, 2**70, besides=elsewhere).same_edges(complete(lengths))

    def test_every_set_of_tokens_is_as_likely(self):
        """Chi-square over the ten pairs that a token may draw from five others."""
        drawn = {}
        for seed in range(250):
            mask = random_links(6, 2, seed).to_mask()
            for receiver, row in enumerate(mask):
                others = torch.cat([row[:receiver], row[receiver + 1 :]])
                key = tuple(others.nonzero().flatten().tolist())
                drawn[key] = drawn.get(key, 0) + 1
        assert len(drawn) == math.comb(5, 2)
        expected = 250 * 6 / 10
        assert sum((count - expected) ** 2 / expected for count in drawn.values()) < 27.9  # p = 0.001

    def test_depend_on_nothing_but_the_seed(self):
        first, other = random_links(50, 3, seed=1), random_links(50, 3, seed=2)
        torch.manual_seed(7)
        assert torch.equal(first.to_mask(), random_links(50, 3, seed=1).to_mask())
        assert not torch.equal(first.to_mask(), other.to_mask())


class TestReordering:
    @given(edge_graphs(multi=True).filter(lambda graph: graph.self_attention), st.booleans(), st.randoms())
    def test_edges_keep_their_order_and_tokens_get_new_numbers(self, graph, given_, rng):
        order = torch.tensor(rng.sample(range(graph.num_src), graph.num_src), dtype=torch.int64)
        there, order = graph.reorder(order if given_ else None)
        place = order.argsort().tolist()
        assert edges(there) == [(place[i], place[j]) for i, j in edges(graph)]

    def test_neighbours_come_near_each_other(self):
        shuffled, _ = window(500, 3, 3).reorder(torch.randperm(500))
        found, _ = shuffled.reorder()
        assert int((found.src - found.dst).abs().max()) <= 6 < int((shuffled.src - shuffled.dst).abs().max())


test_bad_input = refusals(
    (lambda: graphs.dilated(5, 1, 0), r"step \(distance between .*\) must be at least 1, got 0"),
    (lambda: from_runs(*torch.tensor([[3], [0], [1]]), 3), r"receiver must lie in 0\.\.2, got 3"),
    (lambda: from_runs(*torch.tensor([[1], [-1], [1]]), 3), r"start must lie in 0\.\.2, got -1"),
    (lambda: from_runs(*torch.tensor([[1], [2], [4]]), 3), r"stop must lie in 0\.\.3, got 4"),
    (lambda: from_runs(torch.tensor([0, 1]), *torch.tensor([[0], [1]]), 3), "as long as the others"),
    (lambda: random_links(5, 1, besides=complete(4)), "graph over the same 5 tokens"),
    (lambda: graphs.global_tokens([2, 3], [1] * 3), r"one per sequence \(2\), got 3 numbers"),
    (lambda: graphs.grid_window((2, 3), [1] * 3), r"radius must be .* one per axis \(2\), got 3 numbers"),
    (lambda: graphs.grid_blocks(4, 0), "block must be at least 1, got 0"),
    (lambda: graphs.grid_blocks((4, 4), 2, (0, 2)), r"less than block .* \[0, 2\] and \[2, 2\]"),
    (lambda: graphs.nearest(torch.zeros(3, 2), -1), r"k \(points .* must be at least 0, got -1"),
    (lambda: graphs.nearest(torch.zeros(3, 2), 1, [2]), "sizes must sum to the 3 points, got 2"),
    (lambda: graphs.nearest(torch.zeros(3), 1), r"points must be \[n, dim\] and finite, got \[3\]"),
    (lambda: graphs.within(torch.tensor([[math.nan, 1]]), 1), r"got \[1, 2\] with \[nan\]"),
    (lambda: graphs.within(torch.zeros(3, 2), -1.0), r"radius must be at least 0, got -1\.0"),
    (lambda: complete(2) | complete(3), "over the same tokens"),
    (lambda: complete(3).reorder(torch.tensor([0, 2, 2])), r"order must be a permutation of 0\.\.2"),
    (lambda: complete(3).reorder(torch.tensor([0, 3, 1])), r"order must lie in 0\.\.2, got 3"),
    (lambda: bipartite(2, 2).reorder(), "the same tokens"),
)
