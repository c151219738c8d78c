"""Engines against masked attention in float64, value and gradient; tile plans; what is refused."""

import importlib
import math
import pickle

import pytest
import torch
import torch.utils.checkpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.autograd import forward_ad

import edgewise
from edgewise.graphs import (
    AttentionGraph,
    bigbird,
    bipartite,
    causal,
    complete,
    per_graph,
    random_links,
    window,
)
from edgewise.propagation import ENGINES, choice, operation, plan_tiles, prepare, propagate_attention
from edgewise.propagation.fields import Fields
from edgewise.propagation.tiles import tile_plan as planning
from support import TRITON, edge_graphs, interval_graphs, random_fields
from support import check_propagation as check

graphs = st.one_of(edge_graphs(), interval_graphs())
sparse = importlib.import_module("edgewise.propagation.csr.pattern")
triton_engine = importlib.import_module("edgewise.propagation.triton.triton_engine")
engines = pytest.mark.parametrize("engine", [*ENGINES, TRITON])
PIECES = pytest.param("triton in pieces", marks=pytest.mark.triton)


@pytest.fixture(
    params=[*ENGINES, TRITON, "tiles that are cut", "tiles in one call", "csr with heads in turns", PIECES]
)
def way(request, monkeypatch):
    """Every engine, and how three of them treat graphs that are larger than those of tests, or a GPU's."""
    if " " in request.param:
        monkeypatch.setattr(triton_engine, "CHUNK", 2)
        monkeypatch.setattr(planning, "SINGLE", 0)
        monkeypatch.setattr(planning, "DENSE", 0)
        monkeypatch.setitem(sparse.STACKED, "cpu", 0)
        monkeypatch.setitem(planning.FILLS, "cpu", 2**22 if "one" in request.param else 0)
    return request.param.split()[0]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    graphs,
    st.integers(1, 8),
    st.integers(1, 7),
    st.sampled_from([None, None, 10.0, 100.0]),
    st.integers(0, 5),
    st.booleans(),
    st.sampled_from([0.0, 0.0, 0.4]),
    st.sampled_from([None, 1, 9]),
    st.sampled_from([1, 1, 2, 3]),
)
def test_equal_to_dense_attention_on_any_graph(way, graph, heads, d, highest, seed, biased, p, d_v, group):
    check(graph, way, heads, d, highest, seed, biased, p, d_v, group)


def test_biases_and_dropout_reach_every_tile_of_a_window_and_all_edges_of_a_hub(way):
    for graph in (window([90, 3, 41], 5, 2), bigbird(40, 1, 1, 1)):
        check(graph, way, 2, 3, biased=True, dropout=0.3)


@engines
@given(edge_graphs(max_tokens=4, multi=True).filter(lambda g: g.has_multi_edges))
def test_two_edges_of_a_pair_are_two_edges(engine, graph):
    fields = random_fields(graph, 2, 3)
    bias = torch.randn(graph.num_edges, 2, requires_grad=True)
    if engine == "tiles":
        with pytest.raises(ValueError, match="two edges of the same pair; use engine='csr'"):
            propagate_attention(graph, *fields, engine=engine)
        engine = "auto"
    actual, expected = (
        propagate_attention(graph, *fields, engine=by, edge_bias=bias) for by in (engine, "scatter")
    )
    torch.testing.assert_close(actual, expected)
    found, reference = (torch.autograd.grad(x.square().sum(), [*fields, bias]) for x in (actual, expected))
    for gradient, other in zip(found, reference, strict=True):
        torch.testing.assert_close(gradient, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("engine", ["auto", "scatter", TRITON])
@pytest.mark.parametrize("stacked", [0, 2**19])
@given(edge_graphs(multi=True).filter(lambda g: g.num_edges), st.sampled_from([0.0, 0.4]), st.integers(1, 4))
def test_attributes_of_edges_are_projected_and_added_to_keys_and_values(stacked, engine, graph, dropout, c):
    fields = random_fields(graph, 2, 3, torch.float64)
    shapes = (graph.num_edges, c), (c, 2, 3), (graph.num_edges, 2)
    attr, weight, bias = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    given = [*fields, *(x.requires_grad_() for x in (attr, weight, bias - 1000))]  # exp(1000) is infinite
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sparse.STACKED, "cpu", stacked)
        patch.setattr(triton_engine, "CHUNK", 256 if stacked else 2)
        torch.manual_seed(0)
        options = dict(zip(("edge_attr", "edge_proj", "edge_bias"), given[3:], strict=True))
        output = propagate_attention(graph, *fields, engine=engine, dropout=dropout, **options)
        torch.manual_seed(0)
        kept = torch.empty(graph.num_edges, 2).double().bernoulli_(1 - dropout) / (1 - dropout)
        rows, (q, k, v, attr, weight, bias) = [], given
        for receiver in range(graph.num_dst):
            edges = (graph.dst == receiver).nonzero()[:, 0]
            added = torch.einsum("ec,chd->ehd", attr[edges], weight)
            keys, values = (x[graph.src[edges]] + added for x in (k, v))  # [in-degree, h, d]
            scores = torch.einsum("hd,ehd->eh", q[receiver], keys) / 3**0.5 + bias[edges]
            rows.append(torch.einsum("eh,ehd->hd", scores.softmax(0) * kept[edges], values))
        expected, upstream = torch.stack(rows), torch.randn_like(output)
        torch.testing.assert_close(output, expected)
        found, reference = (torch.autograd.grad(x, given, upstream) for x in (output, expected))
    for gradient, other in zip(found, reference, strict=True):
        torch.testing.assert_close(gradient, other)


@engines
@pytest.mark.parametrize("which", "qkv")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 3e38])
@pytest.mark.parametrize("whole", [False, True])
def test_what_is_not_finite_spreads_along_edges_and_nowhere_else(engine, which, value, whole):
    graph = AttentionGraph(*torch.tensor([[0, 1, 2, 2, 3, 4], [1, 1, 1, 3, 4, 0]]), 6)
    graph = complete(6) if whole else graph
    fields = dict(zip("qkv", (x.detach() for x in random_fields(graph, 2, 3)), strict=True))
    fields[which][2, 0, 1] = value
    output = propagate_attention(graph, **fields, engine=engine)
    for receiver in range(6):
        senders = graph.src[graph.dst == receiver]
        scores = torch.einsum("hd,ehd->eh", fields["q"][receiver], fields["k"][senders]) / 3**0.5
        weights = scores.softmax(0).masked_fill((scores == -math.inf).all(0), 0.0)
        expected = torch.einsum("eh,ehd->hd", weights, fields["v"][senders])
        torch.testing.assert_close(output[receiver], expected, equal_nan=True)


@engines
@pytest.mark.parametrize(
    "graph", [window([9, 5], 2, 1), causal([4, 3]), complete(4)], ids=["window", "causal", "whole"]
)
def test_second_derivatives_are_right_or_refused_with_a_sentence(engine, graph):
    fields = random_fields(graph, 1, 2, dtype=torch.float64)
    if engine == "scatter":
        assert torch.autograd.gradgradcheck(lambda *f: propagate_attention(graph, *f, engine=engine), fields)
        return
    for power in (1, 2):  # the gradient that comes from above is a constant, or is not
        output = propagate_attention(graph, *fields, engine=engine).pow(power).sum()
        with pytest.raises(RuntimeError, match="for second derivatives use engine='scatter'"):
            torch.autograd.grad(output, fields[0], create_graph=True)[0].square().sum().backward()


def test_a_sender_in_two_tiles_gets_all_of_its_gradient():
    """Senders and receivers have the same slots here, but not the same padding."""
    runs = [(17 * j, 17 * j + 17) for j in range(14) for _ in range(16)]
    runs += [(238 + i, 240 + i) for i in range(31)] + [(270, 287)] * 15 + [(287, 295)] * 25
    start, stop = torch.tensor(runs).T
    graph = AttentionGraph.from_intervals(start, stop, len(runs), self_attention=False)
    check(graph, "tiles", 1, 2)


@pytest.mark.parametrize("engine", ["tiles", "csr", "scatter"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize(("dtype", "factor"), [(torch.bfloat16, 6.0), (torch.float16, 150.0)])
def test_scores_of_half_precision_are_not_rounded(engine, dropout, dtype, factor):
    graph, generator = complete([30]), torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(30, 2, 8, generator=generator).mul(m).to(dtype) for m in (factor, factor, 1))
    outputs = []
    for fields, by in (((q, k, v), engine), ([x.double() for x in (q, k, v)], "scatter")):
        torch.manual_seed(1)
        with pytest.MonkeyPatch.context() as patch:
            keep = torch.rand(graph.num_edges, 2) > dropout
            kept = keep.to(fields[0].dtype) / (1 - dropout)
            patch.setattr(torch.Tensor, "bernoulli_", lambda x, p, kept=kept: x.copy_(kept * p))
            outputs.append(propagate_attention(graph, *fields, engine=by, dropout=dropout).double())
    assert (outputs[0] - outputs[1]).abs().max() < 0.02


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_biases_that_are_not_finite_do_what_they_do_to_a_dense_softmax(way, value):
    """Minus infinity hides an edge; at all in-edges of a receiver it leaves zeros and finite gradients."""
    lists = AttentionGraph(complete([4, 3]).src, complete([4, 3]).dst, 7)
    for graph in (complete([4, 3]), causal([5]), lists):
        fields = random_fields(graph, 1, 2)
        for hidden, edges in ((False, graph.dst == 1), (True, (graph.dst == 2) & (graph.src < 2))):
            bias = torch.zeros(graph.num_edges, 1).masked_fill(edges[:, None], value)
            outputs, gradients = [], []
            for by in (way, "scatter"):
                torch.manual_seed(0)
                given = {"engine": by, "edge_bias": bias, "dropout": 0.2}
                outputs.append(propagate_attention(graph, *fields, **given))
                gradients.append(torch.cat(torch.autograd.grad(outputs[-1].sum(), fields)))
            torch.testing.assert_close(*outputs, equal_nan=True)
            torch.testing.assert_close(*gradients, equal_nan=True)
            if way == "tiles" and value == -math.inf:  # nothing is computed anew by another engine
                alone = ENGINES[way](graph, Fields(*fields, bias, torch.ones(graph.num_edges, 1)))
                torch.testing.assert_close(alone, propagate_attention(graph, *fields, edge_bias=bias))
                assert all(bool(x.isfinite().all()) for x in torch.autograd.grad(alone.sum(), fields))
            wrong = outputs[0].isnan().flatten(1).any(1).nonzero().flatten().tolist()
            assert wrong == ([] if value == -math.inf else [2] if hidden else [1])
            assert value != -math.inf or bool(gradients[0].isfinite().all())
            assert value != -math.inf or hidden or not outputs[0][1].any()


@pytest.mark.parametrize("rows", [(1, 1), (2, 3), (16, 256)])
@given(graph=st.one_of(graphs, edge_graphs(max_tokens=40)))
def test_tiles_of_any_height_give_the_same_result(rows, graph):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module("edgewise.propagation.tiles.tile_cuts"), "ROWS", rows)
        patch.setattr(planning, "BUCKET_RATIO", 1.1)
        patch.setattr(planning, "SINGLE", 0)
        patch.setattr(planning, "DENSE", 0)
        check(graph, "tiles", 1, 2)


@pytest.mark.parametrize("single", [0, planning.SINGLE])
@given(graph=graphs.filter(lambda graph: graph.num_edges))
def test_a_kernel_sees_receivers_with_in_edges_alone(single, graph):
    """On a GPU in half precision, one gives others the mean of all values."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "SINGLE", single)
        received = plan_tiles(graph).layout.receivers.tokens
    assert received.unique().equal(graph.dst.unique())


@given(graphs)
def test_weights_are_the_softmax_that_the_engines_use(graph):
    q, k, v = random_fields(graph, 2, 3)
    weights = edgewise.attention_weights(graph, q, k)
    assert weights.shape == (graph.num_edges, 2)
    connected = torch.bincount(graph.dst, minlength=graph.num_dst) > 0
    totals = torch.zeros(graph.num_dst, 2).index_add(0, graph.dst, weights)
    torch.testing.assert_close(totals, connected[:, None].expand(-1, 2).float())
    messages = weights[..., None] * v[graph.src]
    output = torch.zeros(graph.num_dst, 2, 3).index_add(0, graph.dst, messages)
    torch.testing.assert_close(output, propagate_attention(graph, q, k, v))


@engines
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_adds_up_many_messages_and_many_gradients(engine, dtype):
    for n, m in (600, 3), (3, 600):
        graph = AttentionGraph(*torch.cartesian_prod(torch.arange(n), torch.arange(m)).T, n, m)
        q, k, v = (x.detach().to(dtype) for x in random_fields(graph, 1, 4))
        v = v.abs().requires_grad_()
        output = propagate_attention(graph, q * 0, k, v, engine=engine)
        assert output.dtype == dtype
        expected = v.double().mean(0).expand(m, 1, 4)
        torch.testing.assert_close(output.double(), expected, atol=0.01, rtol=0.02)
        (gradient,) = torch.autograd.grad(output.sum(), v)
        torch.testing.assert_close(gradient, torch.full_like(v, m / n), atol=0.0, rtol=0.02)


@engines
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_bias_keeps_its_precision_and_products_do_not_overflow(engine, dtype):
    """As with ALiBi on long texts: large numbers, of which differences matter."""
    torch.manual_seed(0)
    graph = causal(40)
    q, k, v = (x.detach().to(dtype) for x in random_fields(graph, 1, 64))
    bias = -(graph.dst - graph.src + 1000.0)[:, None] / 3
    for factor, scale in ((1, None), (300, None), (300, 0.126), (1, 1e4)):
        given = {"engine": engine, "scale": scale}
        found = propagate_attention(graph, factor * q, k, v, edge_bias=bias, **given)
        doubles = [(factor * q).double(), k.double(), v.double()]
        expected = propagate_attention(graph, *doubles, edge_bias=bias.double(), **given)
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, atol=0.02, rtol=0.02)


@engines
@pytest.mark.parametrize("reentrant", [False, True])
def test_activations_can_be_computed_again(engine, reentrant):
    graph = AttentionGraph(torch.tensor([0, 1, 2, 2]), torch.tensor([1, 2, 2, 0]), 3)
    x = torch.randn(3, 2, 4, requires_grad=True)

    def attend(x):
        return propagate_attention(graph, x, x, x, engine=engine)

    again = torch.utils.checkpoint.checkpoint(attend, x, use_reentrant=reentrant)
    again.square().sum().backward()
    torch.testing.assert_close(x.grad, torch.autograd.grad(attend(x).square().sum(), x)[0])


class Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return None


@engines
def test_a_gradient_that_is_not_there_is_none(engine):
    fields = random_fields(complete([3, 4]), 2, 3)
    output = Nothing.apply(propagate_attention(complete([3, 4]), *fields, engine=engine))
    for found in torch.autograd.grad(output.sum(), fields, allow_unused=True):
        assert found is None or not found.any()


@engines
def test_autocast_does_not_change_what_an_engine_returns(engine):
    graph = complete([3, 4])
    fields = random_fields(graph, 2, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = propagate_attention(graph, *fields, engine=engine)
    assert output.dtype == torch.float32
    torch.testing.assert_close(output, propagate_attention(graph, *fields, engine=engine))


class TestPlan:
    @pytest.fixture(autouse=True)
    def _cut_small_graphs(self, monkeypatch):
        monkeypatch.setattr(planning, "SINGLE", 0)

    def test_sentences_of_one_length_need_neither_copy_nor_mask(self):
        plan = plan_tiles(complete([5, 5, 5]))
        assert plan.layout.receivers.trivial
        assert plan.layout.senders.trivial
        assert [(b.num_tiles, b.rows, b.columns, b.mask) for b in plan.layout.buckets] == [(3, 5, 5, None)]
        assert plan.scores == plan.edges == 75

    def test_causal_sentences_need_no_mask_even_when_padded(self):
        plan = plan_tiles(causal([5, 6, 7]))
        assert [(b.mask, b.is_causal) for b in plan.layout.buckets] == [(None, True)] * plan.calls

    def test_a_window_is_cut_into_few_tiles_that_waste_at_most_half_their_scores(self):
        plan = plan_tiles(window(4096, 32, 32))
        assert plan.scores <= 2.1 * plan.edges
        assert sum(b.num_tiles for b in plan.layout.buckets) <= 4096 / 64 + 1  # as many rows as the window

    def test_edges_that_form_intervals_are_planned_as_intervals(self):
        graph = window(300, 4, 4)
        order = torch.randperm(graph.num_edges)
        same = AttentionGraph(graph.src[order], graph.dst[order], 300)
        assert plan_tiles(same).scores == plan_tiles(graph).scores

    def test_graphs_of_equal_lengths_share_a_plan_if_one_was_among_the_latest(self, monkeypatch):
        plan = plan_tiles(complete([2, 3]))
        assert plan_tiles(complete([2, 3])) is plan
        others = complete([3, 2]), causal([2, 3]), bipartite([2, 3], [2, 3]), bipartite([2], [3])
        active = complete([2, 3]).restrict(torch.tensor([True, True, False, True, True]))
        alike = window([2, 3], 0, 1), window([2, 3], 1, 1), window([2, 3], 1, 0)
        plans = [plan, *map(plan_tiles, (*others, *alike, active))]
        assert len({id(each) for each in plans}) == len(plans)
        last = plan_tiles(complete([4]))
        monkeypatch.setattr(per_graph, "BYTES", 2 * last.size)
        newest = plan_tiles(complete([5]))
        assert plan_tiles(complete([5])) is newest
        assert plan_tiles(complete([4])) is not last
        newest = plan_tiles(complete([5]))
        plan_tiles(complete([400, 3]))  # too large to be kept, and no reason to forget others
        assert plan_tiles(complete([5])) is newest
        monkeypatch.setattr(per_graph, "GRAPHS", len(per_graph._shared))
        complete([6])
        assert len(per_graph._shared) == per_graph.GRAPHS

    def test_tall_and_wide_tiles_do_not_share_a_bucket(self):
        plan = plan_tiles(bipartite([300, 3], [3, 300]))
        assert plan.scores == plan.edges == 1800

    def test_all_sizes_share_one_if_that_does_not_fill_the_device(self, monkeypatch):
        monkeypatch.setitem(planning.FILLS, "cpu", 4 * 100**2)
        assert plan_tiles(complete([100, 50, 50, 50])).calls == 1
        assert plan_tiles(complete([101, 50, 50, 50])).calls == 2


def ladder(tokens):
    """A graph that tiles badly: each token attends to two that are far away and far apart."""
    i = torch.arange(tokens)
    src = torch.cat([i * 37 % tokens, (i * 37 + tokens // 2) % tokens])
    return AttentionGraph(src, torch.cat([i, i]), tokens)


def test_tiles_refuses_a_plan_over_its_limits_and_auto_takes_another_engine(monkeypatch):
    graph = ladder(2_001)
    monkeypatch.setattr(planning, "ALWAYS_AFFORDABLE", 10_000)
    fields = random_fields(graph, 1, 2)
    with pytest.raises(ValueError, match=r"tiles would compute [\d,]+ scores for 4,002 edges.*'auto'"):
        propagate_attention(graph, *fields, engine="tiles")
    torch.testing.assert_close(
        propagate_attention(graph, *fields), propagate_attention(graph, *fields, engine="scatter")
    )


def test_auto_takes_what_its_table_says(monkeypatch):
    taken = []

    def spy(name):
        return lambda *_: taken.append(name) or torch.zeros(1)

    monkeypatch.setattr(operation, "ENGINES", {name: spy(name) for name in ENGINES})
    twice = AttentionGraph(*torch.tensor([[0, 0, 1], [1, 1, 0]]), 2)
    some = (complete(8), twice, complete([200] * 5), complete([12] * 100))
    lists = random_links(9000, 2), ladder(900), ladder(100)
    for graph in (*some, *lists):
        propagate_attention(graph, *random_fields(graph, 4, 32))
    expected = ["tiles", "scatter", "tiles", "csr"]
    assert taken == [*expected, "csr", "scatter", "scatter"]
    assert [choice(graph, 4, 32).engine for graph in some] == expected
    prepared = [choice(prepare(graph, 4, 32), 4, 32).engine for graph in (*some, *lists)]
    assert prepared == ["tiles", "scatter", "tiles", "csr", "csr", "csr", "scatter"]
    dense = AttentionGraph.from_edge_index(complete([200] * 5).edge_index, 1000)
    assert (choice(dense, 4, 32).engine, "plan_tiles" in dense._known) == ("csr", False)
    assert choice(prepare(dense, 4, 32), 4, 32).engine == "tiles"
    empty = AttentionGraph(*torch.zeros(2, 0, dtype=torch.int64), 100)
    assert choice(empty, 4, 32).engine == "scatter"
    assert plan_tiles(empty).scores == 0


@pytest.mark.parametrize("ask", [prepare, choice])
def test_what_is_no_graph_is_refused(ask):
    with pytest.raises(TypeError, match="graph must be an AttentionGraph, got list"):
        ask([complete(3)], 4, 8)


def test_what_a_graph_was_prepared_with_travels(doubled, monkeypatch):
    """No pattern is made again in another process; the result is a new graph's, by another engine."""
    new, given = ladder(900), {"edge_bias": torch.randn(1800, 4, requires_grad=True)}
    fields = [x.double().requires_grad_() for x in random_fields(new, 4, 32)]
    assert pickle.loads(pickle.dumps(new))._known == {}
    found = pickle.loads(pickle.dumps(prepare(ladder(900), 4, 32)))
    assert (choice(found, 4, 32).engine, choice(new, 4, 32).engine) == ("csr", "scatter")
    monkeypatch.setattr(sparse, "_of_edges", None)
    monkeypatch.setattr(sparse, "_stacked_runs", None)
    outputs = [propagate_attention(graph, *fields, **given) for graph in (found, new)]
    torch.testing.assert_close(*outputs)
    leaves = [*fields, given["edge_bias"]]
    torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), leaves) for y in outputs))


@pytest.mark.parametrize(("n", "made"), [(900, False), (20_000, True)])
def test_with_attributes_what_they_need_is_made_and_no_more(n, made):
    graph = prepare(ladder(n), 4, 32, edge_dim=8)
    before = {*graph._known}
    q, k, v = random_fields(graph, 4, 32)
    attributes = {"edge_attr": torch.randn(2 * n, 8), "edge_proj": torch.randn(8, 4, 32)}
    propagate_attention(graph, q, k, v, **attributes)
    assert {*graph._known} == before
    assert any(not name.startswith(("prepared", "_choice")) for name in before) == made


def test_transforms_of_functions_go_through_auto():
    graph = complete([8] * 30)
    q, k, v = (x.detach() for x in random_fields(graph, 4, 32, torch.float64))
    attr, weight = torch.randn(graph.num_edges, 2).double(), torch.randn(2, 4, 32).double()
    for options in ({}, {"edge_attr": attr, "edge_proj": weight}):

        def total(q, options=options):
            return propagate_attention(graph, q, k, v, **options).square().mean()

        expected = torch.autograd.grad(total(q.requires_grad_()), q)[0]
        torch.testing.assert_close(torch.func.grad(total)(q.detach()), expected)
        with forward_ad.dual_level():
            tangent = forward_ad.unpack_dual(total(forward_ad.make_dual(q.detach(), expected))).tangent
        torch.testing.assert_close(tangent, expected.square().sum())
    for engine in ("tiles", "csr"):
        with pytest.raises(ValueError, match="transforms and forward mode: use 'scatter'"):
            torch.func.vmap(lambda q: propagate_attention(graph, q, k, v, engine=engine))(q[None])  # noqa: B023


zeros = torch.zeros
FEATURES = {"edge_attr": zeros(9, 2), "edge_proj": zeros(2, 1, 4)}
GOOD = {"graph": complete(3), **{name: zeros(3, 1, 4) for name in "qkv"}}
DOUBLES = {name: zeros(3, 1, 4).double() for name in "qkv"}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"graph": 3}, TypeError, "graph must be an AttentionGraph, got int"),
        ({"engine": "tile"}, ValueError, "engine must be one of 'auto', 'scatter'.*got 'tile'"),
        ({"q": zeros(3, 1, 0)}, ValueError, r"h and d at least 1, got \[3, 1, 0\]"),
        ({"q": zeros(2, 1, 4)}, ValueError, r"q must be \[num_dst, h, d\] = \[3, 1, 4\]"),
        ({"k": zeros(2, 1, 4)}, ValueError, r"k must be \[num_src, h, d\] = \[3, 1, 4\]"),
        ({"v": zeros(3, 2, 4)}, ValueError, r"v must be .* got \[3, 2, 4\]"),
        ({"k": zeros(3, 1, 4).double()}, ValueError, "k must have q's dtype torch.float32"),
        ({"q": [1.0]}, TypeError, "q must be a floating-point tensor, got list"),
        ({"v": zeros(3, 1, 4, device="meta")}, ValueError, "v must be on the graph's device cpu"),
        ({"edge_bias": zeros(8, 1)}, ValueError, r"edge_bias must be \[E, h\] = \[9, 1\], got \[8, 1\]"),
        ({"edge_bias": zeros(9, 1).double()}, ValueError, "edge_bias must be torch.float32 on cpu as q is"),
        (DOUBLES | {"edge_bias": zeros(9, 1)}, ValueError, "edge_bias must be torch.float64 on cpu as q is"),
        ({"dropout": 1.0}, ValueError, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"edge_attr": zeros(9, 2)}, ValueError, "go together, got one"),
        (FEATURES | {"edge_attr": zeros(8, 2)}, ValueError, r"be \[E, c\] = \[9, 2\], got \[8, 2\]"),
        (FEATURES | {"edge_attr": zeros(9)}, ValueError, r"edge_attr must be \[E, c\] = \[9, 2\], got \[9\]"),
        (FEATURES | {"edge_proj": zeros(2, 3, 4)}, ValueError, r"edge_proj must be .* = \[2, 1, 4\]"),
        (FEATURES | {"engine": "tiles"}, ValueError, "takes no attributes of edges: use 'csr'"),
        (FEATURES | {"v": zeros(3, 1, 2)}, ValueError, "width 4, got 2"),
    ],
)
def test_bad_input(change, error, message):
    with pytest.raises(error, match=message):
        propagate_attention(**GOOD | change)
