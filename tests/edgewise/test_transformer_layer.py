"""The Transformer's layer on graphs against PyTorch's, which has the graph as a mask."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from edgewise import GraphTransformerLayer, complete, from_torch, to_torch, window
from support import assert_equal_as_stated, edge_graphs, refusals, uneven

GRAPH = window(7, 2, 1)


@given(edge_graphs().filter(lambda g: g.self_attention), st.sampled_from([1, 2]), st.booleans())
def test_it_is_pytorchs_under_a_mask_with_all_gradients(graph, num_heads, norm_first):
    activation = torch.nn.functional.gelu if norm_first else torch.nn.functional.relu
    layer = uneven(GraphTransformerLayer(6, num_heads, 10, activation=activation, norm_first=norm_first))
    theirs, again = to_torch(layer), from_torch(to_torch(layer))
    mask, there = graph.to_mask(), graph.to_mask().any(1)
    x, bias = (
        torch.randn(shape, dtype=torch.float64, requires_grad=True)
        for shape in ((graph.num_src, 6), (graph.num_edges, num_heads))
    )
    found = layer(graph, x, edge_bias=bias)
    # One that attends to nothing would give NaN there.
    hidden = graph.to_matrix(bias).masked_fill(~mask & there[:, None], -torch.inf)
    expected = theirs(x[None], hidden)[0]
    assert torch.equal(again(graph, x, edge_bias=bias), found)
    inputs, others = ((x, bias, m.linear1.weight, m.norm1.weight) for m in (layer, theirs))
    assert_equal_as_stated(found[there], expected[there], inputs, others)


def test_attributes_of_edges_reach_attention():
    layer, x = uneven(GraphTransformerLayer(6, 2, 10, edge_dim=3)), torch.randn(7, 6).double()
    attr = torch.randn(GRAPH.num_edges, 3).double()
    attended = x + layer.self_attn(GRAPH, layer.norm1(x), edge_attr=attr)
    expected = attended + layer.linear2(layer.linear1(layer.norm2(attended)).relu())
    torch.testing.assert_close(layer(GRAPH, x, edge_attr=attr), expected)


def test_dropout_acts_on_what_each_of_the_two_adds():
    layer, x = GraphTransformerLayer(6, 2, 10, dropout=0.5), torch.randn(7, 6)
    assert (layer.dropout1.p, layer.dropout2.p) == (0.5, 0.5)
    for layer.dropout1.p, layer.dropout2.p in ((0.5, 0.0), (0.0, 0.5), (0.0, 0.0)):
        same = torch.equal(layer.train()(GRAPH, x), layer.eval()(GRAPH, x))
        assert same == (layer.dropout1.p == layer.dropout2.p)


test_bad_input = refusals(
    (lambda: GraphTransformerLayer(6, 2, 0), "dim_ff must be at least 1, got 0"),
    (lambda: GraphTransformerLayer(6, 2, 8, norm_first=1), TypeError, "norm_first must be"),
    (lambda: GraphTransformerLayer(6, 2, 8, dropout=1.0), "dropout must lie in"),
    (lambda: GraphTransformerLayer(6, 2, 8)(complete(3), torch.zeros(2, 6)), "must be .3, 6"),
)
