"""The GPU build's code paths: on the CPU everywhere, on CUDA where there is a device."""

import copy
import json
from functools import partial

import pytest
import torch
from torch.overrides import TorchFunctionMode
from typer.testing import CliRunner

from attention_on_edges import runs
from attention_on_edges.cli import app as cli
from attention_on_edges.decoding import beam_search
from attention_on_edges.pool import GraphPool
from attention_on_edges.runs import EXPERIMENTS, artifacts
from attention_on_edges.training import LabelSmoothing, states_loss, take_step
from attention_on_edges.tutorial import NoamOpt
from book_support import VOCAB, random_pairs, small_model
from edgewise import GraphAttention
from edgewise.graphs import AttentionGraph, bipartite, causal, complete, window
from edgewise.propagation import ENGINES, GPU_ENGINES, propagate_attention
from support import TRITON, assert_equal_as_stated, check_propagation, random_fields

devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])

GRAPHS = {
    "sentences": complete([5, 1, 30, 7]),
    "targets": causal([4, 9, 1, 40]),
    "across": bipartite([3, 20, 0, 8], [6, 1, 2, 15]),
    "window": window(200, 3, 3),
    "some without in-edges": complete([6, 6]).restrict(torch.arange(12) % 3 > 0),
    "two edges of a pair": AttentionGraph(*torch.tensor([[4, 0, 4, 2, 0, 3], [1, 5, 1, 0, 5, 2]]), 6),
}


@devices
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("given", [{}, {"bias": 0.0}, {"num_attr": 3}], ids=str)
@pytest.mark.parametrize("engine", ["auto", *ENGINES, TRITON])
def test_an_engine_equals_the_cpus_double_precision(device, name, given, engine):
    """Values and gradients; DGL's engines have no CUDA build to run on."""
    graph = GRAPHS[name]
    if engine != "tiles" or not (
        "num_attr" in given or graph.has_multi_edges
    ):  # refused, as elsewhere tested
        check_propagation(graph.to(device), engine, 4, 16, **given)


@devices
@pytest.mark.parametrize("beam", [1, 5])
def test_decoding_writes_what_the_cpu_writes(device, beam):
    model, (sources, _) = small_model().eval(), random_pairs([(5, 7), (1, 3), (12, 9)])
    expected = beam_search(model, sources, 0, 1, beam)
    for found, known in zip(beam_search(model.to(device), sources, 0, 1, beam), expected, strict=True):
        assert (found.ids, found.finished) == (known.ids, known.finished)
        assert found.log_prob == pytest.approx(known.log_prob, rel=1e-5)


class SayWhere(TorchFunctionMode):
    """Fails where a tensor is made without saying where, or read by NumPy: on a GPU both go wrong."""

    MAKING = (torch.tensor, torch.arange, torch.zeros, torch.ones, torch.empty, torch.full, torch.rand)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        assert function not in self.MAKING or "device" in (kwargs or {}), f"{function.__name__} where?"
        assert function is not torch.Tensor.numpy
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("engine", ["auto", *ENGINES, TRITON])
def test_what_runs_on_a_device_says_where_it_makes_tensors(engine):
    with pytest.raises(AssertionError, match="arange where"), SayWhere():
        torch.arange(3)
    for graph in GRAPHS.values():
        if engine == "tiles" and graph.has_multi_edges:
            continue
        fields, bias = random_fields(graph, 4, 16), torch.rand(graph.num_edges, 4)
        with SayWhere():
            propagate_attention(graph, *fields, engine=engine, edge_bias=bias, dropout=0.5).sum().backward()
    model, batch = small_model(), GraphPool()(*random_pairs([(5, 7), (1, 3), (12, 9)]))
    model.pos_enc(batch.src[1])  # the table, which a GPU does not have
    with SayWhere():
        update(model, batch)


def update(model, batch):
    """Make one update; return the loss, gradients and weights."""
    opt = NoamOpt(8, 1.0, 10, torch.optim.SGD(model.parameters(), lr=0.0))
    opt.zero_grad()
    loss, _ = states_loss(model.generator, LabelSmoothing(VOCAB, 2, 0.1), model.hidden(batch), batch.tgt_y)
    loss.backward()
    take_step(opt, batch.n_tokens, clip=1.0)
    values = {name: x.detach().cpu() for name, x in model.named_parameters()}
    return loss.item() / batch.n_tokens, {name: x.grad.cpu() for name, x in model.named_parameters()}, values


@devices
def test_a_training_step_equals_the_cpus_double_precision(device):
    pairs = random_pairs([(5, 7), (1, 3), (12, 9)])
    model = small_model()
    expected = update(copy.deepcopy(model).double(), GraphPool()(*pairs))
    found = update(model.to(device), GraphPool()(*pairs, device=device))
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    for ours, theirs in zip(found[1:], expected[1:], strict=True):
        for name in theirs:
            assert_equal_as_stated(ours[name], theirs[name])


@pytest.mark.cuda
def test_a_step_of_training_is_captured_as_a_cuda_graph():
    """Where something waits for the device, capturing ends in an error."""
    graph, x = GRAPHS["targets"].to("cuda"), torch.randn(54, 8, device="cuda")
    layer = GraphAttention(8, 2, device="cuda")
    alone = copy.deepcopy(layer)
    steps = [partial(descend, each, graph, x) for each in (layer, alone)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            steps[0]()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        steps[0]()
    for _ in range(2):
        captured.replay()
    for _ in range(5):
        steps[1]()
    for ours, expected in zip(layer.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, expected)


def descend(layer, graph, x):
    grads = torch.autograd.grad(layer(graph, x).square().mean(), list(layer.parameters()))
    with torch.no_grad():
        torch._foreach_add_(list(layer.parameters()), grads, alpha=-0.1)


@pytest.mark.cuda
def test_graphs_that_are_made_on_a_gpu_are_not_waited_for():
    layer, x = GraphAttention(8, 2, edge_dim=3, device="cuda"), torch.randn(54, 8, device="cuda")
    links, attr = torch.randint(54, (2, 300), device="cuda"), torch.randn(300, 3, device="cuda")
    ends = torch.tensor([0, 13, 13, 54], device="cuda")
    for mode in ("default", "error"):  # kernels are compiled in the first round, which waits
        torch.cuda.set_sync_debug_mode(mode)
        graph = AttentionGraph.from_edge_index(links, 54)
        torch.autograd.grad(layer(graph, x, edge_attr=attr).sum(), list(layer.parameters()))
        with torch.no_grad():
            for packed in (ends, ends.diff()):
                make = AttentionGraph.from_cu_seqlens if packed is ends else AttentionGraph.from_lengths
                propagate_attention(make(packed, causal=True, num_tokens=54), *[x[:, None]] * 3)
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["sentences", "targets", "across", "window", "some without in-edges"])
@pytest.mark.parametrize("engine", ["varlen", "auto"])
def test_pytorchs_kernels_compute_the_graph(name, engine, monkeypatch):
    """``auto`` takes ``varlen`` for packed sequences, here where some have no senders, too."""
    graph, dtype = GRAPHS[name].to("cuda"), torch.bfloat16
    if engine == "varlen" and graph.packed is None:
        return  # refused, as elsewhere tested
    if engine == "auto":
        called, varlen = [], GPU_ENGINES["varlen"]
        monkeypatch.setitem(GPU_ENGINES, "varlen", lambda *given: called.append(given) or varlen(*given))
    fields = [x.detach().to("cuda", dtype).requires_grad_() for x in random_fields(graph, 4, 16)]
    both = [propagate_attention(graph, *fields, engine=e) for e in (engine, "scatter")]
    gradients = [torch.autograd.grad(found.sum(), fields) for found in both]
    torch.testing.assert_close(*both, atol=0.05, rtol=0.05)
    torch.testing.assert_close(*gradients, atol=0.05, rtol=0.05)
    assert engine != "auto" or bool(called) == (graph.packed is not None)


def kind(experiment):
    """What kind of model and data a small experiment has: those of a kind differ in numbers alone."""
    return type(experiment.model), getattr(experiment.tokenizer, "on_disk", None)


ONE_OF_A_KIND = {kind(experiment): name for name, experiment in EXPERIMENTS.items()}.values()


@devices
@pytest.mark.parametrize("name", ONE_OF_A_KIND)
def test_every_experiment_runs_from_end_to_end_at_reduced_size(name, device, tmp_path, few, monkeypatch):
    """What ``make artifacts SMALL=1`` does, to an artifact that names its device."""
    monkeypatch.setenv("EDGEWISE_CACHE", str(tmp_path / "cache"))
    words = ["train", name, "--small", "--resume", "--device", device, "--out", str(tmp_path / name)]
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0, result.output
    artifact = artifacts.load(tmp_path / name / "artifact")
    assert artifact.name == name
    assert artifact.provenance["device"].startswith(device)
    assert artifact.provenance["device"] in artifact.caption
    assert {"accuracy", "loss"} <= artifact.metrics["test"].keys()
    small = runs.reduced(EXPERIMENTS[name])
    assert kind(small) == kind(EXPERIMENTS[name])
    assert small.training == runs.Experiment.of(json.loads(json.dumps(artifact.config))).training


@pytest.mark.cuda
def test_a_graph_is_pinned_as_a_whole():
    graph = GRAPHS["across"].pin_memory()
    assert all(x.is_pinned() for x in graph.intervals)
    assert graph.to("cuda", non_blocking=True).device.type == "cuda"
