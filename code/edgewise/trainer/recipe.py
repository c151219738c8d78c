"""How a model is trained."""

import math
from dataclasses import dataclass
from numbers import Real

from edgewise.validation import check_count, check_probability


@dataclass(frozen=True)
class Recipe:
    """Settings of a training run; all that decides its course, with model, data and seed.

    Attributes
    ----------
    epochs : int
        At most.
    batch_size, batch_tokens : int or None
        Sentence pairs a batch, or target tokens a batch at most: one of the two.
    bucketed : bool
        With ``batch_tokens``: whether sentences of similar length share a batch.
    grad_accum : int
        Batches an update; every token of them counts alike.
    factor, warmup : float, int
        Of the Noam schedule.
    rises, falls : bool
        Whether its rate warms up, and whether it decays.
    cooldown : int
        Epochs, the last ones, over which the rate falls below that schedule in equal steps towards zero.
    betas, eps : tuple of two floats, float
        Of Adam.
    clip : float or None
        Longest gradient, as a norm over all parameters.
    smoothing : float
        Of the labels.
    consistency : float
        Weight of disagreement between two passes over each batch, which differ in their dropout (R-Drop); 0:
        one pass.
    average : int
        Epochs, the last ones, whose weights are averaged for validation's last word and the artifact.
    monitor : str
        Validation figure that early stopping watches: ``"loss"``, which should fall, or one that should rise,
        ``"accuracy"`` or what the run's ``score`` adds.
    patience : int or None
        Epochs without improvement after which training stops.
    autocast : bool
        Whether matrix products run in bfloat16.
    seed : int
        For weights, dropout and the order of the data.
    """

    epochs: int
    batch_size: int | None = None
    batch_tokens: int | None = None
    bucketed: bool = False
    grad_accum: int = 1
    factor: float = 1.0
    warmup: int = 400
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-9
    clip: float | None = None
    smoothing: float = 0.1
    consistency: float = 0.0
    average: int = 1
    monitor: str = "loss"
    patience: int | None = None
    autocast: bool = False
    seed: int = 0
    cooldown: int = 0
    rises: bool = True
    falls: bool = True

    def __post_init__(self):
        for name in ("epochs", "grad_accum", "warmup", "average"):
            check_count(name, getattr(self, name), 1)
        for name in ("seed", "cooldown"):
            check_count(name, getattr(self, name))
        if self.cooldown >= self.epochs:
            raise ValueError(f"cooldown ({self.cooldown}) must be less than epochs ({self.epochs})")
        for name in ("batch_size", "batch_tokens", "patience"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), 1)
        if (self.batch_size is None) == (self.batch_tokens is None):
            raise ValueError(
                "a recipe needs batch_size or batch_tokens, one of the two; "
                f"got {self.batch_size} and {self.batch_tokens}"
            )
        check_probability("smoothing", self.smoothing)
        if not isinstance(self.consistency, Real) or not 0 <= self.consistency < math.inf:
            raise ValueError(f"consistency must be a finite number, at least 0, got {self.consistency!r}")
        for name in ("factor", "eps", "clip"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, Real) or not value > 0):
                raise ValueError(f"{name} must be a positive number, got {value!r}")
        for beta in self.betas:
            check_probability("betas", beta)

    def scale(self, epoch: int) -> float:
        """Return what the rate of an epoch, counted from 1, is multiplied by."""
        left = max(self.epochs - epoch + 1, 1)
        return min(1.0, left / (self.cooldown + 1))
