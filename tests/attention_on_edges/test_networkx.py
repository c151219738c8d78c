"""Attention graphs to and from NetworkX, which the library itself does not need."""

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgewise.graphs import AttentionGraph, causal
from support import edge_graphs, interval_graphs


@given(st.one_of(edge_graphs(), interval_graphs()))
def test_the_drawn_graph_has_the_same_edges(graph):
    drawn = graph.to_networkx()
    assert len(drawn) == graph.num_src + (0 if graph.self_attention else graph.num_dst)
    named = drawn.edges if graph.self_attention else [(i[1], j[1]) for i, j in drawn.edges]
    assert sorted(named) == sorted(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))


def test_half_complete_graph_is_a_total_order_with_self_loops():
    drawn = causal(6).to_networkx()
    drawn.remove_edges_from(nx.selfloop_edges(drawn))
    assert list(nx.topological_sort(drawn)) == list(range(6))


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph])
def test_neighbours_attend_to_each_other(kind, self_loops):
    friends = kind([("ann", "bob"), ("bob", "cem"), ("cem", "cem")])
    friends.add_node("dot")
    mask = AttentionGraph.from_networkx(friends, self_loops).to_mask()
    expected = torch.from_numpy(nx.to_numpy_array(friends)).bool().T  # networkx: rows send, columns receive
    assert torch.equal(mask, expected | torch.eye(4, dtype=torch.bool) if self_loops else expected)
