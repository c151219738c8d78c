import doctest

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch_geometric.nn import TransformerConv

import edgewise
from edgewise import AttentionGraph, GraphAttention, bipartite, complete, from_pyg, from_torch, to_torch
from support import assert_equal_as_stated, attention_formula, refusals


def assert_same_parameters(found, expected):
    torch.testing.assert_close(found.state_dict(), expected.state_dict())
    assert [x.requires_grad for x in found.parameters()] == [x.requires_grad for x in expected.parameters()]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder])
def test_what_comes_from_pytorch_is_the_same_on_graphs_and_goes_back(kind, bias):
    theirs = nn.MultiheadAttention(8, 2, 0.1, bias, batch_first=True)
    if kind is not nn.MultiheadAttention:
        theirs = nn.TransformerEncoderLayer(8, 2, 16, 0.1, "gelu", bias=bias, batch_first=True)
    if kind is nn.TransformerEncoder:
        theirs = nn.TransformerEncoder(theirs, 2, nn.LayerNorm(8), enable_nested_tensor=False)
    for number, parameter in enumerate(theirs.parameters()):
        nn.init.normal_(parameter).requires_grad_(number % 2 == 1)
    ours = from_torch(theirs.eval(), engine="csr")
    assert {m.engine for m in ours.modules() if isinstance(m, GraphAttention)} == {"csr"}
    again = to_torch(ours)
    assert_same_parameters(again, theirs)
    assert repr(again) == repr(theirs)
    assert {m.dropout for m in again.modules() if isinstance(m, nn.MultiheadAttention)} == {0.1}
    assert not again.training
    x = torch.randn(2, 5, 8)
    arguments = (x, x, x) if kind is nn.MultiheadAttention else (x,)
    expected = theirs(*arguments)
    torch.testing.assert_close(again(*arguments), expected)
    with torch.no_grad():  # by PyTorch's fast path
        torch.testing.assert_close(again(*arguments), theirs(*arguments))
    expected = expected[0] if kind is nn.MultiheadAttention else expected
    found = ours(complete([5, 5]), x.flatten(0, 1))
    torch.testing.assert_close(found, expected.flatten(0, 1), atol=1e-5, rtol=1e-4)


def test_parts_stay_in_their_mode_and_what_is_there_twice_stays_one():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    encoder.layers[1] = encoder.layers[0]
    encoder.layers[0].self_attn.eval()
    ours = from_torch(encoder)
    for found in (ours, to_torch(ours)):
        assert found.layers[0] is found.layers[1]
        assert (found.training, found.layers[0].self_attn.training) == (True, False)
    ours.layers[0].self_attn.key.weight.requires_grad_(False)
    with pytest.raises(ValueError, match="all be learned or none"):
        to_torch(ours)


@pytest.mark.parametrize("bias", [True, False])
def test_attention_to_a_context_of_another_width_comes_from_pytorch_and_goes_back(bias):
    theirs = nn.MultiheadAttention(8, 2, kdim=6, vdim=6, bias=bias)
    theirs.k_proj_weight.requires_grad_(False)
    ours, x, context = from_torch(theirs), torch.randn(4, 8), torch.randn(5, 6)
    actual = ours(bipartite(5, 4), x, context)
    torch.testing.assert_close(actual, theirs(x, context, context)[0], atol=1e-5, rtol=1e-4)
    assert_same_parameters(to_torch(ours), theirs)


@pytest.mark.parametrize("two_sets", [False, True])
@pytest.mark.parametrize(
    ("concat", "skip", "edge_dim", "bias"),
    [(True, True, None, True), (True, False, 5, True), (False, True, 5, False), (False, False, None, True)],
)
def test_equal_to_a_model_of_pyg(concat, skip, edge_dim, bias, two_sets):
    """Two layers: outputs and gradients of all parameters and inputs."""
    known = {"heads": 3, "concat": concat, "root_weight": skip, "edge_dim": edge_dim, "bias": bias}
    edge_index = torch.stack([torch.randint(0, 7, (40,)), torch.randint(0, 5, (40,))]).unique(dim=1)
    graph = AttentionGraph.from_edge_index(edge_index, (7, 5) if two_sets else 7)
    width = 4 * (3 if concat else 1)
    convs = [TransformerConv((6, 8) if two_sets else 8, 4, aggr="sum", **known)]
    if not two_sets:
        convs.append(TransformerConv(width, 4, **known))
    layers = [from_pyg(conv) for conv in convs]
    x = torch.randn(5 if two_sets else 7, 8, requires_grad=True)
    context = torch.randn(7, 6, requires_grad=True) if two_sets else None
    edges = torch.randn(edge_index.shape[1], 5, requires_grad=True) if edge_dim else None
    y = z = x
    for conv, layer in zip(convs, layers, strict=True):
        y = conv((context, y) if two_sets else y, edge_index, edges)
        z = layer(graph, z, context, edge_attr=edges)
    inputs = [given for given in (x, context, edges) if given is not None]
    pairs = [
        (mine, conv.get_parameter(f"lin_{name}"))
        for conv, layer in zip(convs, layers, strict=True)
        for name, mine in layer.named_parameters()
    ]
    ours, theirs = ([*inputs, *parameters] for parameters in zip(*pairs, strict=True))
    assert_equal_as_stated(z, y, ours, theirs)


def formula_of(layer, graph, x, context, **on_edges):
    """Output and weights of a layer whose heads have two numbers."""
    maps = (
        (layer.query, x),
        (layer.key, context),
        (layer.value, context),
        (layer.edge, torch.eye(layer.edge_dim)),
    )
    q, k, v, proj = (linear(states).unflatten(1, (-1, 2)) for linear, states in maps)
    known = {"scale": layer.scale, "edge_proj": proj} | on_edges
    heads, weights = attention_formula(graph, q, k, v, **known)
    return layer.out(heads.flatten(1)), weights


@pytest.mark.parametrize("across", [False, True])
def test_leading_dimensions_share_the_graph_and_weights_can_be_asked_for(across):
    """Fewer heads of keys and values, a scale, biases and attributes: as one by one."""
    graph = bipartite([3, 2], [4, 2]) if across else edgewise.window(6, 1, 2)
    layer = GraphAttention(8, 4, num_kv_heads=2, scale=0.3, edge_dim=3, dropout=0.2, skip=True).eval()
    query, context = torch.randn(2, 3, 6, 8), torch.randn(2, 3, 5, 8) if across else None
    on_edges = {"edge_bias": torch.randn(graph.num_edges, 4), "edge_attr": torch.randn(graph.num_edges, 3)}
    output, weights = layer(graph, query, context, **on_edges, need_weights=True)
    assert weights.shape == (2, 3, graph.num_edges, 4)
    torch.testing.assert_close(layer(graph, query, context, **on_edges), output)
    senders, nobody = (query, None) if context is None else (context, context[:0])
    nobody = layer(graph, query[:0], nobody, **on_edges, need_weights=True)
    assert [x.shape[1:] for x in nobody] == [output.shape[1:], weights.shape[1:]]
    nobody[0].sum().backward()
    for i, j in ((0, 0), (1, 2)):
        expected, shares = formula_of(layer, graph, query[i, j], senders[i, j], **on_edges)
        expected = expected + layer.skip(query[i, j])
        torch.testing.assert_close((output[i, j], weights[i, j]), (expected, shares))
    on_edges["edge_bias"] = torch.randn(graph.num_edges, 24)
    with pytest.raises(ValueError, match=r"edge_bias must be \[E, h\] = \[\d+, 4\], got \[\d+, 24\]"):
        layer(graph, query, context, **on_edges)


def test_a_layer_is_made_where_and_as_it_is_asked_to():
    layer = GraphAttention(8, 2, edge_dim=3, skip=True, device="meta", dtype=torch.float64)
    assert {(x.device.type, x.dtype) for x in layer.parameters()} == {("meta", torch.float64)}


def test_weights_are_dropped_in_training():
    graph, x = edgewise.window(20, 2, 2), torch.randn(20, 6)
    layer = GraphAttention(6, 2, dropout=0.5)
    assert not torch.equal(layer(graph, x), layer(graph, x))


def test_attributes_stay_float32_beside_half_precision():
    layer = GraphAttention(8, 2, edge_dim=1).bfloat16()
    attr, x = torch.linspace(1, 1.003, 9)[:, None], torch.randn(3, 8).bfloat16()
    assert torch.equal(attr.bfloat16(), torch.ones(9, 1).bfloat16())
    assert not torch.equal(*(layer(complete(3), x, edge_attr=each) for each in (attr, torch.ones(9, 1))))


def test_the_first_example_says_what_happens():
    assert doctest.testmod(edgewise) == (0, 6)


GOOD, three = torch.zeros(3, 6), complete([3])
PACKED = AttentionGraph.from_lengths([1, 2])
plain = GraphAttention(6, 2)
featured = GraphAttention(6, 2, edge_dim=2)


def changed(module, part=""):
    module.get_submodule(part).register_forward_hook(lambda m, x, y: 2 * y)
    return module


def with_message_hook(conv):
    conv.register_message_forward_hook(lambda *given: None)
    return conv


def adapted(dropout, bias=False):
    config = LoraConfig(
        target_modules=["0"], lora_dropout=dropout, r=1, init_lora_weights=False, lora_bias=bias
    )
    return inject_adapter_in_model(config, nn.Sequential(nn.Linear(2, 4, bias=False)))[0]


def mapped(edge):
    """A layer whose map of attributes is another one, on a graph."""
    layer = GraphAttention(4, 2, edge_dim=2)
    layer.edge = edge
    return layer(complete(3), torch.ones(3, 4), edge_attr=torch.ones(9, 2))


test_bad_input = refusals(
    (lambda: GraphAttention(6, 4), r"dim_model \(6\) must be divisible by num_heads \(4\)"),
    (lambda: GraphAttention(6, 2, output="sum"), "output must be one of 'project', 'concat'"),
    (lambda: GraphAttention(6, 2, engine="fast"), "engine must be one of 'auto'.*got 'fast'"),
    (lambda: plain(3, GOOD), TypeError, "graph must be an AttentionGraph, got int"),
    (lambda: plain(three, GOOD[:2]), r"query must be \[3, 6\] for this graph and layer"),
    (lambda: plain(three, GOOD.double()), "query must be torch.float32 as the layer's"),
    (lambda: plain(three, GOOD, GOOD), "one set of tokens, but context was given"),
    (lambda: plain(bipartite(2, 3), GOOD), "two sets of tokens, but context was not given"),
    (lambda: plain(three, GOOD, edge_attr=torch.zeros(9, 1)), "made with edge_dim=None"),
    (lambda: featured(three, GOOD), "made with edge_dim=2: edge_attr is needed"),
    (lambda: featured(three, GOOD, edge_attr=torch.zeros(8, 2)), "edge_attr must be"),
    (lambda: plain(three, GOOD, edge_bias=torch.zeros(9, 1)), r"bias must be .* \[9, 2\]"),
    (lambda: plain(three, GOOD, edge_bias=torch.zeros(2, 9)), "transpose it"),
    (lambda: plain(three, GOOD, edge_bias=torch.zeros(3, 3)), r"graph\.gather\(matrix\)"),
    (lambda: plain(bipartite(3, 2), GOOD, GOOD[:2]), "the two sides are swapped"),
    (lambda: plain(PACKED, torch.zeros(2, 2, 6)), "packed, without padding"),
    (lambda: plain(three, GOOD[None], edge_bias=torch.zeros(2, 3, 3)), "edge_bias must be"),
    (lambda: featured(three, GOOD, edge_attr=torch.zeros(9, 3)), r"edge_attr must be \[E, c\] = \[9, 2\]"),
    (lambda: featured(three, GOOD, edge_attr=[1.0]), TypeError, "edge_attr must be a floating"),
    (lambda: plain(bipartite(3, 2), GOOD[:2], GOOD[:2]), r"context must be .* got \[2, 6\]$"),
    (lambda: GraphAttention(6, 2, dim_context=5)(three, GOOD), r"query must be \[3, 5\]"),
    (lambda: to_torch(nn.Linear(2, 2)), TypeError, "or come from from_torch, got Linear"),
    (lambda: to_torch(GraphAttention(4, 2, num_kv_heads=1)), "has no such layer"),
    (lambda: from_torch(nn.Linear(2, 2)), TypeError, "or nn.TransformerEncoder, got Linear"),
    (lambda: from_torch(nn.MultiheadAttention(4, 2, add_zero_attn=True)), "or add_zero_attn"),
    (lambda: from_torch(nn.MultiheadAttention(4, 2, kdim=3)), "kdim=3, vdim=4"),
    (lambda: from_pyg(nn.Linear(2, 2)), TypeError, "must be a TransformerConv of PyG, got Linear"),
    (lambda: from_pyg(TransformerConv(4, 2, beta=True)), "beta=True has a gate"),
    (lambda: from_pyg(TransformerConv(4, 2, aggr="max")), r"has aggr=MaxAggregation\(\) and flow"),
    (lambda: from_torch(changed(nn.MultiheadAttention(4, 2), "out_proj")), TypeError, "would be lost"),
    (lambda: from_torch(changed(nn.TransformerEncoderLayer(4, 2, 4), "self_attn")), TypeError, "hooked"),
    (lambda: from_torch(changed(nn.TransformerEncoderLayer(4, 2, 4))), TypeError, "would be lost"),
    (lambda: to_torch(changed(GraphAttention(4, 2))), TypeError, "must be a plain GraphAttention"),
    (lambda: from_pyg(changed(TransformerConv(4, 2))), TypeError, "must be a plain TransformerConv"),
    (lambda: mapped(nn.Linear(2, 4)), "must be an nn.Linear .* without bias"),
    (lambda: mapped(nn.Sequential(nn.Linear(2, 4, bias=False))), "must be an nn.Linear"),
    (lambda: mapped(changed(nn.Linear(2, 4, bias=False))), "dropout or hooks.*edge_bias"),
    (lambda: mapped(adapted(0.0, bias=True)), "without bias"),
    (lambda: mapped(adapted(0.1)), "LoRA are fine. without bias, dropout or hooks"),
    (lambda: to_torch(changed(GraphAttention(4, 2), "value")), TypeError, "value must be a plain Linear"),
    (lambda: from_pyg(changed(TransformerConv(4, 2), "lin_key")), TypeError, "must be a plain Linear"),
    (lambda: plain(three, torch.nested.nested_tensor([GOOD])), TypeError, r"torch\.cat\(query\.unbind"),
    (lambda: plain(three, GOOD.to_sparse()), TypeError, "dense tensor, .* layout torch.sparse_coo"),
    (lambda: plain(three, GOOD.to(torch.float8_e4m3fn)), TypeError, "got torch.float8"),
    (lambda: from_pyg(with_message_hook(TransformerConv(4, 2))), TypeError, "hooked, and what it does"),
    (lambda: from_pyg(TransformerConv(-1, 2)), "does not know its widths yet"),
)


@pytest.mark.parametrize("make", [weight_norm, lambda linear: adapted(0.0)], ids=["parametrised", "LoRA"])
def test_a_changed_map_of_edges_is_what_its_edges_get(make):
    layer, x, attr = GraphAttention(4, 2, edge_dim=2), torch.randn(5, 4), torch.randn(25, 2)
    layer.edge = make(layer.edge)
    for layer.engine in ("csr", "scatter"):
        expected, _ = formula_of(layer, complete(5), x, x, edge_attr=attr)
        torch.testing.assert_close(layer(complete(5), x, edge_attr=attr), expected)


def test_a_layer_from_pyg_is_in_the_mode_of_the_one_it_comes_from():
    conv = TransformerConv(4, 2, dropout=0.5).double()
    conv.lin_key.weight.requires_grad_(False)
    layer = from_pyg(conv.eval())
    assert not layer.training
    assert torch.equal(layer.value.weight, conv.lin_value.weight)
    assert [name for name, p in layer.named_parameters() if not p.requires_grad] == ["key.weight"]
    assert from_pyg(conv.train()).training
