"""Loss and update from the decoder's states."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from edgewise.layers import Generator
from edgewise.training import LabelSmoothing, NoamOpt, SimpleLossCompute, output_loss

States = Tensor | tuple[Tensor, Tensor]
"""Final states [N, dim_model], those of two passes, or several a token and their weights [S, N]."""


class DivergedError(Exception):
    """A loss or a gradient is not a finite number."""


class StateLossCompute(SimpleLossCompute):
    """Like its parent, but it takes final states, so that the matrix of all logits never exists.

    Parameters
    ----------
    generator : Generator
        The output layer.
    criterion : LabelSmoothing
        How certain targets are.
    opt : NoamOpt, optional
        Without one, nothing is learned.
    grad_accum : int
        Batches an update. Gradients are divided by the number of their tokens: each counts alike.
    clip : float, optional
        Longest gradient.
    consistency : float
        Weight of disagreement between two passes over a batch, as in ``output_loss``; for each token the loss
        is then half of that function's.
    extra : callable, optional
        Returns what the latest pass adds to the loss a token, or nothing. It is learned from, not reported.

    Attributes
    ----------
    grad_norm : float
        Length of the latest gradient before it was clipped; zero before the first update.
    latest : float
        Loss a token of the latest batch.
    """

    def __init__(
        self,
        generator: Generator,
        criterion: LabelSmoothing,
        opt: NoamOpt | None = None,
        grad_accum: int = 1,
        clip: float | None = None,
        consistency: float = 0.0,
        extra: Callable[[], Tensor | None] | None = None,
    ):
        super().__init__(criterion, opt, grad_accum)
        self.generator = generator
        self.clip = math.inf if clip is None else clip
        self.consistency = consistency
        self.extra = extra
        self.waiting_tokens = 0
        self.grad_norm = 0.0
        self.latest = math.nan

    def __call__(self, hidden: States, target: Tensor, n_tokens: int) -> float:
        """Count a batch, given its final states [N, dim_model] or [2, N, dim_model], and learn from it.

        Or given several states a token, [S, N, dim_model], and their weights [S, N]: loss and accuracy are
        then those expected.
        """
        self.latest = super().__call__(hidden, target, n_tokens)
        return self.latest

    def evaluate(self, hidden: States, target: Tensor) -> tuple[Tensor, float]:
        """States and targets [N] to the summed loss and the number of right predictions; means of passes.

        Raises
        ------
        DivergedError
            If the loss is not finite.
        """
        proj, options = self.generator.proj, {"consistency": self.consistency}
        if isinstance(hidden, tuple):
            states, weights = hidden
            hidden, target = states.flatten(0, 1), target.repeat(len(states))
            options["weights"] = weights.flatten()
        total, correct = output_loss(hidden, proj.weight, proj.bias, target, self.criterion, **options)
        if not math.isfinite(total.item()):
            raise DivergedError(f"the loss is {total.item()}")
        passes = hidden.dim() - 1
        return total / passes, correct / passes

    def learn(self, total: Tensor, n_tokens: int) -> None:
        """Add a batch's gradient to those that wait.

        Raises
        ------
        DivergedError
            If the extra loss is not finite.
        """
        extra = self.extra() if self.extra else None
        if extra is not None:
            if not math.isfinite(extra.item()):
                raise DivergedError(f"the extra loss is {extra.item()}")
            total = total + extra * n_tokens
        total.backward()
        self.waiting_tokens += n_tokens

    def take_step(self) -> None:
        """Average over tokens, clip, update.

        Raises
        ------
        DivergedError
            If the gradient is not finite; the weights stay as they were.
        """
        grads = [
            p.grad for group in self.opt.optimizer.param_groups for p in group["params"] if p.grad is not None
        ]
        self.grad_norm = float(torch.nn.utils.get_total_norm(grads)) / self.waiting_tokens
        if not math.isfinite(self.grad_norm):
            raise DivergedError(f"the gradient's length is {self.grad_norm}")
        torch._foreach_mul_(grads, min(1.0, self.clip / (self.grad_norm + 1e-12)) / self.waiting_tokens)
        self.waiting_tokens = 0
        self.opt.step()
