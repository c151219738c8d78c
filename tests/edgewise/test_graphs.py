import dataclasses
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgewise.graphs import (
    AttentionGraph,
    GraphPool,
    batch,
    bipartite,
    causal,
    complete,
    interop,
    load_dgl,
    window,
)
from edgewise.graphs.interop import dgl_available
from support import edge_graphs, interval_graphs, random_pairs, sizes

counts = st.integers(0, 8)


def edges(graph):
    return list(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))


@given(counts)
def test_complete_is_every_pair_ordered_by_source(n):
    assert edges(complete(n)) == [(i, j) for i in range(n) for j in range(n)]


@given(counts)
def test_causal_is_every_pair_up_to_itself_ordered_by_source(n):
    graph = causal(n)
    assert edges(graph) == [(i, j) for i in range(n) for j in range(n) if i <= j]
    assert graph.num_edges == n * (n + 1) // 2


@given(counts, counts)
def test_bipartite_is_every_cross_pair_ordered_by_source(n, m):
    graph = bipartite(n, m)
    assert edges(graph) == [(i, j) for i in range(n) for j in range(m)]
    assert (graph.num_src, graph.num_dst, graph.self_attention) == (n, m, False)


@given(counts, st.integers(0, 4), st.integers(0, 4))
def test_window_reaches_left_and_right(n, left, right):
    expected = [(i, j) for i in range(n) for j in range(n) if -right <= j - i <= left]
    assert edges(window(n, left, right)) == expected


@given(sizes)
def test_several_sizes_are_the_disjoint_union(lengths):
    for make in (complete, causal, lambda n: window(n, 1, 2)):
        whole, union = make(lengths), batch([make(n) for n in lengths])
        assert edges(whole) == edges(union)
        assert whole.num_src == union.num_src == sum(lengths)
    assert edges(bipartite(lengths, lengths[::-1])) == edges(
        batch([bipartite(n, m) for n, m in zip(lengths, lengths[::-1], strict=True)])
    )


@given(st.lists(edge_graphs().filter(lambda g: not g.self_attention), min_size=1, max_size=3))
def test_batch_of_explicit_graphs_keeps_every_edge(graphs):
    expected, src, dst = [], 0, 0
    for graph in graphs:
        expected += [(i + src, j + dst) for i, j in edges(graph)]
        src, dst = src + graph.num_src, dst + graph.num_dst
    whole = batch(graphs)
    assert edges(whole) == expected
    assert (whole.num_src, whole.num_dst) == (src, dst)


@given(st.one_of(edge_graphs(), interval_graphs()))
def test_mask_and_matrix_have_the_same_edges(graph):
    expected = set(edges(graph))
    mask = graph.to_mask()
    assert {(i, j) for j, i in mask.nonzero().tolist()} == expected
    assert len(expected) == graph.num_edges
    values = torch.arange(graph.num_edges)
    matrix = graph.to_matrix(values + 1)
    assert torch.equal(matrix[graph.dst, graph.src], values + 1)
    assert int((matrix != 0).sum()) == graph.num_edges


@given(st.one_of(edge_graphs(), interval_graphs()), st.data())
def test_restrict_keeps_the_edges_into_active_receivers(graph, data):
    active = data.draw(st.lists(st.booleans(), min_size=graph.num_dst, max_size=graph.num_dst))
    kept = graph.restrict(torch.tensor(active, dtype=torch.bool))
    assert edges(kept) == [(i, j) for i, j in edges(graph) if active[j]]
    assert (kept.num_src, kept.num_dst) == (graph.num_src, graph.num_dst)
    assert kept.self_attention == graph.self_attention


@given(st.one_of(edge_graphs(), interval_graphs()), st.data())
def test_into_takes_rows_of_the_mask(graph, data):
    numbers = st.integers(0, graph.num_dst - 1)
    rows = torch.tensor(data.draw(st.lists(numbers, max_size=6)), dtype=torch.int64)
    part = graph.select_receivers(rows)
    assert (part.num_src, part.num_dst, part.self_attention) == (graph.num_src, len(rows), False)
    assert torch.equal(part.to_mask(), graph.to_mask()[rows])
    assert part.num_edges == int(graph.to_mask()[rows].sum())


@given(st.one_of(edge_graphs(), interval_graphs()), st.data())
def test_between_is_a_block_of_the_mask(graph, data):
    src, dst = (
        slice(*data.draw(st.tuples(*[st.integers(0, n)] * 2))) for n in (graph.num_src, graph.num_dst)
    )
    part = graph.subgraph(src, dst)
    assert torch.equal(part.to_mask(), graph.to_mask()[dst, src])
    assert part.num_edges == int(part.to_mask().sum())
    runs = [(run.start, max(run.start, run.stop)) for run in (src, dst)]
    assert part.self_attention == (graph.self_attention and runs[0] == runs[1])


def test_edges_keep_the_order_they_were_given_in():
    src, dst = torch.tensor([2, 0, 1]), torch.tensor([0, 2, 2])
    graph = AttentionGraph(src, dst, 3)
    assert torch.equal(graph.src, src)
    assert torch.equal(graph.dst, dst)


def test_a_large_complete_graph_costs_nothing_until_edges_are_asked_for():
    graph = complete(100_000)
    assert graph.num_edges == 10**10
    assert not graph.has_edge_lists


def test_device_move_keeps_the_graph():
    for graph in (complete(3), bipartite(2, 3), AttentionGraph(torch.tensor([0]), torch.tensor([1]), 2)):
        moved = graph.to("meta")
        assert moved.device.type == "meta"
        assert (moved.num_src, moved.num_dst) == (graph.num_src, graph.num_dst)
        assert moved.self_attention == graph.self_attention
        held, form = (graph.intervals, moved.intervals) if graph.intervals else (graph._edges, moved._edges)
        assert [x.shape for x in form] == [x.shape for x in held]
        assert "? edges" in repr(moved)
        assert graph.to("cpu") is graph


def test_what_is_cache_can_be_forgotten():
    graph = complete(2)
    first = graph.cached("x", object)
    assert graph.cached("x", object) is first
    graph.clear_cache()
    assert graph.cached("x", object) is not first


@pytest.mark.dgl
def test_dgl_graph_has_the_same_edges_in_the_same_order():
    src, dst = causal(4).to_dgl().edges()
    assert list(zip(src.tolist(), dst.tolist(), strict=True)) == edges(causal(4))
    crossed = bipartite(2, 3).to_dgl()
    src, dst = crossed.edges()
    assert list(zip(src.tolist(), dst.tolist(), strict=True)) == edges(bipartite(2, 3))
    assert (crossed.num_nodes("src"), crossed.num_nodes("dst")) == (2, 3)


def test_a_window_may_reach_farther_than_any_number():
    assert edges(window([3, 2], 2**70, 2**63 - 1)) == edges(complete([3, 2]))


def test_edges_derived_in_inference_mode_serve_training():
    graph, x = complete(3), torch.ones(3, requires_grad=True)
    with torch.inference_mode():
        assert len(graph.src) == 9
    x[graph.src].sum().backward()
    assert x.grad.tolist() == [3, 3, 3]


class TestPool:
    def test_the_tutorials_numbering(self):
        made = GraphPool()([list(range(3, 12))], [list(range(11))])
        assert made.nids["enc"].tolist() == list(range(9))
        assert made.nids["dec"].tolist() == list(range(9, 19))
        assert made.eids["ee"].tolist() == list(range(81))
        assert made.eids["ed"].tolist() == list(range(81, 171))
        assert made.eids["dd"].tolist() == list(range(171, 226))
        assert (made.n_nodes, made.n_edges, made.n_tokens) == (19, 226, 10)

    def test_ids_and_positions_are_packed_and_the_target_is_shifted(self):
        made = GraphPool()([[5, 6], [7]], [[0, 8, 9, 1], [0, 1]])
        assert made.src[0].tolist() == [5, 6, 7]
        assert made.src[1].tolist() == [0, 1, 0]
        assert made.tgt[0].tolist() == [0, 8, 9, 0]
        assert made.tgt[1].tolist() == [0, 1, 2, 0]
        assert made.tgt_y.tolist() == [8, 9, 1, 1]
        assert made.sentence(1) == (slice(2, 3), slice(3, 4))

    @pytest.mark.dgl
    @given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=4))
    def test_g_is_dgls_batch_of_the_pairs_graphs(self, lengths):
        dgl, pool = load_dgl(), GraphPool()
        made = pool(*random_pairs(lengths))
        singles = [pool([[0] * n], [[0] * (m + 1)]).g for n, m in lengths]
        expected = dgl.batch(singles)
        for mine, other in zip(made.g.edges(), expected.edges(), strict=True):
            assert torch.equal(mine, other)
        assert torch.equal(made.g.batch_num_nodes(), expected.batch_num_nodes())
        assert torch.equal(made.g.batch_num_edges(), expected.batch_num_edges())

    @pytest.mark.dgl
    @given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=4))
    def test_g_joins_the_three_graphs(self, lengths):
        made = GraphPool()(*random_pairs(lengths))
        sides = {
            "ee": ("enc", "enc", made.enc),
            "ed": ("enc", "dec", made.cross),
            "dd": ("dec", "dec", made.dec),
        }
        assert sorted(torch.cat(list(made.nids.values())).tolist()) == list(range(made.n_nodes))
        assert sorted(torch.cat(list(made.eids.values())).tolist()) == list(range(made.n_edges))
        for kind, (side_src, side_dst, graph) in sides.items():
            src, dst = made.g.find_edges(made.eids[kind])
            ours = {(made.nids[side_src][i].item(), made.nids[side_dst][j].item()) for i, j in edges(graph)}
            assert set(zip(src.tolist(), dst.tolist(), strict=True)) == ours

    @pytest.mark.parametrize(
        ("source", "target", "error", "message"),
        [
            ([[]], [[0, 1]], ValueError, r"src_buf\[0\] must hold at least one id; got 0"),
            (
                [[3], [4]],
                [[0, 1], [0]],
                ValueError,
                r"tgt_buf\[1\] must hold at least two ids, the start and the end symbol; got 1",
            ),
            ([[3]], [], ValueError, "must pair up, one pair at least; got 1 and 0"),
            ([], [], ValueError, "must pair up, one pair at least; got 0 and 0"),
            ([[3.5]], [[0, 1]], TypeError, r"src_buf\[0\] must be a list of integers"),
            ([["a"]], [[0, 1]], TypeError, r"src_buf\[0\] must be a list of integers"),
            ([[None]], [[0, 1]], TypeError, r"src_buf\[0\] must be a list of integers"),
            ([torch.tensor([1 + 2j])], [[0, 1]], TypeError, r"src_buf\[0\] must be a list of integers"),
            (None, [[0, 1]], TypeError, "src_buf must be a list of sentences, got None"),
            ([3], [[0, 1]], TypeError, r"src_buf\[0\] must be a list of integers"),
        ],
    )
    def test_bad_sentences(self, source, target, error, message):
        with pytest.raises(error, match=message):
            GraphPool()(source, target)

    def test_a_batch_with_another_graph_has_no_dgl_numbering(self):
        made = GraphPool()([[3, 4, 5]], [[0, 1]])
        changed = dataclasses.replace(made, enc=window(3, 0, 0))
        for field in ("g", "eids"):
            with pytest.raises(ValueError, match=r"describe a batch as the pool made it, \{'ee': 9"):
                getattr(changed, field)

    def test_a_sentence_that_is_not_there(self):
        with pytest.raises(IndexError, match=r"sentence must lie in 0\.\.0, got 1"):
            GraphPool()([[3]], [[0, 1]]).sentence(1)


long = torch.tensor


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: complete(-1), ValueError, r"sizes\[?0?\]? must be at least 0, got -1"),
        (lambda: complete(2.0), TypeError, "sizes must be an integer, got 2.0"),
        (lambda: causal([2, True]), TypeError, r"sizes\[1\] must be an integer, got True"),
        (lambda: causal("3"), TypeError, "sizes must be an integer, got '3'"),
        (lambda: bipartite(2, -3), ValueError, "dst_sizes must be at least 0, got -3"),
        (lambda: bipartite([2, 3], [1]), ValueError, "must pair up, got 2 and 1"),
        (
            lambda: window(5, -1, 0),
            ValueError,
            r"left \(tokens attended to before the token\) must be at least 0, got -1",
        ),
        (lambda: AttentionGraph(long([0]), long([3]), 3), ValueError, "dst must lie in 0..2, got 3"),
        (lambda: AttentionGraph(long([-1]), long([0]), 3), ValueError, "src must lie in 0..2, got -1"),
        (
            lambda: AttentionGraph(long([1, 0, 1]), long([2, 0, 2]), 3),
            ValueError,
            r"edges must be distinct, got \(1, 2\)",
        ),
        (lambda: AttentionGraph(long([0.0]), long([0]), 3), TypeError, "src must be a tensor of int64"),
        (lambda: AttentionGraph([0], long([0]), 3), TypeError, "src must be a tensor of int64, got list"),
        (
            lambda: AttentionGraph(long([0, 1]), long([0]), 3),
            ValueError,
            r"same length .* got \[2\] .* and \[1\]",
        ),
        (lambda: AttentionGraph(long([0]), long([0]), 2.5), TypeError, "num_src must be an integer, got 2.5"),
        (
            lambda: complete(3).restrict(torch.ones(2, dtype=torch.bool)),
            ValueError,
            r"active must be bool \[3\]",
        ),
        (lambda: complete(3).restrict(torch.ones(3)), ValueError, r"bool \[3\], got torch.float32"),
        (lambda: complete(2).to_matrix(torch.zeros(3)), ValueError, r"one row per edge \(4\), got 3"),
        (lambda: complete(2).restrict([True, False]), TypeError, "active must be a tensor of bool, got list"),
        (lambda: complete(4).subgraph(slice(0, 4, 2), slice(0, 4)), ValueError, "slices without a step"),
        (
            lambda: complete(4).subgraph(slice(0, 4), range(4)),
            TypeError,
            r"dst must be a slice, got range\(0, 4\)",
        ),
        (
            lambda: complete(4).select_receivers(torch.tensor([4])),
            ValueError,
            r"receivers must lie in 0\.\.3, got 4",
        ),
        (
            lambda: complete(4).select_receivers(torch.tensor([True])),
            TypeError,
            "receivers must be a tensor of int64",
        ),
        (lambda: complete({3}), TypeError, r"sizes must be an integer, got \{3\}"),
        (lambda: batch([3]), TypeError, "batch takes graphs, got int"),
        (lambda: batch([]), ValueError, "at least one graph"),
        (lambda: batch([complete(2), bipartite(2, 2)]), ValueError, "not both at once"),
        (
            lambda: AttentionGraph.from_intervals(long([2]), long([1]), 3, self_attention=False),
            ValueError,
            "start must not exceed stop, got 2 > 1 at 0",
        ),
        (
            lambda: AttentionGraph.from_intervals(long([0]), long([4]), 3, self_attention=False),
            ValueError,
            "stop must lie in 0..3, got 4",
        ),
        (
            lambda: AttentionGraph.from_intervals(long([0]), long([1]), 3, self_attention=True),
            ValueError,
            "one interval per token, got 1 for num_src=3",
        ),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.dgl
def test_what_dgl_warns_of_while_it_is_imported_is_not_shown(monkeypatch, recwarn):
    def warns(name):
        warnings.warn("no progress bars here", stacklevel=1)

    monkeypatch.setattr(interop.importlib, "import_module", warns)
    interop.load_dgl()
    assert not recwarn.list


@pytest.mark.parametrize("fault", [ModuleNotFoundError, OSError, RuntimeError, AttributeError])
def test_without_a_dgl_that_works_the_message_says_how_to_get_it(monkeypatch, fault):
    def raises(name):
        raise fault(f"no {name} here")

    monkeypatch.setattr(interop.importlib, "import_module", raises)
    assert not dgl_available()
    with pytest.raises(ImportError, match=r"pip install 'edgewise\[dgl\]'.*'tiles' and 'scatter'"):
        complete(2).to_dgl()
