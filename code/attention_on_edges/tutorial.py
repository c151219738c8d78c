"""Chapter 7: what the DGL tutorial's script calls: schedule, loss and epoch, and its model's attribute."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attention_on_edges.models import transformer
from attention_on_edges.pool import Batch
from edgewise.validation import check_count, check_real


class NoamOpt:
    r"""An optimiser whose rate warms up, then decays (Vaswani et al. 2017, eq. 3).

    .. math::
        \mathrm{factor} \cdot d^{-1/2} \cdot
        \min(\mathrm{step}^{-1/2}, \mathrm{step} \cdot \mathrm{warmup}^{-3/2})

    Parameters
    ----------
    dim_model : int
        Width :math:`d`.
    factor : float
        Positive.
    warmup : int
        Steps of warm-up.
    optimizer : torch.optim.Optimizer
        Its rate is set before each of its steps.
    with_warmup, with_decay : bool
        Whether it warms up and whether it decays; in a phase that is off the rate is the peak rate,
        :math:`\mathrm{factor} \cdot d^{-1/2} \cdot \mathrm{warmup}^{-1/2}`.

    Attributes
    ----------
    scale : float
        Factor on the rate; 1 unless set.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be.
    """

    def __init__(
        self,
        dim_model: int,
        factor: float,
        warmup: int,
        optimizer: torch.optim.Optimizer,
        with_warmup: bool = True,
        with_decay: bool = True,
    ):
        self.dim_model = check_count("dim_model", dim_model, 1)
        self.warmup = check_count("warmup", warmup, 1)
        if not check_real("factor", factor) > 0:
            raise ValueError(f"factor must be a positive number, got {factor!r}")
        if not hasattr(optimizer, "param_groups"):
            raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {optimizer!r}")
        self.factor = factor
        self.optimizer = optimizer
        self.with_warmup, self.with_decay = with_warmup, with_decay
        self.steps = 0
        self.scale = 1.0

    def rate(self, step: int | None = None) -> float:
        """Return the rate of a step, counted from 1; without ``step``, of the latest one.

        Raises
        ------
        ValueError
            For step 0, where the formula is infinite.
        """
        step = check_count("step", self.steps if step is None else step, 1)
        decay = step**-0.5 if self.with_decay else self.warmup**-0.5
        warmup = step * self.warmup**-1.5 if self.with_warmup else self.warmup**-0.5
        return self.scale * (self.factor * self.dim_model**-0.5 * min(decay, warmup))

    def step(self) -> None:
        """Set the next step's rate and take it."""
        self.steps += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        self.optimizer.step()

    def zero_grad(self) -> None:
        """Clear the gradients."""
        self.optimizer.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """Return steps taken and the optimiser's state."""
        return {"steps": self.steps, "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state_dict` gave."""
        self.steps = check_count("steps", state["steps"])
        self.optimizer.load_state_dict(state["optimizer"])


class SimpleLossCompute:
    """Computes the loss of a batch, updates the weights if there is an optimiser, and keeps count.

    Parameters
    ----------
    criterion : callable
        Log-probabilities [N, V] and targets [N] to a summed loss.
    opt : NoamOpt or torch.optim.Optimizer, optional
        Without one, the weights are not updated.

    Raises
    ------
    TypeError
        If ``opt`` cannot take a step.
    """

    def __init__(self, criterion: Callable[[Tensor, Tensor], Tensor], opt: Any = None):
        if opt is not None and not (hasattr(opt, "step") and hasattr(opt, "zero_grad")):
            raise TypeError(f"opt must have step() and zero_grad(), got {opt!r}")
        self.criterion = criterion
        self.opt = opt
        self.total_loss, self.tokens = 0.0, 0
        self.correct: float = 0

    @property
    def avg_loss(self) -> float:
        """Loss per token so far, in nats; NaN before the first batch."""
        return self.total_loss / self.tokens if self.tokens else math.nan

    @property
    def accuracy(self) -> float:
        """Share of tokens predicted right so far, teacher-forced."""
        return self.correct / self.tokens if self.tokens else math.nan

    def __call__(self, log_probs: Tensor, target: Tensor, n_tokens: int) -> float:
        """Count a batch and learn from it.

        Parameters
        ----------
        log_probs : Tensor
            [N, V]
        target : Tensor
            int64 [N]
        n_tokens : int
            Divisor of the summed loss.

        Returns
        -------
        float
            Loss per token of this batch.
        """
        check_count("n_tokens", n_tokens, 1)
        total = self.criterion(log_probs, target)
        if self.opt is not None:
            self.opt.zero_grad()
            (total / n_tokens).backward()
            self.opt.step()
        self.total_loss += total.item()
        self.correct += int((log_probs.argmax(1) == target).sum())
        self.tokens += n_tokens
        return total.item() / n_tokens


@dataclass(frozen=True)
class EpochResult:
    """Results of an epoch.

    Attributes
    ----------
    loss : float
        Nats per token.
    accuracy : float
        Share of tokens predicted right, teacher-forced.
    losses : list of float
        Loss per token of each batch.
    """

    loss: float
    accuracy: float
    losses: list[float]


def run_epoch(
    data_iter: Iterable[Batch],
    model: Callable[[Batch], Any],
    loss_compute: SimpleLossCompute,
    is_train: bool = True,
) -> EpochResult:
    """Pass every batch through the model and the loss.

    Parameters
    ----------
    data_iter : iterable of Batch
        One epoch.
    model : callable
        Batch to log-probabilities; its mode, training or evaluation, stays as it is.
    loss_compute : SimpleLossCompute
        Updates the weights if it has an optimiser.
    is_train : bool
        Whether gradients are computed.

    Returns
    -------
    EpochResult
        Means over the epoch's target tokens.

    Raises
    ------
    ValueError
        If ``is_train`` and the loss has no optimiser, or the other way round.
    """
    if is_train != (loss_compute.opt is not None):
        has = "no" if loss_compute.opt is None else "an"
        raise ValueError(f"is_train is {is_train}, but loss_compute has {has} optimiser")
    losses = []
    before = (loss_compute.total_loss, loss_compute.correct, loss_compute.tokens)
    for batch in data_iter:
        with torch.set_grad_enabled(is_train):
            losses.append(loss_compute(model(batch), batch.tgt_y, batch.n_tokens))
    after = (loss_compute.total_loss, loss_compute.correct, loss_compute.tokens)
    loss, correct, tokens = (b - a for a, b in zip(before, after, strict=True))
    return EpochResult(loss / tokens, correct / tokens, losses)


VIZ_INDEX = 3
"""The sentence of a batch whose attention the tutorial's script looks at."""


def make_model(*sizes: Any, **options: Any) -> transformer.Transformer:
    """A model of :func:`~attention_on_edges.models.transformer.make_model` with the tutorial's attribute.

    Set ``model.att_weight_map = None``, and the next batch in evaluation mode that has a sentence
    ``VIZ_INDEX`` makes it the last layer's attention there: ``[e2e, e2d, d2d]``, each [heads, receivers,
    senders]. :meth:`Transformer.attention_of` gives the same without it.
    """
    model: Any = transformer.make_model(*sizes, **options)
    model.att_weight_map = []  # nobody has asked
    model.register_forward_hook(_keep_attention)
    return model


def _keep_attention(model: Any, inputs: tuple[Batch], output: Tensor) -> None:
    [batch] = inputs
    if model.att_weight_map is None and not model.training and batch.n_sentences > VIZ_INDEX:
        model.att_weight_map = model.attention_of(batch, VIZ_INDEX)
