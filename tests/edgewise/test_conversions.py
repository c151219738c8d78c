"""Graphs from and to what others use: PyG's edge index, DGL, masks, lengths."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgewise.graphs import AttentionGraph, causal, complete, load_dgl
from support import edge_graphs, interval_graphs, sizes


def sides(graph):
    return graph.num_src if graph.self_attention else (graph.num_src, graph.num_dst)


@given(st.one_of(edge_graphs(), interval_graphs()))
def test_an_edge_index_and_a_mask_come_back_as_they_were(graph):
    again = AttentionGraph.from_edge_index(graph.edge_index, sides(graph))
    assert torch.equal(again.edge_index, torch.stack([graph.src, graph.dst]))
    assert sides(again) == sides(graph)
    mask = graph.to_mask()
    again = AttentionGraph.from_mask(mask, self_attention=graph.self_attention)
    assert torch.equal(again.to_mask(), mask)
    assert sides(again) == sides(graph)
    assert AttentionGraph.from_mask(mask).self_attention == (graph.num_src == graph.num_dst)


@given(sizes, st.booleans())
def test_lengths_are_packed_sequences(lengths, is_causal):
    expected = (causal if is_causal else complete)(lengths)
    for given_ in (lengths, torch.tensor(lengths)):
        graph = AttentionGraph.from_lengths(given_, causal=is_causal)
        assert torch.equal(graph.to_mask(), expected.to_mask())
        assert graph.intervals is not None


@pytest.mark.dgl
@given(st.one_of(edge_graphs(), interval_graphs()))
def test_a_graph_of_dgl_comes_back_as_it_was(graph):
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


PAIRS = torch.tensor([[0, 1], [1, 2]])
edge_index, mask = AttentionGraph.from_edge_index, AttentionGraph.from_mask


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: edge_index(PAIRS.float(), 3), TypeError, "int64, got torch.float32"),
        (lambda: edge_index([[0], [1]], 3), TypeError, "int64, got list"),
        (lambda: edge_index(PAIRS.T[:1], 3), ValueError, r"be \[2, E\], got \[1, 2\]"),
        (lambda: edge_index(PAIRS, 2), ValueError, r"dst must lie in 0..1, got 2"),
        (lambda: mask(PAIRS), TypeError, "mask must be a tensor of bool"),
        (lambda: mask(PAIRS[0] > 0), ValueError, r"\[num_dst, num_src\], got \[2\]"),
        (lambda: mask(PAIRS.new_ones(2, 3) > 0, self_attention=True), ValueError, r"a square mask"),
        (lambda: AttentionGraph.from_lengths([2, -1]), ValueError, r"lengths\[1\] must be at least 0"),
    ],
)
def test_bad_input(make, error, message):
    with pytest.raises(error, match=message):
        make()
