"""A learning rate that warms up, then decays."""

from numbers import Real
from typing import Any

import torch

from edgewise.validation import check_count


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
        if not isinstance(factor, float | Real) or not factor > 0:  # as check_real
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
