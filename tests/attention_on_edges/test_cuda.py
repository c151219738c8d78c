"""The GPU build's code paths: on the CPU everywhere, on CUDA where there is a device."""

import copy
import json

import pytest
import torch
from typer.testing import CliRunner

from attention_on_edges import benchmarks, experiments
from attention_on_edges.benchmarks.engines import Workload
from attention_on_edges.commands import app as cli
from attention_on_edges.data import tasks
from attention_on_edges.experiments import EXPERIMENTS, artifacts, scores
from edgewise.graphs import GraphPool, bipartite, causal, complete, window
from edgewise.layers import Embeddings
from edgewise.message_passing import propagate_attention
from edgewise.training import LabelSmoothing, NoamOpt, StateLossCompute, TrainingConfig
from support import VOCAB, assert_equal_as_stated, random_fields, random_pairs, small_model
from workshop import FEW

devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])

GRAPHS = {
    "sentences": complete([5, 1, 30, 7]),
    "targets": causal([4, 9, 1, 40]),
    "across": bipartite([3, 20, 8], [6, 1, 15]),
    "window": window(200, 3, 3),
    "some without in-edges": complete([6, 6]).restrict(torch.arange(12) % 3 > 0),
}


@devices
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("engine", ["scatter", "tiles", "auto"])
def test_an_engine_equals_the_cpus_double_precision(device, name, engine):
    """Values and gradients; DGL's engines have no CUDA build to run on."""
    graph = GRAPHS[name]
    reference = random_fields(graph, 4, 16, dtype=torch.float64)
    expected = propagate_attention(graph, *reference, "scatter")
    upstream = torch.randn(expected.shape, dtype=torch.float64)
    expected.backward(upstream)
    fields = [x.detach().float().to(device).requires_grad_() for x in reference]
    found = propagate_attention(graph.to(device), *fields, engine)
    assert found.device.type == device
    found.backward(upstream.float().to(device))
    assert_equal_as_stated(found.cpu(), expected)
    for x, y in zip(fields, reference, strict=True):
        assert_equal_as_stated(x.grad.cpu(), y.grad)


def update(model, batch):
    """Make one update; return the loss, gradients and weights."""
    opt = NoamOpt(8, 1.0, 10, torch.optim.SGD(model.parameters(), lr=0.0))
    loss = StateLossCompute(model.generator, LabelSmoothing(VOCAB, 2, 0.1), opt, clip=1.0)
    reported = loss(model.hidden(batch), batch.tgt_y, batch.n_tokens)
    values = {name: x.detach().cpu() for name, x in model.named_parameters()}
    return reported, {name: x.grad.cpu() for name, x in model.named_parameters()}, values


@devices
def test_a_training_step_equals_the_cpus_double_precision(device):
    pairs = random_pairs([(5, 7), (1, 3), (12, 9)])
    model = small_model()
    double = copy.deepcopy(model).double()
    for module in double.modules():
        if isinstance(module, Embeddings):
            assert module.lut.weight.dtype == torch.float64
    expected = update(double, GraphPool()(*pairs))
    found = update(model.to(device), GraphPool()(*pairs, device=device))
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    for ours, theirs in zip(found[1:], expected[1:], strict=True):
        for name in theirs:
            assert_equal_as_stated(ours[name], theirs[name])


@devices
def test_the_table_of_engines(device):
    workload = Workload("tiny", (3, 5), 2, 4)
    rows = benchmarks.bench_engines([workload], ["scatter", "tiles"], repeats=1, device=device)
    assert [row.engine.partition(",")[0] for row in rows] == ["padded"] * 2 + ["scatter"] + ["tiles"] * 3
    assert "tiny" in str(benchmarks.format_engines(rows))


def kind(experiment):
    """What kind of model and data a small experiment has: those of a kind differ in numbers alone."""
    model = experiment.model
    return type(model), getattr(model, "halting", None), type(experiment.tokenizer)


ONE_OF_A_KIND = {kind(experiment): name for name, experiment in EXPERIMENTS.items()}.values()
EVERYWHERE = [
    pytest.param(name, device, marks=[pytest.mark.cuda] if device == "cuda" else [])
    for device, names in (("cpu", ONE_OF_A_KIND), ("cuda", EXPERIMENTS))
    for name in names
]


@pytest.mark.parametrize(("name", "device"), EVERYWHERE)
def test_every_experiment_runs_from_end_to_end_at_reduced_size(name, device, tmp_path, monkeypatch):
    """What ``make artifacts SMALL=1`` does, to an artifact that names its device."""
    monkeypatch.setenv("EDGEWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tasks, "SIZES", FEW)
    monkeypatch.setattr(scores, "PENALTIES", (0.0, 1.0))
    torch.set_num_threads(1)
    words = ["train", name, "--small", "--resume", "--device", device, "--out", str(tmp_path / name)]
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0, result.output
    artifact = artifacts.load(tmp_path / name / "artifact")
    assert artifact.name == name
    assert artifact.provenance["device"].startswith(device)
    assert artifact.provenance["device"] in artifact.caption
    assert {"accuracy", "loss"} <= artifact.metrics["test"].keys()
    small = experiments.reduced(EXPERIMENTS[name])
    assert kind(small) == kind(EXPERIMENTS[name])
    assert small.training == experiments.Experiment.of(json.loads(json.dumps(artifact.config))).training
    assert isinstance(small.training, TrainingConfig)
