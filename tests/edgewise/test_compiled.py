"""Compiled and exported programs: attention is one opaque call, for which a graph's plan is tensors."""

import random

import pytest
import torch
from torch import nn
from torch._dynamo.backends.debugging import aot_eager

from edgewise import GraphAttention, causal, from_torch, prepare, window
from edgewise.graphs import random_links
from edgewise.propagation import propagate_attention
from edgewise.propagation.csr import csr_engine as csr
from edgewise.propagation.csr.pattern import edge_order, pattern_of
from edgewise.propagation.fields import Fields, KernelFields, absent_to_empty
from edgewise.propagation.tiles import tile_plan
from edgewise.propagation.tiles import tiles_engine as tiles
from support import TRITON, assert_equal_as_stated, random_fields


@pytest.fixture(params=[lambda: window(90, 2, 2), lambda: causal([5, 70, 9]), lambda: random_links(70, 2)])
def graph(request):
    return request.param()


@pytest.fixture(autouse=True)
def _compile_anew():
    torch.compiler.reset()


@pytest.mark.parametrize("engine", ["scatter", "csr", "tiles", "auto", TRITON])
def test_a_layer_compiles_as_one_program(engine, graph, doubled):
    edge_dim, x = None if engine == "tiles" else 3, torch.randn(graph.num_dst, 6)
    layer = GraphAttention(6, 2, engine=engine, edge_dim=edge_dim)
    given = {"edge_bias": torch.randn(graph.num_edges, 2, requires_grad=True)}
    if edge_dim:
        given["edge_attr"] = torch.randn(graph.num_edges, 3, requires_grad=True)
    leaves = [*layer.parameters(), *given.values()]
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    outputs = [run(graph, x, **given) for run in (layer, compiled)]  # the first makes the plan
    assert_equal_as_stated(*outputs, leaves)


def test_gradients_are_as_precise_where_backward_is_inside_of_autocast(graph):
    fields, found = random_fields(graph, 2, 8), []
    for run in (propagate_attention, torch.compile(propagate_attention, backend="aot_eager")):
        output = run(graph, *fields, engine="tiles").square().sum()
        with torch.autocast("cpu", torch.bfloat16):
            found.append(torch.autograd.grad(output, fields))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("extra", ["", "bias", "factors"])
def test_operators_do_what_a_compiler_is_told(extra, graph):
    """Schemas, shapes, strides, gradients, sizes that change."""
    fields = [*random_fields(graph, 2, 3)[:2], random_fields(graph, 2, 4)[2]]
    bias = torch.randn(graph.num_edges, 2, requires_grad=True) if extra == "bias" else None
    factors = torch.rand(graph.num_edges, 2).round() if extra == "factors" else None
    tensors = [*tile_plan.plan_tiles(graph).tensors, *(tile_plan.score_positions(graph) if extra else ())]
    torch.library.opcheck(tiles._operator, (absent_to_empty(Fields(*fields, bias, factors)), tensors, 0))
    of_attr = [torch.randn(len(x), *shape) for x, shape in ((fields[0], (2, 4)), (graph.src, (4,)))]
    for heads in (2, 1):  # at once, and in turns
        on_edges = [x if x is None else x.detach().T.reshape(2 // heads, -1) for x in (bias, factors)]
        given = absent_to_empty(KernelFields(*fields, *on_edges, *(of_attr if extra else [None, None])))
        plan = [*pattern_of(graph, heads), edge_order(graph, heads)], heads
        torch.library.opcheck(csr._operator, ([x.clone().requires_grad_() for x in given], *plan))
        *outputs, weights, sums = csr._operator(given, *plan)
        wanted = [x.dim() > 1 and x is not KernelFields._make(given).factors for x in given]
        backward = given, *plan, [weights, sums], outputs, wanted
        torch.library.opcheck(torch.ops.edgewise.csr_backward, backward, test_utils="test_faketensor")


def packed(seed, count):
    draw = random.Random(seed)
    return [causal([draw.randint(1, 60) for _ in range(draw.randint(1, 12))]) for _ in range(count)]


@pytest.mark.parametrize("engine", ["csr", "auto"])
@pytest.mark.parametrize("planned", [True, pytest.param(False, marks=pytest.mark.nightly)])
@torch._dynamo.config.patch(recompile_limit=200)
def test_forty_sets_of_packed_lengths_compile_a_handful_of_times(engine, planned, doubled):
    """Without a plan programs break where one is made; they are a few more, and not more and more."""
    layer, counts, seen = GraphAttention(8, 2, engine=engine), [], []

    def counted(module, inputs):
        counts.append(len(seen))
        return aot_eager(module, inputs)

    compiled = torch.compile(layer, backend=counted, fullgraph=planned)
    for graph in packed(0, 40):
        seen.append(graph)
        x = torch.randn(graph.num_dst, 8)
        if planned:
            layer(prepare(graph, 2, 4), x)
        found = compiled(graph, x)
        torch.testing.assert_close(found, layer(graph, x))
        found.sum().backward()
    assert len(counts) <= (6 if planned else 20)
    assert max(counts) < 20


class OnGraph(nn.Module):
    def __init__(self, engine, graph):
        super().__init__()
        self.layer, self.graph = GraphAttention(8, 2, engine=engine), graph

    def forward(self, x):
        return self.layer(self.graph, x)


@pytest.mark.parametrize("engine", ["csr", "tiles"])
@pytest.mark.parametrize("strict", [True, False])
def test_a_planned_graph_is_exported_and_read_again(engine, strict, graph, tmp_path, doubled):
    model, x = OnGraph(engine, graph), torch.randn(graph.num_dst, 8)
    model(x), prepare(graph, 2, 4)
    torch.export.save(torch.export.export(model, (x,), strict=strict), tmp_path / "program.pt2")
    program = torch.export.load(tmp_path / "program.pt2").module()
    for other in (x, -2 * x):
        torch.testing.assert_close(program(other), model(other))


def test_a_graph_without_a_plan_is_not_exported_and_stays_as_it_was():
    """As do the plans that graphs of equal lengths share."""
    model, x = OnGraph("auto", causal([23, 18])), torch.randn(41, 8)
    with pytest.raises(ValueError, match=r"make it before, by edgewise\.prepare"):
        torch.export.export(model, (x,), strict=False)
    for graph in (model.graph, causal([23, 18])):
        assert model.layer(graph, x).isfinite().all()


@pytest.mark.nightly
def test_inductor_compiles_a_layer_for_packed_texts(tmp_path, monkeypatch, doubled):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    layer = from_torch(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, norm_first=True))
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for graph in packed(1, 3):
        x = torch.randn(graph.num_dst, 8)
        assert_equal_as_stated(layer(graph, x), compiled(graph, x), layer.parameters())
