"""Adaptive computation time: halting units, ponder cost and the halting loop."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from edgewise.propagation.precision import widest
from edgewise.validation import check_count, check_real


class HaltingUnit(nn.Module):
    r"""The probability of halting, from a state: :math:`\sigma(w^\top \mathrm{norm}(x) + b)`.

    The norm is that of DGL's example. Graves 2016 (sec. 2) has none; the states of his networks are bounded.

    Parameters
    ----------
    dim_model : int
        Width of a state.
    bias : float
        Initial :math:`b`. The lower, the more steps before training.
    """

    def __init__(self, dim_model: int, bias: float = 1.0):
        super().__init__()
        self.norm = nn.LayerNorm(check_count("dim_model", dim_model, 1))
        self.linear = nn.Linear(dim_model, 1)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.constant_(self.linear.bias, check_real("bias", bias))

    def forward(self, x: Tensor) -> Tensor:
        """[N, dim_model] to probabilities [N]."""
        return self.linear(self.norm(x)).squeeze(-1).to(x.dtype).sigmoid()


class Revision(Protocol):
    """The step that revises states, and is told which tokens have halted."""

    def revise(self, n: int, rows: Tensor, y: Tensor) -> Tensor:
        """Return the new states of tokens ``rows``, int64 [A]; ``y`` [A, d] is the input of step ``n``."""

    def leave(self, n: int, rows: Tensor, x: Tensor) -> None:
        """Record that tokens ``rows`` halted at step ``n`` with states ``x``."""


@dataclass(frozen=True, eq=False)
class Pondering:
    """The result of halting on one side: outputs, weights and steps.

    Attributes
    ----------
    output : Tensor
        [N, d]: the weighted mean of each token's states.
    weights : Tensor
        [N, max_steps]: the weights of that mean; they sum to one, and are zero after the last step.
    steps : Tensor
        int64 [N]: steps taken, at least one.
    """

    output: Tensor
    weights: Tensor
    steps: Tensor

    @property
    def cost(self) -> Tensor:
        """[N]: steps taken plus remainder, the weight of a token's last state (Graves 2016, sec. 2.1).

        The number of steps has no derivative: the gradient comes from the remainder alone.
        """
        return self.steps + self.weights.gather(1, self.steps[:, None] - 1).squeeze(1)

    @property
    def mean_steps(self) -> float:
        """Mean number of steps per token."""
        return float(self.steps.to(widest(self.steps.device)).mean())

    @property
    def counts(self) -> list[float]:
        """Tokens that took one step, two, and so on; then the sum of :attr:`cost`."""
        taken = torch.bincount(self.steps, minlength=self.weights.shape[1] + 1)[1:]
        return [*taken.tolist(), float(self.cost.detach().to(widest(self.cost.device)).sum())]


def ponder(
    x: Tensor,
    step_forward: Callable[[int, Tensor, Tensor], Tensor],
    revision: Revision,
    halt: Callable[[Tensor], Tensor] | None,
    max_steps: int,
    threshold: float,
) -> Pondering:
    r"""Revise each state until its token halts (Graves 2016, sec. 2; Dehghani et al. 2019, sec. 2.2).

    With :math:`p^n` the halting probability after step :math:`n`, a token halts at the first step :math:`T`
    where :math:`\sum_{n \le T} p^n` reaches a threshold, at the latest at ``max_steps``. Its output is

    .. math::
        s = \sum_{n < T} p^n x^n + R \, x^T, \qquad R = 1 - \sum_{n < T} p^n

    Nothing is computed for a token that has halted. The probability after the step at which it halts gets no
    gradient: if every token halts at its second step, training cannot see whether a third would help.

    Parameters
    ----------
    x : Tensor
        [N, d]: the initial states.
    step_forward : callable
        Step number from 0, tokens int64 [A] and their states [A, d] to the input of this step.
    revision : Revision
        The step itself.
    halt : callable or None
        States [A, d] to halting probabilities [A]. Without it every token takes ``max_steps`` steps and
        outputs its last state.
    max_steps, threshold : int, float
        As above.
    """
    rows = torch.arange(len(x), device=x.device)
    total, mean = x.new_zeros(len(x)), torch.zeros_like(x)
    done: list[tuple[Tensor, Tensor]] = []  # tokens and outputs
    weighed: list[tuple[Tensor, Tensor]] = []  # places in the table of weights, weights
    steps = torch.zeros_like(rows)
    for n in range(max_steps):
        x = revision.revise(n, rows, step_forward(n, rows, x))
        p = x.new_zeros(len(x)) if halt is None else halt(x)
        halts = (total + p >= threshold) | (n == max_steps - 1)
        weight, total, mean = halt_and_accum(halts, p, x, total, mean)
        weighed.append((rows * max_steps + n, weight))
        over, on = halts.nonzero().squeeze(1), (~halts).nonzero().squeeze(1)
        if len(over) == 0:
            continue
        steps[rows[over]] = n + 1
        done.append((rows[over], mean.index_select(0, over)))
        revision.leave(n, rows[over], x.index_select(0, over))
        if len(on) == 0:
            break
        x, mean, total, rows = (each.index_select(0, on) for each in (x, mean, total, rows))
    weights = _placed(len(steps) * max_steps, weighed).view(-1, max_steps)
    return Pondering(_placed(len(steps), done), weights, steps)


def halt_and_accum(
    halts: Tensor, p: Tensor, x: Tensor, total: Tensor, mean: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Weigh each state by its probability, or by what is left of 1 where its token halts; add it up.

    ``halts``, ``p`` and the sum ``total`` of the probabilities before are [A], ``x`` and ``mean`` [A, d].

    Returns
    -------
    weight, total, mean : Tensor
        The states' weights, and both sums with this step's.
    """
    weight = torch.where(halts, 1 - total, p)
    return weight, total + p, mean + weight[:, None] * x


def _placed(count: int, parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Scatter values [A, ...] to places [A]; zeros elsewhere."""
    places, values = (torch.cat(part) for part in zip(*parts, strict=True))
    return values.new_zeros(count, *values.shape[1:]).index_copy(0, places, values)


HALTING = ("act", "fixed")
"""Halting rules: Graves 2016, and a fixed number of steps."""
