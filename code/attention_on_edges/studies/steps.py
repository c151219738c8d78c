"""Chapter 11's question: how many steps the tokens of a sentence take, in a translator of adaptive depth."""

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attention_on_edges.pool import GraphPool
from attention_on_edges.runs.experiment import Experiment, UniversalConfig
from attention_on_edges.runs.fitting import Part
from attention_on_edges.runs.running import start
from attention_on_edges.training.trainer import evaluate


def explained(steps: Tensor, groups: Tensor) -> float:
    """Return the share of the variance of steps [N] that lies between groups, int64 [N].

    Adjusted for how many groups there are: about 0 for random ones. It is 0, too, if all steps are equal.
    """
    names, group = groups.unique(return_inverse=True)
    y, count = steps.double(), group.bincount()
    means = torch.zeros(len(names)).double().index_add_(0, group, y) / count
    within, total = ((y - means[group]) ** 2).sum(), ((y - y.mean()) ** 2).sum()
    return float(1 - within / total * (len(y) - 1) / (len(y) - len(names))) if total > 0 else 0.0


def measure_steps(experiment: dict[str, Any]) -> dict[str, Any]:
    """Train; return validation figures, and the steps of validation tokens, for each side.

    ``epochs``: how many tokens took one step, two, and so on, before training and after each epoch.
    ``positions``: mean steps at each position that a hundred sentences have. ``explained``: by position and
    by piece, as in :func:`explained`.
    """
    found: dict[str, list[Tensor]] = {"enc": [], "dec": []}
    with tempfile.TemporaryDirectory() as folder:
        trainer = start(Experiment.of(experiment), Path(folder))
        valid = [*trainer.data(GraphPool(), "valid", 100)]
        _, drawn = evaluate(trainer.model, valid, trainer.criterion, trainer.autocast)
        trainer.train()
        for batch in valid:
            for side, pondered in trainer.model.eval().run(batch).pondered.items():
                ids, positions = batch.src if side == "enc" else batch.tgt
                found[side].append(torch.stack([pondered.steps, positions, ids]))
    row: dict[str, Any] = dict(trainer.epochs[-1]["valid"])
    for side, parts in found.items():
        steps, position, ids = torch.cat(parts, 1)
        common = range(int(position.bincount().ge(100).sum()))
        row[side] = {
            "epochs": [drawn[side], *(epoch["steps"][side] for epoch in trainer.epochs)],
            "positions": [float(steps[position == p].double().mean()) for p in common],
            "explained": {"position": explained(steps, position), "piece": explained(steps, ids)},
        }
    return row


def adaptive_runs(experiments: Iterable[Experiment]) -> Iterator[Part]:
    """Each experiment with one layer on each side, applied to each token until it halts."""
    model = UniversalConfig(6, 128, 256, 4, dropout=0.1, ponder_weight=0.01, ponder_warmup=200, shared=True)
    for e in experiments:
        yield Part(f"seed {e.training.seed}", measure_steps, {"experiment": replace(e, model=model).config})
