import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges.models.gnn import AGGREGATORS, GATLayer, GNNLayer, aggregate
from edgewise.graphs import AttentionGraph, bipartite
from support import assert_equal_as_stated, edge_graphs, random_fields, refusals, uneven

heads = st.sampled_from([1, 2, 4])
social_graphs = edge_graphs().filter(lambda g: g.self_attention)
LONELY = AttentionGraph(torch.tensor([0, 1, 1, 0]), torch.tensor([1, 0, 2, 2]), 5)  # 3 and 4 have no in-edges


def masked_softmax(scores, mask):
    """Over the second dimension; zero where nothing is left."""
    return scores.masked_fill(~mask, -torch.inf).softmax(1).nan_to_num()


def aggregate_densely(mask, messages, how, query=None, key=None):
    """The same with the graph as a matrix [n, m] and no edge list; messages [m, h, d]."""
    if how == "attention":
        scores = torch.einsum("nhd,mhd->nmh", query, key) / query.shape[-1] ** 0.5
        return torch.einsum("nmh,mhd->nhd", masked_softmax(scores, mask[..., None]), messages)
    if how == "max":
        spread = messages[None].expand(len(mask), *messages.shape)
        return spread.masked_fill(~mask[..., None, None], -torch.inf).amax(1).nan_to_num(neginf=0.0)
    share = mask.to(messages.dtype)
    if how == "mean":
        share = share / share.sum(1, keepdim=True).clamp(min=1)
    return torch.einsum("nm,mhd->nhd", share, messages)


@given(edge_graphs(), st.sampled_from(AGGREGATORS), heads)
def test_aggregators_equal_dense_ones(graph, how, num_heads):
    q, k, v = random_fields(graph, num_heads, 3, torch.float64)
    expected = aggregate_densely(graph.to_mask(), v, how, q, k)
    assert_equal_as_stated(aggregate(graph, v, how, q, k), expected, (q, k, v))


@pytest.mark.parametrize(("count", "value"), [(700, 100.0), (70_000, 1.0)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_mean_in_half_precision_is_between_what_it_is_of(count, value, dtype):
    graph = bipartite([count], [1])
    assert aggregate(graph, torch.full((count, 1, 1), value, dtype=dtype), "mean").item() == value


@given(social_graphs, st.sampled_from(AGGREGATORS), heads)
def test_gcn_equals_its_equation_with_the_adjacency_matrix(graph, how, num_heads):
    layer = uneven(GNNLayer(5, 8, num_heads, how))
    x = torch.randn(graph.num_src, 5, dtype=torch.float64, requires_grad=True)
    split = {name: (x @ p.T).reshape(len(x), num_heads, -1) for name, p in layer.named_parameters()}
    asked = [split[name] for name in ("query.weight", "key.weight") if name in split]
    total = aggregate_densely(graph.to_mask(), split["value.weight"], how, *asked)
    expected = (split["own.weight"] + total).reshape(len(x), 8).relu()
    assert_equal_as_stated(layer(graph, x), expected, [x, *layer.parameters()])


def gat_densely(layer, mask, x):
    """Velickovic et al. 2018, with all scores in a matrix [n, n] for each head."""
    out = []
    for head, w in enumerate(layer.value.weight.chunk(layer.num_heads)):
        state = x @ w.T
        score = (state @ layer.as_receiver[head])[:, None] + (state @ layer.as_sender[head])[None, :]
        score = torch.nn.functional.leaky_relu(score, layer.negative_slope)
        out.append(masked_softmax(score, mask) @ state)
    return torch.cat(out, 1) + layer.bias


@given(social_graphs, heads)
def test_gat_equals_its_equation_with_the_adjacency_matrix(graph, num_heads):
    layer = uneven(GATLayer(5, 8, num_heads, negative_slope=0.3))
    x = torch.randn(graph.num_src, 5, dtype=torch.float64, requires_grad=True)
    expected = gat_densely(layer, graph.to_mask(), x)
    assert_equal_as_stated(layer(graph, x), expected, [x, *layer.parameters()])


states = torch.zeros(5, 8)


test_bad_input = refusals(
    (lambda: aggregate(LONELY, states[:4], "sum"), r"messages must have a row .*\[4, 8\]"),
    (lambda: aggregate(LONELY, states[:, None], "median"), "'attention'; got 'median'"),
    (lambda: aggregate(LONELY, states, "attention"), "attention needs query and key"),
    (lambda: GNNLayer(8, 6, 4), r"dim_out \(6\) must be divisible by num_heads \(4\)"),
    (lambda: GNNLayer(8, 8, how="min"), "how must be one of .* got 'min'"),
    (lambda: GATLayer(8, 8, 2, "x"), TypeError, "negative_slope must be a number, got 'x'"),
    (lambda: GATLayer(8, 8)(LONELY, states[:4]), r"x must have a row .* \(5\), got \[4, 8\]"),
    (lambda: GNNLayer(8, 8)(bipartite(5, 2), states), "one set of nodes, got one between"),
)
