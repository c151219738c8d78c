"""Experiments on the Universal Transformer: a run notes its steps, and its artifact comes back."""

import json
import math
from dataclasses import replace

import pytest
import torch

from attention_on_edges import experiments
from attention_on_edges.experiments import Experiment, UniversalConfig, load_data, runs
from edgewise.models.universal import UTransformer
from edgewise.training import DivergedError, TrainingConfig

TINY = Experiment(
    "sort-universal",
    "A tiny one.",
    "sort",
    UniversalConfig(max_steps=3, dim_model=16, dim_ff=16, h=2, dropout=0.1, bias=0.0, ponder_weight=0.1),
    TrainingConfig(epochs=2, batch_size=30, warmup=20),
)


def small(data):
    data.splits = {mode: pairs[:90] for mode, pairs in data.splits.items()}
    return data


def test_a_run_notes_steps_and_leaves_an_artifact_that_comes_back(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "load_data", lambda e, *rest: small(load_data(e, *rest)))
    run = experiments.start(TINY, tmp_path)
    run.train()
    assert run.epochs[1]["train"]["loss"] < run.epochs[0]["train"]["loss"]
    valid, counted = run.data.splits["valid"], run.epochs[-1]["steps"]
    assert sum(counted["enc"]) == sum(len(source) for source, _ in valid)
    assert sum(counted["dec"]) == sum(len(target) + 1 for _, target in valid)
    for side in ("enc", "dec"):
        mean = sum(n * count for n, count in enumerate(counted[side], 1)) / sum(counted[side])
        assert run.epochs[-1]["valid"][f"steps_{side}"] == pytest.approx(mean)
        assert run.epochs[-1]["valid"][f"ponder_{side}"] > mean
    artifact = experiments.finish(run, TINY)
    assert Experiment.of(artifact.config) == TINY
    assert json.loads((artifact.folder / "metrics.json").read_text())["epochs"] == run.epochs
    model, data = experiments.restore(artifact)
    assert isinstance(model, UTransformer)
    assert (model.max_steps, model.ponder_weight) == (3, 0.1)
    assert experiments.figures(model, data, "test") == pytest.approx(artifact.metrics["test"], rel=1e-5)


def test_a_nan_extra_loss_ends_the_run(tmp_path):
    run = experiments.start(TINY, tmp_path)
    run.model.extra_loss = lambda output, step: torch.tensor(math.nan, requires_grad=True)
    with pytest.raises(DivergedError, match="the loss is nan after step 0"):
        run.train()


def test_the_weight_follows_the_runs_updates(tmp_path):
    run = experiments.start(replace(TINY, model=replace(TINY.model, ponder_warmup=50)), tmp_path)
    seen = []
    extra_loss = run.model.extra_loss
    run.model.extra_loss = lambda output, step: seen.append(step) or extra_loss(output, step)
    run.train(max_steps=3)
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("change", [{"eps": 1.0}, {"max_steps": 0}, {"ponder_weight": -1.0}])
def test_an_experiment_refuses_bad_settings(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(TINY.model, **change)
