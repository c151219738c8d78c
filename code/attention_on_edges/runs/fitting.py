"""The training loop of the small models of chapters 3, 10, 11 and 14, and a run of their studies."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class FitConfig:
    """How small models are trained, the same for all of a study.

    Attributes
    ----------
    updates, size : int
        Updates, and graphs or tokens of each.
    rate : float
        Peak learning rate.
    warmup : int
        Updates over which the rate rises; then it falls.
    decay : str
        To zero along a cosine (``"cosine"``), or with the inverse square root of the updates (``"root"``).
    betas, eps
        Adam's.
    clip : float, optional
        Largest norm of the gradient.
    seed : int
        For weights and batches.
    """

    updates: int
    size: int
    rate: float = 2e-3
    warmup: int = 100
    decay: str = "cosine"
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    clip: float | None = 1.0
    seed: int = 0

    def share(self, step: int) -> float:
        """Return the learning rate of an update, counted from 0, as a share of its peak."""
        rise = (step + 1) / self.warmup
        if self.decay == "root":
            return min(rise, rise**-0.5)
        fall = max(step - self.warmup, 0) / max(self.updates - self.warmup, 1)
        return min(rise, 0.5 + 0.5 * math.cos(math.pi * fall))


def fit(
    make: Callable[[], Model], batches: Callable[[torch.Generator], Iterator[Any]], config: FitConfig
) -> tuple[Model, list[float]]:
    """Train a new model.

    Parameters
    ----------
    make : callable
        Returns the model, drawn from torch's own generator; ``model.loss(batch, step)`` is its loss after so
        many updates.
    batches : callable
        Generator to batches without end.
    config : FitConfig
        How.

    Returns
    -------
    model : nn.Module
        In evaluation mode.
    losses : list of float
        Of each update.
    """
    torch.manual_seed(config.seed)
    model: Any = make()
    losses: list[float] = []
    adam = torch.optim.Adam(model.parameters(), config.rate, config.betas, config.eps)
    schedule = torch.optim.lr_scheduler.LambdaLR(adam, config.share)
    drawn = batches(torch.Generator().manual_seed(config.seed))
    for step, batch in zip(range(config.updates), drawn, strict=False):
        adam.zero_grad()
        loss = model.loss(batch, step)
        loss.backward()
        if config.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        adam.step()
        schedule.step()
        losses.append(loss.item())
    return model.eval(), losses


@dataclass(frozen=True)
class Part:
    """One run of a study.

    Attributes
    ----------
    name : str
        Its variant in the study.
    measure : callable
        Takes the ``settings`` by keyword; returns the figures.
    settings : dict
        What distinguishes the run, as JSON can hold it.
    """

    name: str
    measure: Callable[..., dict[str, Any]]
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, as JSON."""
        return json.loads(json.dumps({"name": self.name, **self.settings}))

    @property
    def label(self) -> dict[str, Any]:
        """What its row is called."""
        return {"variant": self.name}

    def figures(self) -> dict[str, Any]:
        """Measure."""
        return self.measure(**self.settings)


@dataclass(frozen=True)
class FitRun(Part):
    """A small model that is trained and tested: ``measure`` takes ``training``, too.

    Attributes
    ----------
    training : FitConfig
        How it is trained.
    """

    training: FitConfig = field(kw_only=True)

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, as JSON."""
        return super().config | {"training": json.loads(json.dumps(asdict(self.training)))}

    @property
    def label(self) -> dict[str, Any]:
        """What its row is called."""
        return {"variant": self.name, "seed": self.training.seed}

    def figures(self) -> dict[str, Any]:
        """Train and test."""
        return self.measure(self.training, **self.settings)
