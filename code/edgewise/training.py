"""Chapter 7: what a Transformer is trained with: smoothed labels, a warmed-up rate, a loop."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from edgewise.graphs import Batch
from edgewise.validation import check_count, check_ids, check_probability


class LabelSmoothing(nn.Module):
    r"""Divergence of the prediction from a target that is not quite certain (Szegedy et al. 2016, sec. 7).

    The right token gets :math:`1 - \epsilon`; the others share :math:`\epsilon` evenly; padding gets nothing.
    The loss is :math:`\sum_t D_\mathrm{KL}(\mathrm{target}_t \,\|\, \mathrm{prediction}_t)` over the tokens
    that are not padding.

    Parameters
    ----------
    size : int
        Vocabulary, at least 3.
    padding_idx : int
        Id of padding.
    smoothing : float
        :math:`\epsilon` in [0, 1).

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be.
    """

    def __init__(self, size: int, padding_idx: int, smoothing: float = 0.0):
        super().__init__()
        self.size = check_count("size", size, 3)
        self.padding_idx = check_count("padding_idx", padding_idx)
        if padding_idx >= size:
            raise ValueError(f"padding_idx must lie in 0..{size - 1}, got {padding_idx}")
        self.smoothing = check_probability("smoothing", smoothing)

    def forward(self, log_probs: Tensor, target: Tensor) -> Tensor:
        """Sum the divergence over tokens.

        Parameters
        ----------
        log_probs : Tensor
            [N, size]
        target : Tensor
            int64 [N]

        Returns
        -------
        Tensor
            Scalar, in nats.

        Raises
        ------
        TypeError, ValueError
            If shapes differ or a target lies outside the vocabulary.
        """
        check_ids("target", target, self.size)
        if target.dim() != 1 or log_probs.shape != (len(target), self.size):
            raise ValueError(
                f"log_probs and target must be [N, {self.size}] and [N], "
                f"got {list(log_probs.shape)} and {list(target.shape)}"
            )
        real = target != self.padding_idx
        right = log_probs.gather(1, target[:, None]).squeeze(1)
        share = self.smoothing / (self.size - 2)
        cross_entropy = -(1 - self.smoothing - share) * right
        if share:
            padding = torch.tensor([self.padding_idx], device=log_probs.device)
            cross_entropy = cross_entropy - share * log_probs.index_fill(1, padding, 0.0).sum(1)
        return (cross_entropy[real] - self.entropy()).sum()

    def entropy(self) -> float:
        """Entropy of a smoothed target in nats: the cross-entropy of a perfect prediction."""
        others = self.size - 2
        parts = [(1 - self.smoothing, 1), (self.smoothing / others, others)]
        return -sum(count * p * math.log(p) for p, count in parts if p > 0)

    def distribution(self, target: Tensor) -> Tensor:
        """Return the smoothed targets themselves: [N, size], rows of zeros for padding."""
        check_ids("target", target, self.size)
        rows = torch.full((len(target), self.size), self.smoothing / (self.size - 2), device=target.device)
        rows.scatter_(1, target[:, None], 1 - self.smoothing)
        rows[:, self.padding_idx] = 0.0
        rows[target == self.padding_idx] = 0.0
        return rows


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
        Steps until the rate is highest.
    optimizer : torch.optim.Optimizer
        Whose rate is set before each of its steps.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be.
    """

    def __init__(self, dim_model: int, factor: float, warmup: int, optimizer: torch.optim.Optimizer):
        self.dim_model = check_count("dim_model", dim_model, 1)
        self.warmup = check_count("warmup", warmup, 1)
        if not isinstance(factor, Real) or not factor > 0:
            raise ValueError(f"factor must be a positive number, got {factor!r}")
        if not hasattr(optimizer, "param_groups"):
            raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {optimizer!r}")
        self.factor = factor
        self.optimizer = optimizer
        self.steps = 0

    def rate(self, step: int | None = None) -> float:
        """Return the rate of a step, counted from 1; without ``step``, of the latest one.

        Raises
        ------
        ValueError
            For step 0, where the formula is infinite.
        """
        step = check_count("step", self.steps if step is None else step, 1)
        return self.factor * self.dim_model**-0.5 * min(step**-0.5, step * self.warmup**-1.5)

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
    """Turns a batch's prediction into a loss, learns from it if there is an optimiser, and keeps count.

    Parameters
    ----------
    criterion : callable
        Log-probabilities [N, V] and targets [N] to a summed loss.
    opt : NoamOpt or torch.optim.Optimizer, optional
        Without one, nothing is learned.
    grad_accum : int
        Batches whose gradients are added up before each step.

    Raises
    ------
    TypeError
        If ``opt`` cannot take a step, or ``grad_accum`` is not an integer.
    """

    def __init__(self, criterion: Callable[[Tensor, Tensor], Tensor], opt: Any = None, grad_accum: int = 1):
        if opt is not None and not (hasattr(opt, "step") and hasattr(opt, "zero_grad")):
            raise TypeError(f"opt must have step() and zero_grad(), got {opt!r}")
        self.criterion = criterion
        self.opt = opt
        self.grad_accum = check_count("grad_accum", grad_accum, 1)
        self.total_loss, self.correct, self.tokens, self.waiting = 0.0, 0, 0, 0

    @property
    def avg_loss(self) -> float:
        """Loss a token so far, in nats; not a number before the first batch."""
        return self.total_loss / self.tokens if self.tokens else math.nan

    @property
    def accuracy(self) -> float:
        """Share of tokens predicted right so far, each given the true tokens before it."""
        return self.correct / self.tokens if self.tokens else math.nan

    def __call__(self, log_probs: Tensor, target: Tensor, n_tokens: int) -> float:
        """Count a batch, and learn from it.

        Parameters
        ----------
        log_probs : Tensor
            [N, V]
        target : Tensor
            int64 [N]
        n_tokens : int
            By which the summed loss is divided.

        Returns
        -------
        float
            Loss a token of this batch.
        """
        check_count("n_tokens", n_tokens, 1)
        total = self.criterion(log_probs, target)
        if self.opt is not None:
            if self.waiting == 0:
                self.opt.zero_grad()
            (total / (n_tokens * self.grad_accum)).backward()
            self.waiting += 1
            if self.waiting == self.grad_accum:
                self.finish()
        self.total_loss += total.item()
        self.correct += int((log_probs.argmax(1) == target).sum())
        self.tokens += n_tokens
        return total.item() / n_tokens

    def finish(self) -> None:
        """Take the step that gradients of a last, incomplete group of batches still wait for."""
        if self.waiting:
            self.opt.step()
            self.waiting = 0


@dataclass(frozen=True)
class EpochResult:
    """What an epoch amounted to.

    Attributes
    ----------
    loss : float
        Nats a token.
    accuracy : float
        Share of tokens predicted right, each given the true tokens before it.
    losses : list of float
        Loss a token of each batch.
    """

    loss: float
    accuracy: float
    losses: list[float]


def run_epoch(
    data_iter: Iterable[Batch],
    model: nn.Module,
    loss_compute: SimpleLossCompute,
    is_train: bool = True,
    progress: bool = False,
) -> EpochResult:
    """Pass every batch through the model and the loss.

    Parameters
    ----------
    data_iter : iterable of Batch
        One epoch.
    model : torch.nn.Module
        Batch to log-probabilities. Put into training or evaluation mode first.
    loss_compute : SimpleLossCompute
        Learns if it holds an optimiser.
    is_train : bool
        Whether gradients are kept.
    progress : bool
        Whether to show a progress bar.

    Raises
    ------
    ValueError
        If ``is_train`` and the loss has no optimiser, or the other way round, or there is no batch.
    """
    if is_train != (loss_compute.opt is not None):
        has = "no" if loss_compute.opt is None else "an"
        raise ValueError(f"is_train is {is_train}, but loss_compute has {has} optimiser")
    losses = []
    before = (loss_compute.total_loss, loss_compute.correct, loss_compute.tokens)
    for batch in tqdm(data_iter, disable=not progress, unit="batch"):
        with torch.set_grad_enabled(is_train):
            losses.append(loss_compute(model(batch), batch.tgt_y, batch.n_tokens))
    loss_compute.finish()
    after = (loss_compute.total_loss, loss_compute.correct, loss_compute.tokens)
    loss, correct, tokens = (b - a for a, b in zip(before, after, strict=True))
    if tokens == 0:
        raise ValueError("data_iter must hold at least one batch, got none")
    return EpochResult(loss / tokens, correct / tokens, losses)
