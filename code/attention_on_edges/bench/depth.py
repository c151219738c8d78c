"""Chapter 11: what adaptive depth costs in time, against fixed steps and ordinary models."""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from attention_on_edges.bench.harness import Case, Run, in_turns
from attention_on_edges.studies.chains import (
    DEEPEST,
    KINDS,
    TEST_GRAPHS,
    TRAINING,
    draw_chains,
    train_chains,
)
from attention_on_edges.studies.fitting import FitConfig

READERS = ("ACT", "6 steps", "10 steps", "6 layers")
"""Of the study of chains; the first is the one that the others are compared with."""


def depth_plan(small: bool = False) -> dict[str, Run]:
    """Readers of chains, trained first, since how soon a token halts is learned; then timed."""
    config = replace(TRAINING, updates=3, size=2) if small else TRAINING
    return {
        work: in_turns(lambda _, work=work: depth_case(work, config)) for work in ("training", "answering")
    }


def depth_case(work: str, config: FitConfig) -> Case:
    """The loss of a batch and its gradients, or the answers."""
    chains = draw_chains(TEST_GRAPHS, DEEPEST, torch.Generator().manual_seed(0))

    def training(model: Any) -> None:
        model.train().zero_grad()
        model.loss(chains, config.updates).backward()

    @torch.no_grad()
    def answering(model: Any) -> tuple[Tensor, Tensor]:
        return model.eval().answer(chains)

    do = training if work == "training" else answering
    return Case(work, {name: partial(do, _trained(name, config)) for name in READERS}, first=READERS[0])


@cache
def _trained(name: str, config: FitConfig) -> torch.nn.Module:
    return train_chains(*KINDS[name], config)
