"""Chapter 11: what adaptive depth costs in time, against fixed steps and ordinary models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from attention_on_edges.benchmarks.timing import interleave
from attention_on_edges.experiments.chain_study import (
    DEEPEST,
    KINDS,
    TEST_GRAPHS,
    TRAINING,
    draw_chains,
    train_chains,
)
from attention_on_edges.experiments.fitting import FitConfig
from attention_on_edges.figures import Table, table

READERS = ("ACT", "6 steps", "10 steps", "6 layers")
"""Of the study of chains; the first is the one that the others are compared with."""


@dataclass(frozen=True)
class DepthRow:
    """Median seconds of one pass.

    Attributes
    ----------
    model : str
        Which.
    work : str
        ``"training"``, the loss of a batch and its gradients, or ``"answering"``.
    seconds : float
    ratio : float
        Seconds as a multiple of those of the first model.
    """

    model: str
    work: str
    seconds: float
    ratio: float


def bench_depth(repeats: int = 5, config: FitConfig = TRAINING) -> list[DepthRow]:
    """Time trained readers of chains of adaptive, fixed and ordinary depth, interleaved.

    They are trained first, since how soon a token halts is learned.

    Parameters
    ----------
    repeats : int
        Measured turns of each.
    config : FitConfig
        How the readers are trained.
    """
    rows = []
    for work, functions in _readers(config).items():
        seconds = interleave(functions, repeats)
        first = next(iter(seconds.values()))
        rows += [DepthRow(model, work, s, s / first) for model, s in seconds.items()]
    return rows


Passes = dict[str, dict[str, Callable[[], object]]]


def _readers(config: FitConfig) -> Passes:
    generator = torch.Generator().manual_seed(0)
    chains = draw_chains(TEST_GRAPHS, DEEPEST, generator)
    models = {name: train_chains(*KINDS[name], config) for name in READERS}
    return {
        "training": {
            name: _training(m, lambda m=m: m.loss(chains, config.updates)) for name, m in models.items()
        },
        "answering": {
            name: torch.no_grad()(lambda m=model: m.answer(chains)) for name, model in models.items()
        },
    }


def _training(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Callable[[], float]:
    """Return a function that computes a loss and its gradients, in training mode; it returns their size."""

    def compute() -> float:
        model.train()
        model.zero_grad()
        loss().backward()
        model.eval()
        return float(
            torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
        )

    return compute


def format_depth(rows: Sequence[DepthRow]) -> Table:
    """Format rows of :func:`bench_depth` as a table."""
    cells = {(r.model, r.work): f"{r.seconds * 1e3:.0f} ({r.ratio:.2f})" for r in rows}
    models = dict.fromkeys(r.model for r in rows)
    return table(
        ["model", "training, ms", "answering, ms"],
        [(m, cells[m, "training"], cells[m, "answering"]) for m in models],
    )
