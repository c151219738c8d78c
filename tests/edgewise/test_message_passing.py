"""Engines against masked attention in float64, value and gradient; tile plans; what is refused."""

import importlib
import math
import pickle
from functools import partial
from unittest import mock

import pytest
import torch
import torch.utils.checkpoint
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch.autograd import forward_ad

from edgewise import AttentionGraph, bigbird, bipartite, causal, complete, propagate_attention, window
from edgewise.graph_attention import GraphAttention
from edgewise.graphs import per_graph, random_links
from edgewise.propagation import (
    ENGINES,
    add_sinks,
    attention_weights,
    choice,
    merge_parts,
    operation,
    plan_tiles,
    prepare,
)
from edgewise.propagation.fields import Fields
from edgewise.propagation.tiles import tile_cuts
from edgewise.propagation.tiles import tile_plan as planning
from support import TRITON, any_graphs, dropout_mask, multigraphs, random_fields, refusals
from support import assert_equal_as_stated as assert_equal
from support import attention_formula as formula
from support import check_propagation as check

dense_call = importlib.import_module("edgewise.propagation.dense_call")
sparse = importlib.import_module("edgewise.propagation.csr.pattern")
tiles_engine = importlib.import_module("edgewise.propagation.tiles.tiles_engine")
triton_engine = importlib.import_module("edgewise.propagation.triton.triton_engine")
engines = pytest.mark.parametrize("engine", [*ENGINES, TRITON])
PIECES = pytest.param("triton in pieces", marks=pytest.mark.triton)
TILES = ["tiles that are cut", "tiles of three rows", "tiles in one call"]


@pytest.fixture(params=[*ENGINES, TRITON, *TILES, "csr with heads in turns", PIECES])
def way(request, monkeypatch):
    """Every engine, and how three of them treat graphs that are larger than those of tests, or a GPU's."""
    if " " in request.param:
        monkeypatch.setattr(triton_engine, "CHUNK", 2)
        monkeypatch.setattr(planning, "SINGLE", 0)
        monkeypatch.setattr(planning, "DENSE", 0)
        monkeypatch.setitem(sparse.STACKED, "cpu", 0)
        monkeypatch.setitem(planning.TOO_FEW, "cpu", 2**22 if "one" in request.param else 0)
    if "three" in request.param:
        monkeypatch.setattr(tile_cuts, "ROW_LIMITS", (2, 3))
        monkeypatch.setattr(planning, "BUCKET_RATIO", 1.1)
    return request.param.split()[0]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    multigraphs,
    st.integers(1, 8),
    st.integers(1, 7),
    st.sampled_from([(None, None), (None, -100.0), (None, 0.0), (10.0, 0.0), (100.0, None)]),
    st.integers(0, 5),
    st.sampled_from([0.0, 0.0, 0.4]),
    st.sampled_from([None, 1, 9]),
    st.sampled_from([1, 1, 2, 3]),
    st.sampled_from([0, 0, 1, 3]),
)
def test_equal_to_the_formula_on_any_graph(way, graph, heads, d, scores, seed, p, d_v, group, c):
    """Two edges of a pair are two edges; attributes, projected, are added to keys and values."""
    if way == "tiles":
        assume(not graph.has_multi_edges)
        c = 0
    highest, bias = scores
    check(graph, way, heads, d, highest, seed, bias, p, None if c else d_v, group, c)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(multigraphs, st.sampled_from([None, 0.0, -torch.inf]), st.sampled_from([1, 40]), st.integers(0, 5))
def test_log_sum_exps_are_those_of_each_receivers_scores(way, graph, hidden, size, seed):
    """With gradients, alone and beside those of outputs."""
    assume(way != "tiles" or not graph.has_multi_edges)
    q, k, v = random_fields(graph, 2, 3, torch.float64, seed)
    bias = None if hidden is None else torch.randn(graph.num_edges, 2, dtype=torch.float64)
    if hidden:
        bias[::2] = hidden
    leaves = [q, k, v] if bias is None else [q, k, v, bias.requires_grad_()]
    output, lse = propagate_attention(
        graph, q, k, v, engine=way, scale=size * 0.3, edge_bias=bias, return_lse=True
    )
    score = size * 0.3 * (q[graph.dst] * k[graph.src]).sum(-1) + (0.0 if bias is None else bias)
    rows = [score[graph.dst == i] for i in range(graph.num_dst)]
    nobody = torch.stack([*((row == -torch.inf).all(0) for row in rows), torch.ones(2, dtype=torch.bool)])[
        :-1
    ]
    sums = [row.masked_fill(none, 0.0).logsumexp(0) for row, none in zip(rows, nobody, strict=True)]
    expected = torch.stack([*sums, score[:0].logsumexp(0)])[:-1]
    torch.testing.assert_close(lse, expected.masked_fill(nobody, -torch.inf))
    weights = torch.rand_like(lse)

    def gradients(values, *others):
        total = (weights * values)[~nobody].sum() + sum(x.square().sum() for x in others)
        return torch.autograd.grad(total, leaves, materialize_grads=True, retain_graph=True)

    torch.testing.assert_close(gradients(lse), gradients(expected))
    plain = propagate_attention(graph, q, k, v, engine="scatter", scale=size * 0.3, edge_bias=bias)
    torch.testing.assert_close(gradients(lse, output), gradients(expected, plain))


@pytest.mark.parametrize("engine", ["auto", *ENGINES])
def test_parts_are_put_together_and_a_sink_is_one_more_sender(engine):
    graph = random_links(40, 9)
    q, k, v = random_fields(graph, 2, 3)
    part = torch.randint(7, (graph.num_edges,))
    parts = [AttentionGraph(graph.src[part == i], graph.dst[part == i], 40) for i in range(7)]
    found = [propagate_attention(each, q, k, v, engine=engine, return_lse=True) for each in parts]
    whole = propagate_attention(graph, q, k, v, return_lse=True)
    torch.testing.assert_close(merge_parts(*zip(*found, strict=True)), whole)
    sinks = torch.tensor([0.5, -1.0])
    table = torch.full((graph.num_edges + 40, 2), 0.0)
    table[graph.num_edges :] = sinks
    more = AttentionGraph(
        torch.cat([graph.src, torch.full((40,), 40)]), torch.cat([graph.dst, torch.arange(40)]), 41, 40
    )
    nothing = torch.zeros(1, 2, 3)
    expected = propagate_attention(more, q, *(torch.cat([x, nothing]) for x in (k, v)), edge_bias=table)
    torch.testing.assert_close(add_sinks(*whole, sinks), expected)


def test_biases_and_dropout_reach_every_tile_of_a_window_and_all_edges_of_a_hub(way):
    for graph in (window([90, 3, 41], 5, 2), bigbird(40, 1, 1, 1)):
        check(graph, way, 2, 3, bias=0.0, dropout=0.3)


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
    torch.testing.assert_close(output, formula(graph, **fields)[0], equal_nan=True)


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


def test_a_sender_in_two_tiles_gets_all_of_its_gradient(monkeypatch):
    """Senders and receivers have the same slots first, but not the same padding; then slots are few."""
    runs = [(17 * j, 17 * j + 17) for j in range(14) for _ in range(16)]
    runs += [(238 + i, 240 + i) for i in range(31)] + [(270, 287)] * 15 + [(287, 295)] * 25
    start, stop = torch.tensor(runs).T
    graph = AttentionGraph.from_intervals(start, stop, len(runs), self_attention=False)
    check(graph, "tiles", 1, 2)
    monkeypatch.setattr(planning, "DENSE", 0)
    token = torch.arange(128)
    check(AttentionGraph(torch.cat([token * 0, token + 1]), token.repeat(2), 140), "tiles", 1, 2)


@st.composite
def dense_graphs(draw):
    """Sequences of one length: whole, causal, in windows; and intervals in blocks, some of them empty."""
    count, n, m = (draw(st.sampled_from(some)) for some in ([1, 2, 3], *[[1, 2, 4, 7, 20]] * 2))
    left, right = (draw(st.integers(-1, 7)) for _ in range(2))
    ends = torch.tensor([sorted(draw(st.tuples(*[st.integers(0, n)] * 2))) for _ in range(count * m)])
    start, stop = ends.T + n * torch.arange(count).repeat_interleave(m)
    offsets = range(0, count * m + 1, m), range(0, count * n + 1, n)
    graphs = [
        complete([n] * count),
        causal([n] * count),
        window([n] * count, left + 1, right + 1),
        bipartite([n] * count, [m] * count),
        AttentionGraph.from_cu_seqlens(*offsets, causal=draw(st.booleans()), window=(left, right)),
        AttentionGraph.from_intervals(start, stop, n * count, self_attention=False, blocks=count),
    ]
    return draw(st.sampled_from(graphs))


options = st.tuples(st.sampled_from([None, 0.3]), st.sampled_from([1, 2]))
values = st.sampled_from([math.nan, math.inf, -math.inf])


@settings(max_examples=150)
@given(dense_graphs(), options, st.sampled_from([[], [1], [2], [2, 3]]), st.integers(0, 999), values)
def test_sequences_of_one_length_are_one_call_that_does_what_scatter_does(
    graph, given, leading, place, value
):
    """Also to one number that is not finite, and with leading dimensions."""
    assert dense_call.dense_if_quickest(graph, 2, 0.0)
    (scale, heads), fields = given, random_fields(graph, 2, 3, torch.float64)
    layer = GraphAttention(6, 2, num_kv_heads=heads, scale=scale, dtype=torch.float64)
    tokens = [graph.num_dst, graph.num_src][: 2 - graph.self_attention]
    states = [torch.randn(*leading, n, 6, dtype=torch.float64, requires_grad=True) for n in tokens]

    def attend(engine):
        grouped = (x[:, :heads] for x in fields[1:])
        return propagate_attention(graph, fields[0], *grouped, scale=scale, engine=engine)

    def run(engine):
        layer.engine = engine
        return layer(graph, *states)

    for call, inputs in ((attend, fields), (run, states)):
        assert_equal(call("auto"), call("scatter"), inputs)
        with torch.no_grad():
            numbers = inputs[place % len(inputs)].view(-1)
            numbers[place % len(numbers)] = value
        torch.testing.assert_close(call("auto"), call("scatter"), equal_nan=True)


def test_dropout_draws_for_each_edge_up_to_a_number_of_weights(monkeypatch):
    """Of more, those of dense sequences, PyTorch draws."""
    graph = window([5] * 3, 2, 1)
    fields = [x.detach() for x in random_fields(graph, 2, 3)]

    def dropped(engine):
        torch.manual_seed(0)
        return propagate_attention(graph, *fields, engine=engine, dropout=0.4)

    monkeypatch.setattr(dense_call, "MOST_DRAWS", 2 * graph.num_edges)
    torch.testing.assert_close(dropped("auto"), dropped("scatter"))
    monkeypatch.setattr(dense_call, "MOST_DRAWS", 2 * graph.num_edges - 1)
    assert not torch.allclose(dropped("auto"), dropped("scatter"))
    draws = torch.stack([propagate_attention(graph, *fields, dropout=0.4) for _ in range(4000)])
    assert not torch.allclose(draws[0], draws[1])
    torch.testing.assert_close(draws.mean(0), propagate_attention(graph, *fields), atol=0.08, rtol=0.0)
    fields[1][-1] = torch.nan
    assert dropped("auto").isnan().equal(dropped("scatter").isnan())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_biases_that_are_not_finite_do_what_they_do_to_a_dense_softmax(way, value):
    """Minus infinity hides an edge; at all in-edges of a receiver it leaves zeros and finite gradients."""
    lists = AttentionGraph(complete([4, 3]).src, complete([4, 3]).dst, 7)
    for graph in (complete([20, 3]), causal([5]), lists):  # from 16 senders a kernel loses infinities
        fields = random_fields(graph, 1, 2)
        for edges in (graph.dst == 1, (graph.dst == 2) & (graph.src < 2)):
            bias = torch.zeros(graph.num_edges, 1).masked_fill(edges[:, None], value)
            found = propagate_attention(graph, *fields, engine=way, edge_bias=bias)
            expected, _ = formula(graph, *fields, edge_bias=bias)
            torch.testing.assert_close(found, expected, equal_nan=True)
            gradients = (torch.autograd.grad(x.sum(), fields) for x in (found, expected))
            torch.testing.assert_close(*gradients, equal_nan=True)
            halves = [x.detach().bfloat16() for x in fields]
            rounded, _ = formula(graph, *(x.float() for x in halves), edge_bias=bias)
            for shown in (bias, bias.bfloat16()):
                found = propagate_attention(graph, *halves, engine=way, edge_bias=shown).float()
                torch.testing.assert_close(found, rounded, atol=0.02, rtol=0.02, equal_nan=True)
            if way == "tiles" and value == -math.inf:  # nothing is computed anew by another engine
                alone = ENGINES[way](graph, Fields(*fields, bias, torch.ones(graph.num_edges, 1)))
                torch.testing.assert_close(alone, expected)
                assert all(bool(x.isfinite().all()) for x in torch.autograd.grad(alone.sum(), fields))


@pytest.mark.parametrize("single", [0, planning.SINGLE])
@given(graph=any_graphs.filter(lambda graph: graph.num_edges))
def test_a_kernel_sees_receivers_with_in_edges_alone(single, graph):
    """On a GPU in half precision, one gives others the mean of all values."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "SINGLE", single)
        received = plan_tiles(graph).layout.receivers.tokens
    assert received.unique().equal(graph.dst.unique())


@given(multigraphs)
def test_weights_are_those_of_the_formula(graph):
    q, k, v = random_fields(graph, 2, 3)
    known = {"edge_bias": torch.randn(graph.num_edges, 2), "edge_attr": torch.randn(graph.num_edges, 4)}
    known |= {"edge_proj": torch.randn(4, 2, 3), "scale": 0.7}
    expected = formula(graph, q, k, v, **known)[1]
    torch.testing.assert_close(attention_weights(graph, q, k, **known), expected)


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


@pytest.mark.parametrize("engine", ["auto", *ENGINES, TRITON])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scores_and_biases_of_half_precision_are_not_rounded_and_do_not_overflow(engine, dtype):
    """As with ALiBi on long texts: large numbers, of which differences matter."""
    graph = causal(40)
    q, k, v = (x.detach().to(dtype) for x in random_fields(graph, 1, 64))
    bias = -(graph.dst - graph.src + 1000.0)[:, None] / 3
    for factor, scale, edge_bias, dropout in (
        (300, None, None, 0.0),
        (300, None, None, 0.3),
        (1, None, bias, 0.0),
        (300, 0.126, bias, 0.3),
        (1, 1e4, bias, 0.0),
        (1, 1e4, None, 0.0),
        (1, 0.3, None, 0.0),
    ):
        given, kept = {"scale": scale, "edge_bias": edge_bias}, dropout_mask(graph, 1, dropout)
        torch.manual_seed(0)
        found = propagate_attention(graph, factor * q, k, v, engine=engine, dropout=dropout, **given)
        doubles = ((factor * q).double(), k.double(), v.double())
        expected, _ = formula(graph, *doubles, **given, factors=kept)
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, atol=0.02, rtol=0.02)


def test_kernels_of_tiles_are_given_queries_of_the_type_of_biases(monkeypatch):
    """Which are more precise than half precision, or are not."""
    kernel = mock.Mock(wraps=tiles_engine.scaled_dot_product_attention)
    monkeypatch.setattr(tiles_engine, "scaled_dot_product_attention", kernel)
    graph = causal([3, 4])
    fields = [x.detach().bfloat16() for x in random_fields(graph, 1, 2)]
    for dtype in (torch.float32, torch.bfloat16):
        bias = torch.zeros(graph.num_edges, 1, dtype=dtype)
        assert propagate_attention(graph, *fields, edge_bias=bias, engine="tiles").dtype == torch.bfloat16
        q, mask = kernel.call_args.args[0], kernel.call_args.kwargs["attn_mask"]
        assert q.dtype == mask.dtype == dtype


@engines
@pytest.mark.parametrize("reentrant", [False, True])
def test_activations_can_be_computed_again(engine, reentrant):
    graph = AttentionGraph(torch.tensor([0, 1, 2, 2]), torch.tensor([1, 2, 2, 0]), 3)
    x = torch.randn(3, 2, 4, requires_grad=True)
    attend = partial(propagate_attention, graph, engine=engine)
    again = torch.utils.checkpoint.checkpoint(attend, x, x, x, use_reentrant=reentrant)
    again.square().sum().backward()
    expected = torch.autograd.grad(attend(x, x, x).square().sum(), x)
    torch.testing.assert_close((x.grad,), expected)


def test_large_attributes_do_not_overflow():
    """Weights are normalised before they multiply them."""
    q, k, v = (x.detach() for x in random_fields(complete(3), 1, 4))
    sizes = {"edge_bias": (9, 1, 15.0), "edge_attr": (9, 1, 1e37), "edge_proj": (1, 1, 4, 1e-37)}
    given = {name: torch.full(shape, value) for name, (*shape, value) in sizes.items()}
    found = propagate_attention(complete(3), 0 * q, k, v, **given, engine="csr")
    torch.testing.assert_close(found, formula(complete(3), 0 * q, k, v, **given)[0])


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
        assert not any(b.is_causal for b in plan_tiles(window([5, 6, 7], 4, 0)).layout.buckets)

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
        monkeypatch.setitem(planning.TOO_FEW, "cpu", 4 * 100**2)
        assert plan_tiles(complete([100, 50, 50, 50])).calls == 1
        assert plan_tiles(complete([101, 50, 50, 50])).calls == 2


def ladder(tokens):
    """A graph that tiles badly: each token attends to two that are far away and far apart."""
    i = torch.arange(tokens)
    src = torch.cat([i * 37 % tokens, (i * 37 + tokens // 2) % tokens])
    return AttentionGraph(src, torch.cat([i, i]), tokens)


def test_tiles_refuses_a_plan_over_its_limits(monkeypatch):
    monkeypatch.setattr(planning, "ALWAYS_AFFORDABLE", 10_000)
    with pytest.raises(ValueError, match=r"tiles would compute [\d,]+ scores for 4,002 edges.*'auto'"):
        check(ladder(2_001), "tiles", 1, 2)


def test_auto_takes_what_its_table_says(monkeypatch):
    taken = []

    def spy(name):
        return lambda *_: taken.append(name) or torch.zeros(1)

    monkeypatch.setattr(operation, "ENGINES", {name: spy(name) for name in ENGINES})
    some = (complete([8, 7]), TWICE, complete([200] * 4 + [199]), complete([12] * 99 + [11]))
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


def test_what_a_graph_was_prepared_with_travels(monkeypatch):
    """No pattern is made again in another process."""
    assert pickle.loads(pickle.dumps(ladder(900)))._known == {}
    found = pickle.loads(pickle.dumps(prepare(ladder(900), 4, 32)))
    assert (choice(found, 4, 32).engine, choice(ladder(900), 4, 32).engine) == ("csr", "scatter")
    monkeypatch.setattr(sparse, "_from_edges", None)
    monkeypatch.setattr(sparse, "_stacked_runs", None)
    check(found, "auto", 4, 32, bias=0.0)


@pytest.mark.parametrize(("n", "made"), [(900, False), (20_000, True)])
def test_with_attributes_what_they_need_is_made_and_no_more(n, made):
    graph = prepare(ladder(n), 4, 32, edge_dim=8)
    before = {*graph._known}
    q, k, v = random_fields(graph, 4, 32)
    attributes = {"edge_attr": torch.randn(2 * n, 8), "edge_proj": torch.randn(8, 4, 32)}
    propagate_attention(graph, q, k, v, **attributes)
    assert {*graph._known} == before
    assert any(not name.startswith(("prepared", "_choose")) for name in before) == made


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


zeros, TWICE = torch.zeros, AttentionGraph(*torch.tensor([[0, 0, 1], [1, 1, 0]]), 3)
FEATURES = {"edge_attr": zeros(9, 2), "edge_proj": zeros(2, 1, 4)}
GOOD = {"graph": complete(3), **{name: zeros(3, 1, 4) for name in "qkv"}}
DOUBLES = {name: zeros(3, 1, 4).double() for name in "qkv"}


def attend(**change):
    return propagate_attention(**GOOD | change)


test_bad_input = refusals(
    (lambda: attend(graph=3), TypeError, "graph must be an AttentionGraph, got int"),
    (lambda: prepare([complete(3)], 4, 8), TypeError, "graph must be an AttentionGraph, got list"),
    (lambda: choice([complete(3)], 4, 8), TypeError, "graph must be an AttentionGraph, got list"),
    (lambda: attend(graph=TWICE, engine="tiles"), "two edges of the same pair; use engine='csr'"),
    (lambda: attend(engine="tile"), "engine must be one of 'auto', 'scatter'.*got 'tile'"),
    (lambda: attend(q=zeros(3, 1, 0)), r"h and d at least 1, got \[3, 1, 0\]"),
    (lambda: attend(q=zeros(2, 1, 4)), r"q must be \[num_dst, h, d\] = \[3, 1, 4\]"),
    (lambda: attend(k=zeros(2, 1, 4)), r"k must be \[num_src, h, d\] = \[3, 1, 4\]"),
    (lambda: attend(v=zeros(3, 2, 4)), r"v must be .* got \[3, 2, 4\]"),
    (lambda: attend(k=zeros(3, 1, 4).double()), "k must have q's dtype torch.float32"),
    (lambda: attend(q=[1.0]), TypeError, "q must be a floating-point tensor, got list"),
    (lambda: attend(v=zeros(3, 1, 4, device="meta")), "v must be on the graph's device cpu"),
    (lambda: attend(edge_bias=zeros(8, 1)), r"edge_bias must be \[E, h\] = \[9, 1\], got \[8, 1\]"),
    (lambda: attend(edge_bias=zeros(9, 1).double()), "edge_bias must be torch.float32 on cpu as q is"),
    (lambda: attend(**DOUBLES, edge_bias=zeros(9, 1)), "edge_bias must be torch.float64 on cpu as q is"),
    (lambda: attend(dropout=1.0), r"dropout must lie in \[0, 1\), got 1.0"),
    (lambda: attend(edge_attr=zeros(9, 2)), "go together, got one"),
    (lambda: attend(**FEATURES | {"edge_attr": zeros(8, 2)}), r"be \[E, c\] = \[9, 2\], got \[8, 2\]"),
    (lambda: attend(**FEATURES | {"edge_proj": zeros(2, 3, 4)}), r"edge_proj must be .* = \[2, 1, 4\]"),
    (lambda: attend(**FEATURES | {"engine": "tiles"}), "takes no attributes of edges: use 'csr'"),
    (lambda: attend(**FEATURES | {"v": zeros(3, 1, 2)}), "width 4, got 2"),
)
