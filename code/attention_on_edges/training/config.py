"""The configuration of a training run."""

from dataclasses import dataclass

from edgewise.validation import check_bool, check_count, check_probability, check_real


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of a training run; with model and data they determine its course.

    Attributes
    ----------
    epochs : int
        Most epochs.
    batch_size, batch_tokens : int or None
        Sentence pairs per batch, or most target tokens per batch: one of the two.
    bucketed : bool
        With ``batch_tokens``: whether sentences of similar length share a batch.
    grad_accum : int
        Batches per update; gradients are averaged over their tokens.
    factor, warmup : float, int
        Of the Noam schedule.
    with_warmup, with_decay : bool
        Whether the rate warms up, and whether it decays.
    decay_epochs : int
        Final epochs of linear learning-rate decay towards zero, on top of that schedule.
    betas, eps : tuple of two floats, float
        Of Adam.
    clip : float or None
        Largest norm of the gradient over all parameters.
    smoothing : float
        Label smoothing.
    average : int
        Final epochs whose weights are averaged for the last validation and the artifact.
    monitor : str
        Validation metric for early stopping: ``"loss"``, to be minimised, or one to be maximised:
        ``"accuracy"`` or a metric of the run's ``score``.
    patience : int or None
        Epochs without improvement after which training stops.
    autocast : bool
        Whether matrix products run in bfloat16; on a CPU without such products, in float32 all the same.
    seed : int
        Of the dropout of all processes but the first. Weights, the first one's dropout and the order of data
        come from the generators of whoever makes model and data.
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
    average: int = 1
    monitor: str = "loss"
    patience: int | None = None
    autocast: bool = False
    seed: int = 0
    decay_epochs: int = 0
    with_warmup: bool = True
    with_decay: bool = True

    def __post_init__(self) -> None:
        for name in ("epochs", "grad_accum", "warmup", "average"):
            check_count(name, getattr(self, name), 1)
        for name in ("seed", "decay_epochs"):
            check_count(name, getattr(self, name))
        if self.decay_epochs >= self.epochs:
            raise ValueError(f"decay_epochs ({self.decay_epochs}) must be less than epochs ({self.epochs})")
        for name in ("batch_size", "batch_tokens", "patience"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), 1)
        if (self.batch_size is None) == (self.batch_tokens is None):
            raise ValueError(
                "training needs batch_size or batch_tokens, one of the two; "
                f"got {self.batch_size} and {self.batch_tokens}"
            )
        for name in ("bucketed", "autocast", "with_warmup", "with_decay"):
            check_bool(name, getattr(self, name))
        check_probability("smoothing", self.smoothing)
        for name in ("factor", "eps", "clip"):
            value: float | None = getattr(self, name)
            if value is not None and not check_real(name, value) > 0:
                raise ValueError(f"{name} must be a positive number, got {value!r}")
        if not isinstance(self.betas, tuple | list) or len(self.betas) != 2:
            raise ValueError(f"betas must be two numbers, got {self.betas!r}")
        for beta in self.betas:
            check_probability("betas", beta)

    def scale(self, epoch: int) -> float:
        """Return the factor on the learning rate in an epoch, counted from 1."""
        return min(1.0, (self.epochs - epoch + 1) / (self.decay_epochs + 1))
