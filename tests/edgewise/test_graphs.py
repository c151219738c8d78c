"""Constructors, combinators and conversions of graphs against pairs written out."""

import copy
import pickle
from unittest import mock

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from edgewise import GraphAttention, choice, prepare
from edgewise import graphs as makers
from edgewise.graphs import AttentionGraph, batch, bipartite, causal, complete, dgl_import, window
from edgewise.graphs.dgl_import import dgl_available
from edgewise.graphs.ordering import stable_order
from edgewise.graphs.per_graph import per_graph
from edgewise.propagation import ENGINES, plan_tiles
from support import any_graphs, edges, multigraphs, refusals, sizes

counts, reach, tokens = st.integers(0, 8), st.integers(0, 4), st.integers(1, 6)
long = torch.tensor
TWICE = AttentionGraph(long([1, 0, 1]), long([2, 0, 2]), 3)


def sides(graph):
    return graph.num_src, graph.num_dst, graph.self_attention


@given(counts, counts, reach, reach)
def test_constructors_are_their_pairs_ordered_by_source(n, m, left, right):
    ends = np.int64(left), torch.tensor(right)
    pairs = [(i, j) for i in range(n) for j in range(n)]
    for graph, expected in (
        (complete(np.int64(n)), pairs),
        (causal(torch.tensor(n)), [(i, j) for i, j in pairs if i <= j]),
        (window(n, *ends), [(i, j) for i, j in pairs if -right <= j - i <= left]),
        (window(n, 2**70, 2**63 - 1), pairs),
        (bipartite(n, m), [(i, j) for i in range(n) for j in range(m)]),
    ):
        assert edges(graph) == expected
        assert graph.num_edges == len(expected)
    assert sides(bipartite(n, m)) == (n, m, False)


def test_counts_are_integers_of_the_graphs_own():
    offsets, none = torch.tensor([0, 3, 7]), torch.empty(0, dtype=torch.int64)
    ends = torch.tensor([5, 5])
    graphs = [
        AttentionGraph(none, none, np.int32(5), np.int32(6)),
        AttentionGraph.from_intervals(none, none, np.int32(5), self_attention=False),
        AttentionGraph.from_edge_index(ends.new_empty(2, 0), ends[0]),
        AttentionGraph.from_cu_seqlens(offsets, num_tokens=offsets[-1]),
    ]
    assert {type(n) for graph in graphs for n in (graph.num_src, graph.num_dst)} == {int}


def test_graphs_are_made_where_their_tensors_are_whatever_the_default_device():
    with torch.device("meta"):
        links, near = makers.random_links(5, 2), makers.nearest(torch.eye(4, device="cpu"), 1)
    assert (links.num_edges, near.num_edges) == (10, 4)


@given(sizes)
def test_several_sizes_are_a_batch(lengths):
    for make in (complete, causal, lambda n: window(n, 1, 2)):
        assert make(lengths) == batch([make(n) for n in lengths]) == make(np.array(lengths))
    pairs = zip(lengths, lengths[::-1], strict=True)
    assert bipartite(lengths, lengths[::-1]) == batch([bipartite(*pair) for pair in pairs])
    for graph in (window(lengths, 1, 2).reverse(), causal(lengths).to_undirected()):
        assert graph.intervals is not None


@given(st.lists(multigraphs, min_size=1, max_size=4))
def test_a_batch_keeps_every_edge(graphs):
    expected, src, dst, same = [], 0, 0, graphs[0].self_attention
    graphs = [graph for graph in graphs if graph.self_attention == same]
    for graph in graphs:
        expected += [(i + src, j + dst) for i, j in edges(graph)]
        src, dst = src + graph.num_src, dst + graph.num_dst
    whole = batch(graphs)
    assert edges(whole) == (sorted(expected) if whole.intervals else expected)
    assert sides(whole) == (src, dst, same)


@settings(max_examples=100)
@given(multigraphs, st.data())
def test_parts_of_a_graph_are_parts_of_its_edges(graph, data):
    """In its order; those of a graph in intervals by sender, as ever."""
    pairs, n, m = edges(graph), graph.num_src, graph.num_dst
    active = data.draw(st.lists(st.booleans(), min_size=m, max_size=m))
    kept = graph.restrict(np.array(active, dtype=bool))
    assert edges(kept) == [(i, j) for i, j in pairs if active[j]]
    assert sides(kept) == sides(graph)
    rows = data.draw(st.lists(st.sampled_from(range(m)), max_size=6)) if m else []
    part = graph.select_receivers(long(rows, dtype=torch.int64))
    expected = [(i, k) for i, j in pairs for k, row in enumerate(rows) if j == row]
    assert edges(part) == (sorted(expected) if graph.intervals else expected)
    assert (part.num_edges, sides(part)) == (len(expected), (n, len(rows), False))
    (a, b), (c, d) = (data.draw(st.tuples(*[st.integers(0, k)] * 2)) for k in (n, m))
    part = graph.subgraph(slice(a, b), slice(c, d))
    expected = [(i - a, j - c) for i, j in pairs if a <= i < b and c <= j < d]
    assert (part.num_edges, edges(part)) == (len(expected), expected)
    same = graph.self_attention and (a, max(a, b)) == (c, max(c, d))
    assert sides(part) == (max(b - a, 0), max(d - c, 0), same)


def graphs_over(n, m):
    """Graphs over given tokens, held as edges, some of them twice, or as intervals."""
    rows = n if m is None else m
    pairs = st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, rows - 1)))
    ends = st.lists(st.tuples(*[st.integers(0, n)] * 2), min_size=rows, max_size=rows)
    return st.one_of(
        pairs.map(lambda x: AttentionGraph(*long(x, dtype=torch.int64).view(-1, 2).T, n, m)),
        ends.map(lambda x: from_intervals(*zip(*map(sorted, x), strict=True), n, m is None)),
    )


two_graphs = st.tuples(tokens, st.none() | tokens).flatmap(lambda x: st.tuples(*[graphs_over(*x)] * 2))


def assert_holds(graph, pairs, as_intervals):
    """These edges, held as intervals if that is said and possible."""
    assert edges(graph) == pairs
    rows = [sorted(i for i, j in pairs if j == row) for row in range(graph.num_dst)]
    possible = all(row[-1] - row[0] + 1 == len(row) for row in rows if row)
    assert (graph.intervals is not None) == (as_intervals and possible)


@settings(max_examples=300)
@given(two_graphs)
def test_operators_are_those_of_sets_of_pairs(two):
    a, b = two
    given, others, runs = edges(a), edges(b), bool(a.intervals)
    both, one = runs and bool(b.intervals), set(given)
    for found, expected in ((a - b, one - {*others}), (a & b, one & {*others}), (a | b, one | {*others})):
        assert_holds(found, sorted(expected), both)
    assert a.same_edges(b) == (given == others)
    assert a.same_edges(AttentionGraph(a.src, a.dst, a.num_src, a.num_dst)) != a.self_attention
    assert not a.same_edges(batch([a, a]))
    turned, flipped = a.reverse(), [(j, i) for i, j in given]
    assert edges(turned) == (flipped if turned.intervals is None else sorted(flipped))
    assert sides(turned) == (a.num_dst, a.num_src, a.self_attention)
    if a.self_attention:
        loops = [(i, i) for i in range(a.num_src)]
        more, apart = given + [x for x in loops if x not in given], [(i, j) for i, j in given if i != j]
        assert_holds(a.with_self_loops(), sorted(more) if runs else more, runs)
        assert_holds(a.without_self_loops(), apart, runs)
        assert edges(a.to_undirected()) == sorted(one | {*flipped})


def test_edges_are_derived_when_someone_asks():
    graph = complete(100_000)
    assert graph.num_edges == 10**10
    assert "_edges_of_intervals" not in graph._known


WAYS = {
    "in place": lambda x: x,
    "data": lambda x: x.data,
    "a view": lambda x: x.view(-1)[:1],
    "numpy": lambda x: torch.from_numpy(x.numpy()),
    "dlpack": torch.from_dlpack,
    "storage": lambda x: x.new_empty(0).set_(x.untyped_storage(), 0, x.shape),
    "resize": lambda x: x.resize_(x.numel() + 1),
}
STATES = {
    "new": None,
    "used": lambda x: x,
    "copied": copy.copy,
    "travelled": lambda x: pickle.loads(pickle.dumps(x)),
}


@settings(max_examples=60)
@given(any_graphs, st.sampled_from([*STATES]), st.sampled_from([*WAYS]), st.integers(0, 3))
def test_nothing_that_is_written_into_what_a_graph_hands_out_changes_it(graph, state, way, number):
    """Some ways are not seen by versions of tensors."""
    layer, x = GraphAttention(4, 2), torch.randn(graph.num_src, 4)
    given_to = (x,) if graph.self_attention else (torch.randn(graph.num_dst, 4), x)
    other = AttentionGraph(graph.src, graph.dst, graph.num_src, None if len(given_to) == 1 else graph.num_dst)
    if state != "new":
        layer(graph, *given_to)
        graph = STATES[state](graph)
    handed = [graph.src, graph.dst, graph.edge_index, graph.to_mask(), graph.reverse().src]
    handed += graph.intervals or ()
    handed += [graph.reorder(torch.arange(graph.num_src))[1]] if graph.self_attention else []
    for each in handed:
        if each.numel():
            WAYS[way](each).fill_(number)
    assert edges(graph) == edges(other)
    for layer.engine in ("auto", "scatter", "csr"):
        torch.testing.assert_close(layer(graph, *given_to), layer(other, *given_to), atol=1e-5, rtol=1e-5)
    for name in ("num_src", "src", "lengths", "anything"):
        with pytest.raises(AttributeError):
            setattr(graph, name, 1)


@pytest.mark.parametrize("again", [lambda graph: graph, copy.deepcopy, STATES["travelled"]])
@pytest.mark.parametrize(
    "make",
    [
        lambda: causal([5, 4]),
        lambda: window(9, 1, 0).restrict(torch.arange(9) % 2 > 0),
        lambda: makers.random_links(9, 3),
        lambda: prepare(makers.random_links(9, 3), 2, 2),
        lambda: AttentionGraph.from_mask(torch.eye(9) > 0, self_attention=True),
    ],
)
def test_what_is_made_in_inference_mode_serves_training(make, again):
    with torch.inference_mode():
        graph = again(make())
        assert len(graph.src) == graph.num_edges
    x, bias = (torch.zeros(n, m, requires_grad=True) for n, m in ((9, 4), (graph.num_edges, 2)))
    x[graph.src].sum().backward()
    for engine in ("auto", *ENGINES):
        GraphAttention(4, 2, engine=engine)(graph, x, edge_bias=bias).sum().backward()


def test_what_is_found_where_tensors_are_not_real_is_not_kept():
    with FakeTensorMode():
        window(8, 2, 0).reverse()
    torch.func.functionalize(lambda x: window(8, 2, 0).reverse().src + x)(torch.zeros(1))
    assert window(8, 2, 0)._known == {}
    assert window(8, 2, 0).reverse().same_edges(window(8, 0, 2))


def test_what_fails_to_be_prepared_is_not():
    full = mock.patch("edgewise.propagation.operation.engine_for", side_effect=MemoryError)
    with full, pytest.raises(MemoryError):
        prepare(TWICE, 1, 1)
    assert "prepared" not in TWICE._known


def test_device_move_keeps_the_graph():
    for graph in (complete(3), bipartite(2, 3), AttentionGraph(long([0]), long([1]), 2)):
        moved = graph.to("meta")
        assert moved.device.type == "meta"
        assert sides(moved) == sides(graph)
        assert moved.packed == graph.packed
        held, form = (x.intervals or x.edge_index for x in (graph, moved))
        assert [x.shape for x in form] == [x.shape for x in held]
        assert "? edges" in repr(moved)
        assert graph.to("cpu") is graph


def test_edges_of_one_pair_are_found_among_many_tokens():
    src, dst = long([10, 0]), long([0, 1])
    assert not AttentionGraph(src, dst, 3000, 10).has_multi_edges
    assert AttentionGraph(src[[0, 1, 0]], dst[[0, 1, 0]], 3000, 10).has_multi_edges


@pytest.mark.parametrize("below", [1, 2**16, 2**16 + 1])
def test_equal_numbers_keep_their_order_however_large(below):
    numbers = long([below - 1, 0, below // 2, below - 1])
    assert stable_order(numbers, below).equal(numbers.argsort(stable=True))


def test_what_is_cached_is_made_once():
    asked = []
    find = per_graph(lambda graph, *numbers: asked.append(numbers) or object())
    one, other = complete(2), complete(3)
    assert find(one, 3, 1) is find(one, 3, 1)
    assert len({find(one, 3, 1), find(one, 4, 1), find(one, 3, 2), find(other, 3, 1)}) == 4
    assert asked == [(3, 1), (4, 1), (3, 2), (3, 1)]


def from_intervals(start, stop, n, same=False, blocks=None):
    return AttentionGraph.from_intervals(long(start), long(stop), n, self_attention=same, blocks=blocks)


@given(any_graphs)
def test_it_travels_without_what_was_derived_from_it(graph):
    light, before = pickle.dumps(graph), edges(graph)
    plan_tiles(graph)
    choice(graph, 2, 4)
    assert graph._known
    assert all(abs(len(pickle.dumps(each)) - len(light)) < 40 for each in (graph, copy.deepcopy(graph)))
    again = pickle.loads(light)
    assert (edges(again), sides(again), again.packed) == (before, sides(graph), graph.packed)


test_bad_input = refusals(
    (lambda: makers.global_tokens(5, 1, "no"), TypeError, "causal must be True or False"),
    (lambda: makers.random_links(5, 1, causal="no"), TypeError, "causal must be True or False"),
    (lambda: makers.dilated(5, 1, 1, "no"), TypeError, "causal must be True or False"),
    (lambda: makers.bigbird(5, 1, 1, 1, causal="no"), TypeError, "causal must be True or False"),
    (lambda: AttentionGraph.from_lengths([3], causal="no"), TypeError, "causal must be True or False"),
    (lambda: AttentionGraph.from_cu_seqlens([0, 3], causal="no"), TypeError, "causal must be True or False"),
    (lambda: from_intervals([0], [1], 1, "no"), TypeError, "self_attention must be True or False"),
    (lambda: AttentionGraph.from_networkx(networkx.Graph(), "no"), TypeError, "self_loops must be True"),
    (lambda: GraphAttention(4, 2, skip="no"), TypeError, "skip must be True or False"),
    (lambda: GraphAttention(4, 2, bias="no"), TypeError, "bias must be True or False"),
    (lambda: AttentionGraph.from_edge_index(long([[3], [1]]), (2, 4)), "they seem swapped"),
    (lambda: complete(2).select_receivers(long([[0]])), r"receivers must be a list, got \[1, 1\]"),
    (lambda: complete(-1), "sizes must be at least 0, got -1"),
    (lambda: causal([2, True]), TypeError, r"sizes\[1\] must be an integer, got True"),
    (lambda: bipartite([2, 3], [1]), "must pair up, got 2 and 1"),
    (lambda: window(5, -1, 0), r"left \(tokens attended to before the token\) must be"),
    (lambda: AttentionGraph(long([0]), long([3]), 3), "dst must lie in 0..2, got 3"),
    (lambda: AttentionGraph(long([-1]), long([0]), 3), "src must lie in 0..2, got -1"),
    (lambda: prepare(TWICE, 1, 1, edge_dim=-1), "edge_dim must be at least 0"),
    (lambda: TWICE.to_mask(), "one entry for each pair of tokens"),
    (lambda: TWICE.to_matrix(torch.zeros(3)), "one entry for each pair of tokens"),
    (lambda: TWICE.to_networkx(), "one entry for each pair of tokens"),
    (lambda: AttentionGraph(long([0.0]), long([0]), 3), TypeError, "src must be a tensor of int64"),
    (lambda: AttentionGraph(long([0, 1]), long([0]), 3), r"got \[2\] .* and \[1\]"),
    (lambda: AttentionGraph(long([0]), long([0]), 2.5), TypeError, "num_src must be an integer, got 2.5"),
    (lambda: complete(3).restrict(long([True] * 2)), r"active must be bool \[3\]"),
    (lambda: complete(3).to(torch.bfloat16), TypeError, "dtype"),
    (lambda: complete(3).restrict(torch.ones(3)), r"bool \[3\], got torch.float32"),
    (lambda: complete(2).to_matrix(torch.zeros(3)), r"one row per edge \(4\), got 3"),
    (lambda: complete(4).subgraph(slice(0, 4, 2), slice(0, 4)), "slices without a step"),
    (lambda: complete(4).subgraph(0, 2), "slices without a step, got 0 and 2"),
    (lambda: complete(4).select_receivers(long([4])), r"receivers must lie in 0\.\.3, got 4"),
    (lambda: complete(2) - 3, TypeError, "the other one must be an AttentionGraph, got int"),
    (lambda: bipartite(2, 2).to_undirected(), "to_undirected is for graphs .* the same tokens"),
    (lambda: bipartite(2, 2).with_self_loops(), "with_self_loops is for graphs .* the same"),
    (lambda: batch([3]), TypeError, r"graphs\[0\] must be an AttentionGraph, got int"),
    (lambda: makers.product(complete(2), 3), TypeError, "inner must be an AttentionGraph, got int"),
    (lambda: makers.random_links(2, 1, besides=3), TypeError, "besides must be an AttentionGraph, got int"),
    (lambda: makers.grid_blocks(2**63, 2), r"fewer than 2\*\*31 tokens, got 9223372036854775808"),
    (lambda: batch([]), "at least one graph"),
    (lambda: batch([complete(2), bipartite(2, 2)]), "not both at once"),
    (lambda: from_intervals([2], [1], 3), "start must not exceed stop, got 2 > 1 at 0"),
    (lambda: from_intervals([0], [4], 3), "stop must lie in 0..3, got 4"),
    (lambda: from_intervals([0], [1], 3, True), "one interval per token, got 1 for num_src=3"),
    (lambda: from_intervals([0, 1], [1, 2], 3, blocks=2), "size, got 2 for 3 senders and 2 receivers"),
    (lambda: from_intervals([0], [1], 2, blocks=2), "one size, got 2 for 2 senders and 1 receivers"),
    (lambda: from_intervals([0, 1], [1, 2], 2, blocks=0), "blocks must be at least 1, got 0"),
    (lambda: from_intervals([0, 1], [2, 2], 2, blocks=2), "must lie in its receiver's block of senders"),
    (lambda: from_intervals([0, 0], [1, 2], 2, blocks=2), "interval must lie in its receiver's block"),
)


@pytest.mark.parametrize("fault", [ModuleNotFoundError, OSError])
def test_without_a_dgl_that_works_the_message_says_how_to_get_it(monkeypatch, fault):
    def raises(name):
        raise fault(f"no {name} here")

    monkeypatch.setattr(dgl_import.importlib, "import_module", raises)
    assert not dgl_available()
    with pytest.raises(ImportError, match=r"pip install '\.\[dgl\]'"):
        complete(2).to_dgl()
