"""Chapter 11's study of whether adaptive depth finds how many steps each token needs."""

import time
from dataclasses import dataclass
from typing import Any

import torch

from attention_on_edges.analysis.pointer_chains import (
    MODELS,
    ChainConfig,
    draw_chains,
    rank_correlation,
    train_chains,
)
from attention_on_edges.experiments.experiment import Described, check_cpu
from edgewise.validation import check_choice

TEST_GRAPHS, TEST_SEED = 500, 2_000_000

LONGER = (12, 20)
"""Depth of longer chains than in training, and the most steps that a recurrent model may take there."""


@dataclass(frozen=True)
class ChainRun(Described):
    """A model that follows pointers, tested on new graphs and on longer chains.

    Attributes
    ----------
    name : str
        Its variant in the study.
    model : str
        One of ``MODELS``.
    steps : int
        Most steps, or layers.
    weight : float
        Of the loss of halting.
    training : ChainConfig
        How it is trained.
    """

    name: str
    model: str
    steps: int
    weight: float
    training: ChainConfig

    def __post_init__(self):
        check_choice("model", self.model, MODELS)

    def figures(self, device: torch.device | str = "cpu") -> dict[str, Any]:
        """Train and test.

        For chains as in training, and for ``longer`` ones: the share of tokens that are ``right``, mean
        ``steps``, the ``rank`` correlation of steps and depth, and both of the former for each depth. Then
        seconds of training, and of answering the graphs as in training.

        Raises
        ------
        ValueError
            If ``device`` is not the CPU: these models are small.
        """
        check_cpu(device)
        began = time.perf_counter()
        model = train_chains(self.model, self.steps, self.weight, self.training)
        row: dict[str, Any] = {"training seconds": time.perf_counter() - began}
        for name, deepest in (("", self.training.deepest), (" longer", LONGER[0])):
            batch = draw_chains(TEST_GRAPHS, deepest, torch.Generator().manual_seed(TEST_SEED))
            if name and self.model in ("act", "pondernet"):
                model.max_steps = LONGER[1]
            elif name and self.model == "fixed":
                model.max_steps = self.steps * LONGER[0] // self.training.deepest
            with torch.no_grad():
                began = time.perf_counter()
                found, steps = model.answer(batch)
                seconds = time.perf_counter() - began
            right = found == batch.answers
            row |= {
                f"right{name}": float(right.double().mean()),
                f"steps{name}": float(steps.double().mean()),
                f"rank{name}": rank_correlation(steps, batch.depth),
                f"right by depth{name}": _by_depth(right, batch.depth),
                f"steps by depth{name}": _by_depth(steps, batch.depth),
                f"seconds{name}": seconds,
            }
        return row


def _by_depth(values: torch.Tensor, depth: torch.Tensor) -> list[float]:
    return [float(values[depth == d].double().mean()) for d in range(int(depth.max()) + 1)]


KINDS = {
    "ACT": ("act", 10, 0.05),
    "PonderNet": ("pondernet", 10, 0.3),
    "3 steps": ("fixed", 3, 0.0),
    "6 steps": ("fixed", 6, 0.0),
    "10 steps": ("fixed", 10, 0.0),
    "6 layers": ("ordinary", 6, 0.0),
    "10 layers": ("ordinary", 10, 0.0),
}
"""Adaptive depth, a fixed number of steps of one layer, and different layers."""


def chain_runs() -> list[ChainRun]:
    """All runs: seven models, three seeds."""
    return [
        ChainRun(name, *settings, ChainConfig(seed=seed))
        for name, settings in KINDS.items()
        for seed in range(3)
    ]
