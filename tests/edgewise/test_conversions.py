"""Graphs from and to what others use: PyG's edge index, DGL, masks, lengths."""

import networkx
import numpy
import pytest
import scipy.sparse
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from edgewise.graphs import AttentionGraph, causal, complete, load_dgl
from support import any_graphs, edges, refusals, sizes

G = AttentionGraph
OFFSETS = G.from_cu_seqlens


def sides(graph):
    return graph.num_src if graph.self_attention else (graph.num_src, graph.num_dst)


@given(any_graphs)
def test_an_edge_index_and_a_mask_come_back_as_they_were(graph):
    again = AttentionGraph.from_edge_index(graph.edge_index, sides(graph))
    assert (edges(again), sides(again)) == (edges(graph), sides(graph))
    again = AttentionGraph.from_mask(graph.to_mask(), self_attention=graph.self_attention)
    assert (edges(again), sides(again)) == (sorted(edges(graph)), sides(graph))
    values = torch.randn(graph.num_edges, 2)
    matrix = graph.to_matrix(values)
    assert torch.equal(matrix[:, graph.dst, graph.src].T, values)
    assert int(matrix.count_nonzero()) == values.numel()
    assert torch.equal(graph.gather(matrix), values)


@example([(4, 2)], True, -1, -1)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=4),
    st.booleans(),
    *[st.just(-1) | st.integers(0, 7)] * 2,
)
def test_offsets_mean_what_flash_attention_means(pairs, is_causal, left, right):
    """Its reference: a mask of each pair, aligned at the lower right corner."""
    before, after = left if left >= 0 else 99, 0 if is_causal else right if right >= 0 else 99
    masks = [torch.ones(n, m).tril(m - n + after).triu(m - n - before) for n, m in pairs]
    ends = torch.tensor([(0, 0), *pairs]).cumsum(0).int()
    graph = AttentionGraph.from_cu_seqlens(*ends.T, causal=is_causal, window=(left, right))
    assert torch.equal(graph.to_mask(), torch.block_diag(*masks).bool())
    assert graph.num_edges == int(graph.to_mask().sum())
    alone = AttentionGraph.from_cu_seqlens(ends[:, 0], causal=is_causal, window=(left, right))
    both = AttentionGraph.from_cu_seqlens(*ends[:, [0, 0]].T, causal=is_causal, window=(left, right))
    assert torch.equal(alone.to_mask(), both.to_mask())
    assert (alone.self_attention, both.self_attention) == (True, False)


@given(sizes, st.booleans())
def test_lengths_positions_documents_and_padding_say_the_same(lengths, is_causal):
    made = [G.from_lengths(given_, causal=is_causal) for given_ in (lengths, torch.tensor(lengths))]
    lengths = [n for n in lengths if n]
    expected = (causal if is_causal else complete)(lengths)
    assert all(graph.intervals is not None and edges(graph) == edges(expected) for graph in made)
    places = torch.cat([torch.arange(n) for n in lengths])
    documents = torch.arange(len(lengths)).flip(0).repeat_interleave(torch.tensor(lengths))
    mask = torch.arange(9) < torch.tensor(lengths)[:, None]
    assert AttentionGraph.from_position_ids(places, causal=is_causal) == expected
    assert AttentionGraph.from_document_ids(documents.int(), causal=is_causal) == expected
    assert AttentionGraph.from_padding_mask(mask.flip(1), causal=is_causal) == expected
    assert AttentionGraph.from_padding_mask(mask.int(), causal=is_causal) == expected
    assert AttentionGraph.from_position_ids([0, 1, 5, 6]) == complete([2, 2])
    wide = torch.cat([torch.arange(256), torch.arange(2)]).byte()
    assert AttentionGraph.from_position_ids(wide) == complete([256, 2])
    assert AttentionGraph.from_padding_mask([[1, 1, 0], [1, 0, 0]]) == complete([2, 1])


@pytest.mark.parametrize("kind", ["csr_array", "coo_array", "csc_matrix"])
def test_stored_entries_of_a_sparse_matrix_are_edges(kind):
    dense = numpy.array([[0, 2.0, 0], [1, 0, 3]])
    matrix = getattr(scipy.sparse, kind)(dense)
    graph = AttentionGraph.from_scipy(matrix, self_attention=False)
    assert torch.equal(graph.to_mask(), torch.from_numpy(dense) != 0)
    found = graph.to_matrix(torch.from_numpy(matrix.tocoo().data))
    assert torch.equal(found, torch.from_numpy(dense))


@pytest.mark.dgl
@given(any_graphs)
def test_a_graph_of_dgl_comes_back_as_it_was(graph):
    graph.to_dgl().add_nodes(1, ntype=graph.to_dgl().ntypes[0])
    again = AttentionGraph.from_dgl(graph.to_dgl())
    assert torch.equal(again.edge_index, graph.edge_index)
    assert sides(again) == sides(graph)


@pytest.mark.dgl
def test_blocks_and_graphs_with_many_types_of_edges():
    dgl = load_dgl()
    block = dgl.create_block(([0, 1], [0, 0]), num_src_nodes=2, num_dst_nodes=1)
    assert not AttentionGraph.from_dgl(block).self_attention
    many = dgl.heterograph({("a", "x", "a"): ([0], [0]), ("a", "y", "a"): ([0], [0])})
    with pytest.raises(ValueError, match="must have one type of edge, got 2"):
        AttentionGraph.from_dgl(many)


def test_a_graph_owns_its_edges():
    """Edits of what it was made from change nothing, though plans and patterns are kept."""
    pairs, ends = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([[0, 0, 1], [1, 2, 3]])
    made = [
        AttentionGraph.from_edge_index(pairs, 3),
        AttentionGraph.from_edge_index(pairs.int(), 3),
        AttentionGraph(*pairs, 3),
        AttentionGraph.from_intervals(*ends, 3, self_attention=True),
    ]
    before = [edges(graph) for graph in made]
    pairs.fill_(10**6), ends.fill_(10**6)
    assert [edges(graph) for graph in made] == before


@given(any_graphs)
def test_the_drawn_graph_has_the_same_edges(graph):
    drawn = graph.to_networkx()
    assert len(drawn) == graph.num_src + (0 if graph.self_attention else graph.num_dst)
    named = drawn.edges if graph.self_attention else [(i[1], j[1]) for i, j in drawn.edges]
    assert sorted(named) == sorted(edges(graph))


def test_edges_of_networkx_keep_their_order_and_their_number():
    """Those of a graph without directions lead both ways, and once to the node itself."""
    graph = networkx.MultiDiGraph()
    graph.add_nodes_from("bacd")
    graph.add_edges_from([("b", "c"), ("b", "a"), ("a", "c"), ("b", "c"), ("c", "c")])
    found = AttentionGraph.from_networkx(graph, self_loops=True)
    number = {node: i for i, node in enumerate(graph)}
    given_ = [(number[a], number[b]) for a, b in graph.edges()]
    assert edges(found) == [*given_, (0, 0), (1, 1), (3, 3)]
    path = networkx.path_graph(3)
    path.add_edge(2, 2)
    assert AttentionGraph.from_networkx(path).edge_index.tolist() == [[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]]


PAIRS, edge_index, mask = torch.tensor([[0, 1], [1, 2]]), G.from_edge_index, G.from_mask


test_bad_input = refusals(
    (lambda: OFFSETS(torch.tensor([1, 3])), r"cu_q must begin with 0 and never fall"),
    (lambda: OFFSETS(torch.tensor([0, 3, 2])), r"never fall, got \[0, 3, 2\]"),
    (lambda: OFFSETS(torch.tensor([0, 3]), torch.tensor([0, 1, 2])), "pair up, got 1 and 2"),
    (lambda: OFFSETS([0, 2.7]), TypeError, "cu_q must be a tensor of integers, got torch.float32"),
    (lambda: OFFSETS(3), TypeError, "cu_q must be a tensor of integers, got int"),
    (lambda: OFFSETS(torch.tensor([0, 3]), window=(-2, 0)), r"window\[0\] must be at least"),
    (lambda: OFFSETS([0, 3], window=(1, 2, 3)), r"one per side \(2\), got 3"),
    (lambda: G.from_scipy(numpy.eye(2), self_attention=True), TypeError, "sparse, .* got ndarray"),
    (lambda: G.from_position_ids(torch.zeros(1, 3).int()), r"1 dimension, got"),
    (lambda: G.from_document_ids(torch.tensor([0, 1, 0])), "one id returns"),
    (lambda: G.from_padding_mask(torch.tensor([[1, 2]])), "at real tokens"),
    (lambda: G.from_padding_mask(torch.ones(2, 2)), TypeError, "integers, got torch.float32"),
    (lambda: G.from_scipy(scipy.sparse.eye_array(2, 3), self_attention=True), "square"),
    (lambda: edge_index(PAIRS.float(), 3), TypeError, "int64, got torch.float32"),
    (lambda: edge_index(torch.eye(3).to_sparse_csr(), 3), TypeError, r"indices\(\)\.flip\(0\)"),
    (lambda: edge_index([[0], [1]], 3), TypeError, "int64, got list"),
    (lambda: edge_index(PAIRS.T[:1], 3), r"be \[2, E\], got \[1, 2\]"),
    (lambda: edge_index(PAIRS, 2), r"edge_index must lie in 0..1, got 2"),
    (lambda: mask(PAIRS, self_attention=True), TypeError, "mask must be a tensor of bool"),
    (lambda: mask(PAIRS[0] > 0, self_attention=True), r"\[num_dst, num_src\], got \[2\]"),
    (lambda: mask(PAIRS.new_ones(2, 3) > 0, self_attention=True), r"a square mask"),
    (lambda: mask(PAIRS > 0, self_attention=None), TypeError, "self_attention must be True or False"),
    (lambda: complete(3).gather(torch.ones(3, 4)), r"\[..., 3, 3\], receivers by senders, got"),
    (lambda: G.from_lengths([2, -1]), r"lengths\[1\] must be at least 0"),
)
