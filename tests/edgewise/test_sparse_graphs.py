import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.graphs import (
    AttentionGraph,
    bigbird,
    binary_partition,
    bipartite,
    causal,
    complete,
    dependency_tree,
    dilated,
    edge_counts,
    from_runs,
    global_tokens,
    partition_spans,
    random_links,
    receptive_field,
    union,
    window,
)
from edgewise.message_passing import ENGINES
from support import check_propagation

engines = pytest.mark.parametrize("engine", ENGINES)
tokens = st.integers(0, 24)
small = st.integers(0, 6)
either = st.booleans()


@st.composite
def trees(draw, max_words=20):
    """Heads of a random tree: each word but one hangs from a word that hangs in it already."""
    order = draw(st.permutations(range(draw(st.integers(1, max_words)))))
    heads = [-1] * len(order)
    for place in range(1, len(order)):
        heads[order[place]] = order[draw(st.integers(0, place - 1))]
    return heads


CONSTRUCTORS = {
    "window": st.builds(window, tokens, small, small),
    "dilated": st.builds(dilated, tokens, small, st.integers(1, 6), either),
    "global_tokens": st.builds(global_tokens, tokens, small, either),
    "random_links": st.builds(random_links, tokens, small, st.integers(0, 9), either),
    "bigbird": st.builds(bigbird, tokens, small, small, small, st.integers(0, 9), either),
    "binary_partition": st.builds(binary_partition, tokens, st.integers(1, 5), either),
    "dependency_tree": st.builds(dependency_tree, trees()),
    "union": st.builds(
        lambda n, reach, step: union(window(n, reach, 1), dilated(n, 2, step)),
        tokens, small, st.integers(1, 6),
    ),
}  # fmt: skip


@engines
@pytest.mark.parametrize("name", CONSTRUCTORS)
@settings(max_examples=10)
@given(data=st.data())
def test_every_engine_is_dense_attention_under_the_mask(engine, name, data):
    check_propagation(data.draw(CONSTRUCTORS[name].filter(lambda g: g.num_src)), engine, 2, 3)


MANY_TILES = {
    "dilated": lambda: dilated(400, 5, 7),
    "global_tokens": lambda: global_tokens(300, 20),
    "bigbird": lambda: bigbird(400, 9, 3, 4),
    "binary_partition": lambda: binary_partition(300, 3),
    "causal binary_partition": lambda: binary_partition(257, 2, causal=True),
}


@pytest.mark.parametrize("engine", ["scatter", "tiles"])
@pytest.mark.parametrize("name", MANY_TILES)
def test_graphs_of_many_tiles_too(engine, name):
    check_propagation(MANY_TILES[name](), engine, 1, 4)


def mask_of(n, attends):
    """The mask written out pair by pair; ``attends(receiver, sender)``."""
    return torch.tensor([[attends(j, i) for i in range(n)] for j in range(n)], dtype=torch.bool).view(n, n)


class TestEdgesAreThoseOfTheDefinition:
    @given(tokens, small, st.integers(1, 6), either)
    def test_dilated(self, n, reach, step, is_causal):
        def attends(j, i):
            near = (j - i) % step == 0 and abs(j - i) <= reach * step
            return near and (i <= j or not is_causal)

        assert torch.equal(dilated(n, reach, step, is_causal).to_mask(), mask_of(n, attends))

    @given(tokens, small, either)
    def test_global_tokens(self, n, count, is_causal):
        def attends(j, i):
            return (i < count or j < count) and (i <= j or not is_causal)

        graph = global_tokens(n, count, is_causal)
        assert torch.equal(graph.to_mask(), mask_of(n, attends))
        assert not graph.has_edge_lists

    @given(trees())
    def test_dependency_tree(self, heads):
        def attends(j, i):
            return i == j or heads[j] == i or heads[i] == j

        graph = dependency_tree(heads)
        assert torch.equal(graph.to_mask(), mask_of(len(heads), attends))
        assert graph.num_edges == edge_counts.dependency_tree(len(heads))

    @given(tokens, small, small, small)
    def test_union(self, n, left, right, count):
        parts = window(n, left, 0), window(n, 0, right), global_tokens(n, count)
        expected = mask_of(n, lambda j, i: any(part.to_mask()[j, i] for part in parts))
        assert torch.equal(union(*parts).to_mask(), expected)

    @given(st.lists(st.tuples(*[st.integers(0, 7)] * 3), max_size=9))
    def test_runs(self, runs):
        expected = torch.zeros(8, 8, dtype=torch.bool)
        for receiver, start, stop in runs:
            expected[receiver, start : max(start, stop)] = True
        columns = torch.tensor(runs, dtype=torch.int64).view(-1, 3).T
        assert torch.equal(from_runs(*columns, 8).to_mask(), expected)


class TestRandomLinks:
    @given(tokens, small, st.integers(0, 9), either)
    def test_are_as_many_others_as_asked_for(self, n, per_token, seed, is_causal):
        mask = random_links(n, per_token, seed, is_causal).to_mask()
        assert not bool(mask.diagonal().any())
        if is_causal:
            assert not bool(mask.triu(1).any())
        there = torch.arange(n) if is_causal else torch.full((n,), max(n - 1, 0))
        assert torch.equal(mask.sum(1), there.clamp(max=per_token))

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

    @given(st.integers(1, 24), small, small, small, st.integers(0, 9), either)
    def test_of_bigbird_are_drawn_from_those_not_attended_to_yet(
        self, n, reach, count, links, seed, is_causal
    ):
        """Window and global tokens are as defined, and every other token draws as many more as it can."""

        def attends(j, i):
            near = abs(i - j) <= reach or i < count or j < count
            return near and (i <= j or not is_causal)

        local = mask_of(n, attends)
        mask = bigbird(n, reach, count, links, seed, is_causal).to_mask()
        assert bool(mask[local].all())
        visible = torch.arange(1, n + 1) if is_causal else torch.full((n,), n)
        if is_causal:
            assert not bool(mask.triu(1).any())
        strangers = visible - local.sum(1)
        assert torch.equal((mask & ~local).sum(1), strangers.clamp(max=links))


class TestBinaryPartition:
    @staticmethod
    def covered(n, k, token, is_causal):
        """What the rule gives, worked out with lists of spans: (level, number) of a token's senders."""
        senders = [(0, token)]
        sides = [-1] if is_causal else [-1, 1]
        for side in sides:
            level, spans = 0, list(range(token - 1, -1, -1) if side < 0 else range(token + 1, n))
            while spans:
                taken = min(k, len(spans))
                last = spans[taken - 1]
                if taken < len(spans) and last // 2 == (last + side) // 2:  # the rest is no whole span
                    taken += 1
                senders += [(level, span) for span in spans[:taken]]
                spans = list(dict.fromkeys(span // 2 for span in spans[taken:]))
                level += 1
        return senders

    @given(tokens, st.integers(1, 5), either)
    def test_follows_the_rule(self, n, k, is_causal):
        names = [(0, token) for token in range(n)]
        level, count = 1, n
        while count > 1:
            count = -(-count // 2)
            names += [(level, span) for span in range(count)]
            level += 1
        graph = binary_partition(n, k, is_causal)
        assert graph.num_src == len(names)
        start, stop = partition_spans(n)
        for s, (level, span) in enumerate(names[n:]):
            assert (int(start[s]), int(stop[s])) == (span * 2**level, min((span + 1) * 2**level, n))
        numbers = {name: number for number, name in enumerate(names)}
        expected = torch.zeros(len(names), len(names), dtype=torch.bool)
        for token in range(n):
            expected[token, [numbers[name] for name in self.covered(n, k, token, is_causal)]] = True
        for s in range(len(start)):
            expected[n + s, int(start[s]) : int(stop[s])] = True
        assert torch.equal(graph.to_mask(), expected)

    @given(tokens, st.integers(1, 5), either)
    def test_joins_every_pair_of_tokens_within_two_hops(self, n, k, is_causal):
        once, twice = receptive_field(binary_partition(n, k, is_causal), 2)[1:, :n, :n]
        everyone = torch.ones(n, n, dtype=torch.bool)
        assert torch.equal(twice, everyone.tril() if is_causal else everyone)
        if n > 4 * k + 4:
            assert not torch.equal(once, twice)

    @given(tokens, st.integers(1, 5))
    def test_no_path_leads_back_from_a_later_token(self, n, k):
        assert not bool(receptive_field(binary_partition(n, k, causal=True), 8)[-1, :n, :n].triu(1).any())

    @given(st.integers(2, 24), st.integers(1, 4), either)
    def test_every_token_is_covered_once(self, n, k, is_causal):
        """A token's senders, spans expanded, are its side of the sequence without gap or overlap."""
        graph, (start, stop) = binary_partition(n, k, is_causal), partition_spans(n)
        inside = torch.cat([torch.eye(n), mask_of_runs(start, stop, n)])
        times = graph.to_mask()[:n].float() @ inside
        assert torch.equal(times, torch.ones(n, n).tril() if is_causal else torch.ones(n, n))

    @pytest.mark.parametrize("k", [1, 4, 16])
    def test_edges_grow_as_n_log_n(self, k):
        for n in (2**10, 2**14, 3 * 2**12 + 5, 2**17):
            edges, levels = edge_counts.binary_partition(n, k), math.ceil(math.log2(n))
            assert edges <= n * (1 + levels + 2 * (k + 1) * levels)
        assert binary_partition(2**12, k).num_edges == edge_counts.binary_partition(2**12, k)


def mask_of_runs(start, stop, n):
    place = torch.arange(n)
    return ((place >= start[:, None]) & (place < stop[:, None])).float()


class TestCounts:
    """Constructors have as many edges as their closed forms say."""

    @given(tokens, small, small)
    def test_window(self, n, left, right):
        assert edge_counts.window(n, left, right) == window(n, left, right).num_edges

    @given(tokens, small, st.integers(1, 6), either)
    def test_dilated_and_links(self, n, reach, step, is_causal):
        arguments = n, reach, step, is_causal
        assert edge_counts.dilated(*arguments) == dilated(*arguments).num_edges
        assert (
            edge_counts.random_links(n, reach, is_causal) == random_links(n, reach, step, is_causal).num_edges
        )
        assert edge_counts.global_tokens(n, reach, is_causal) == global_tokens(n, reach, is_causal).num_edges

    @given(tokens, small, small, small, st.integers(0, 9), either)
    def test_bigbird(self, n, reach, count, links, seed, is_causal):
        edges = edge_counts.bigbird(n, reach, count, links, is_causal)
        assert edges == bigbird(n, reach, count, links, seed, is_causal).num_edges
        m = n - count
        if m >= 2 * reach + 1 + links and not is_causal:  # the docstring's formula
            inner = m * (2 * reach + 1 + links) - reach * (reach + 1)
            assert edges == inner + 2 * count * n - count**2

    @given(st.integers(0, 70), st.integers(1, 9), either)
    def test_binary_partition(self, n, k, is_causal):
        assert edge_counts.binary_partition(n, k, is_causal) == binary_partition(n, k, is_causal).num_edges


@given(tokens, small)
def test_a_window_wider_than_the_sequence_is_complete(n, more):
    reach = n + more
    everyone = complete(n).to_mask()
    assert torch.equal(window(n, reach, reach).to_mask(), everyone)
    assert torch.equal(dilated(n, reach, 1).to_mask(), everyone)
    assert torch.equal(window(n, 10**12, 0).to_mask(), causal(n).to_mask())


class TestReach:
    def test_a_receptive_field_includes_the_token_without_a_self_loop(self):
        graph = AttentionGraph(torch.tensor([0, 1]), torch.tensor([1, 2]), 3)
        after = receptive_field(graph, 2)
        assert torch.equal(after[1], torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 1]]).bool())
        assert torch.equal(after[2], torch.ones(3, 3).tril().bool())

    @given(st.integers(1, 20), st.integers(1, 4), st.integers(0, 5))
    def test_a_window_reaches_one_reach_farther_per_layer(self, n, reach, layers):
        for count, field in enumerate(receptive_field(window(n, reach, reach), layers)):
            assert torch.equal(field, window(n, count * reach, count * reach).to_mask())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: window(5, -1, 0),
            ValueError,
            r"left \(tokens attended to before .*\) must be at least 0, got -1",
        ),
        (
            lambda: window(5, 0, -2),
            ValueError,
            r"right \(tokens attended to after .*\) must be at least 0, got -2",
        ),
        (
            lambda: dilated(5, -1, 1),
            ValueError,
            r"reach \(tokens attended to on each side\) must be at least 0",
        ),
        (lambda: dilated(5, 1, 0), ValueError, r"step \(distance between .*\) must be at least 1, got 0"),
        (lambda: dilated(-5, 1, 1), ValueError, r"n \(tokens\) must be at least 0, got -5"),
        (lambda: global_tokens(5, -1), ValueError, r"count \(global tokens\) must be at least 0, got -1"),
        (lambda: random_links(5, -1), ValueError, r"per_token \(random tokens .*\) must be at least 0"),
        (lambda: random_links(5, 1, besides=complete(4)), ValueError, "graph over the same 5 tokens"),
        (lambda: random_links(5, 1, besides=bipartite(5, 5)), ValueError, "graph over the same 5 tokens"),
        (
            lambda: bigbird(5, -1, 1, 1),
            ValueError,
            r"reach \(tokens attended to on each side\) must be at least 0",
        ),
        (lambda: bigbird(5, 1, 1, 1.5), TypeError, r"num_random \(.*\) must be an integer, got 1.5"),
        (lambda: bigbird(5, 1, -1, 1), ValueError, r"num_global \(global tokens\) must be at least 0"),
        (lambda: binary_partition(5, 0), ValueError, r"k \(spans .* each level and side\) .* 1, got 0"),
        (lambda: binary_partition(5, True), TypeError, r"k \(spans .*\) must be an integer, got True"),
        (lambda: binary_partition(-1, 2), ValueError, r"n \(tokens\) must be at least 0, got -1"),
        (lambda: dependency_tree([1, 0]), ValueError, r"tree with one root \(-1\), got 0 roots: \[\]"),
        (lambda: dependency_tree([-1, -1]), ValueError, r"one root \(-1\), got 2 roots: \[0, 1\]"),
        (lambda: dependency_tree([-1, 2, 1]), ValueError, r"no path leads from the root to words \[1, 2\]"),
        (lambda: dependency_tree([-1, 1]), ValueError, r"no path leads from the root to words \[1\]"),
        (
            lambda: dependency_tree([-1, 2]),
            ValueError,
            r"heads\[1\], the place .* in 0\.\.1 or be -1",
        ),
        (lambda: dependency_tree([-2]), ValueError, r"heads\[0\].* must lie in 0\.\.0 or be -1.*, got -2"),
        (lambda: dependency_tree([0.5]), TypeError, r"heads\[0\] must be an integer, got 0.5"),
        (lambda: union(), ValueError, "at least one graph, got none"),
        (lambda: union(complete(2), 3), TypeError, "union takes graphs, got int"),
        (lambda: union(complete(2), complete(3)), ValueError, "over the same tokens"),
        (lambda: union(bipartite(2, 2)), ValueError, "self-attention over the same tokens"),
        (lambda: receptive_field(bipartite(2, 2), 1), ValueError, "over one set of tokens"),
        (lambda: receptive_field(complete(2), -1), ValueError, "layers must be at least 0, got -1"),
    ],
)
def test_bad_input_is_refused_with_the_meaning_of_the_argument(call, error, message):
    with pytest.raises(error, match=message):
        call()
