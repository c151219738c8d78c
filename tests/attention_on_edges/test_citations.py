"""Links that were left out: scores against NetworkX, positions against powers, nothing hidden is seen."""

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges.runs.fitting import FitConfig
from attention_on_edges.studies import citations
from attention_on_edges.studies.citations import Links, adjacency, measure_links

ONES = [torch.tensor([[0, 1]])] * 4


def drawn(n, seed):
    graph = networkx.connected_watts_strogatz_graph(n, 4, 0.3, seed=seed)
    return graph, torch.tensor(list(graph.edges))


@given(st.integers(6, 20), st.integers(0, 99))
def test_scores_are_those_of_networkx(n, seed):
    graph, pairs = drawn(n, seed)
    a = adjacency(pairs, n)
    common, adamic = citations.common_neighbours(a), citations.adamic_adar(a)
    for u, v, expected in networkx.adamic_adar_index(graph):
        assert common[u, v] == len(list(networkx.common_neighbors(graph, u, v)))
        assert adamic[u, v] == pytest.approx(expected, rel=1e-5)
    step = a.numpy() / a.sum(1, keepdim=True).numpy()
    reach = sum(np.linalg.matrix_power(step, k) for k in range(1, 11)) / a.sum(0).numpy()
    assert np.allclose(citations.walks(a), reach, atol=1e-5)


@given(st.integers(6, 20), st.integers(0, 99))
def test_positions_are_means_over_walks(n, seed):
    _, pairs = drawn(n, seed)
    start = torch.randn(n, citations.DIM, generator=torch.Generator().manual_seed(seed))
    step = (adjacency(pairs, n) / adjacency(pairs, n).sum(1, keepdim=True)).double().numpy()
    found = citations.positions(pairs, start).chunk(len(citations.STEPS), 1)
    for steps, x in zip(citations.STEPS, found, strict=True):
        mean = np.linalg.matrix_power(step, steps) @ start.double().numpy()
        assert np.allclose(x, 8 * mean / np.linalg.norm(mean, axis=1, keepdims=True), atol=1e-4)


@pytest.mark.parametrize("linked", [True, False])
def test_nothing_that_is_hidden_is_seen(linked):
    _, pairs = drawn(30, 0)
    links, start = Links(pairs, *ONES, 30), torch.randn(30, citations.DIM)
    batches = citations.hidden(links, start, linked, 7, torch.Generator().manual_seed(0))
    for seen, _ in zip(batches, range(5), strict=False):
        edges = set(zip(seen.graph.src.tolist(), seen.graph.dst.tolist(), strict=True))
        away = {tuple(pair) for pair in seen.linked.tolist()}
        known = {tuple(pair) for pair in pairs.tolist()} - away
        assert len(away) == len(seen.others) == 7
        both = {pair for a, b in known for pair in ((a, b), (b, a))}
        assert edges == {(i, i) for i in range(30)} | (both if linked else set())
        assert torch.equal(seen.positions, citations.positions(torch.tensor(sorted(known)), start))


def test_area_counts_ties_by_half():
    assert citations.area(torch.tensor([3.0, 1.0]), torch.tensor([1.0, 0.0])) == 0.875


@pytest.mark.corpus
def test_citations_held_back_are_found_better_than_by_chance():
    links = citations.hold_out(3)
    parts = [{tuple(sorted(pair)) for pair in part.tolist()} for part in links[:5]]
    assert [len(part) for part in parts] == [4488, 263, 527, 263, 527]
    assert links.papers == 2708
    assert len(set().union(*parts)) == sum(map(len, parts))
    figures = {
        name: measure_links(name, FitConfig(30, 448, 3e-3, warmup=10, seed=3))["test"]
        for name in ("common neighbours", "random walks", "attention along citations")
    }
    assert 0.6 < figures["common neighbours"] < figures["random walks"] < 0.9
    assert figures["attention along citations"] > 0.7


@pytest.mark.corpus
def test_the_test_sees_known_links_alone():
    links = citations.hold_out(3)
    seen = citations.learned("attention along citations", FitConfig(1, 448, seed=3), links).args[0]
    edges = set(zip(seen.graph.src.tolist(), seen.graph.dst.tolist(), strict=True))
    known = {pair for a, b in links.known.tolist() for pair in ((a, b), (b, a))}
    assert edges == known | {(i, i) for i in range(links.papers)}
    start = torch.randn(links.papers, citations.DIM, generator=torch.Generator().manual_seed(3))
    assert torch.equal(seen.positions, citations.positions(links.known, start))
