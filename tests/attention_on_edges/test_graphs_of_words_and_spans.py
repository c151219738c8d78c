"""Graphs of words and of spans, and how far information travels on them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges.sparse_graphs import (
    binary_partition,
    dependency_tree,
    partition_spans,
    receptive_field,
)
from edgewise import AttentionGraph, bipartite, window
from support import trees


@given(trees())
def test_words_attend_to_themselves_their_heads_and_their_dependents(heads):
    words = range(len(heads))
    expected = [[i == j or heads[j] == i or heads[i] == j for i in words] for j in words]
    assert dependency_tree(heads).to_mask().tolist() == expected


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

    @given(st.integers(0, 24), st.integers(1, 5), st.booleans())
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

    @given(st.integers(0, 24), st.integers(1, 5), st.booleans())
    def test_joins_every_pair_of_tokens_within_two_hops(self, n, k, is_causal):
        once, twice = receptive_field(binary_partition(n, k, is_causal), 2)[1:, :n, :n]
        everyone = torch.ones(n, n, dtype=torch.bool)
        assert torch.equal(twice, everyone.tril() if is_causal else everyone)
        if n > 4 * k + 4:
            assert not torch.equal(once, twice)


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
    ("call", "message"),
    [
        (lambda: binary_partition(5, 0), r"k \(spans .* each level and side\) .* 1, got 0"),
        (lambda: dependency_tree([-1, -1]), r"one root \(-1\), got 2 roots: \[0, 1\]"),
        (lambda: dependency_tree([-1, 2, 1]), r"no path leads from the root to words \[1, 2\]"),
        (lambda: dependency_tree([-1, 2]), r"heads\[1\] must lie in 0\.\.1 or be -1"),
        (lambda: receptive_field(bipartite(2, 2), 1), "over one set of tokens"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
