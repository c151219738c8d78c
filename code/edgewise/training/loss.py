"""Loss and update from the decoder's final states."""

import math

import torch
from torch import Tensor

from edgewise.layers import Generator
from edgewise.training.chunked_loss import output_loss
from edgewise.training.communicator import LOCAL, LocalCommunicator
from edgewise.training.epoch import SimpleLossCompute
from edgewise.training.schedule import NoamOpt
from edgewise.training.smoothing import LabelSmoothing
from edgewise.training.step import States, StepOutput


class DivergedError(Exception):
    """A loss or a gradient is not a finite number."""


class StateLossCompute(SimpleLossCompute):
    """Like its parent, but from final states, so that the matrix of all logits never exists.

    Parameters
    ----------
    generator : Generator
        The output layer.
    criterion : LabelSmoothing
        Label smoothing.
    opt : NoamOpt, optional
        Without one, the weights are not updated.
    grad_accum : int
        Batches per update. Gradients are averaged over their tokens.
    clip : float, optional
        Largest norm of the gradient.
    r_drop : float
        Weight of R-Drop, as in ``output_loss``; the loss per token is then half of that function's.
    communicator : LocalCommunicator
        The processes that share each batch; counts and losses are of whole batches.

    Attributes
    ----------
    grad_norm : float
        Norm of the latest gradient before clipping; zero before the first update.
    latest : float
        Loss per token of the latest batch.
    latest_tokens : int
        Target tokens of that batch.
    """

    criterion: LabelSmoothing

    def __init__(
        self,
        generator: Generator,
        criterion: LabelSmoothing,
        opt: NoamOpt | None = None,
        grad_accum: int = 1,
        clip: float | None = None,
        r_drop: float = 0.0,
        communicator: LocalCommunicator = LOCAL,
    ):
        super().__init__(criterion, opt, grad_accum)
        self.generator = generator
        self.clip = math.inf if clip is None else clip
        self.r_drop = r_drop
        self.communicator = communicator
        self.waiting_tokens, self.latest_tokens = 0, 0
        self.grad_norm = 0.0
        self.latest = math.nan

    def __call__(self, hidden: States | StepOutput, target: Tensor, n_tokens: int) -> float:
        """Count a batch, given its final states [N, dim_model] or [2, N, dim_model], and learn from it.

        Or given several states per token, [S, N, dim_model], and their weights [S, N], over which loss and
        accuracy are averaged; or given the :class:`StepOutput` that this process has computed.

        Raises
        ------
        DivergedError
            If the loss, or the model's extra loss, is not finite.
        """
        if not isinstance(hidden, StepOutput):
            hidden = StepOutput(*self.evaluate(hidden, target), n_tokens, n_tokens, None, {})
        total, correct, extra, self.latest_tokens = self._over_all(hidden)
        if not math.isfinite(total):
            raise DivergedError(f"the loss is {total}")
        if self.opt is not None:
            if self.waiting == 0:
                self.opt.zero_grad()
            self.learn(hidden.total if extra is None else hidden.total + extra, self.latest_tokens)
            self.waiting += 1
            if self.waiting == self.grad_accum:
                self.finish()
        self.total_loss += total
        self.correct += correct
        self.tokens += self.latest_tokens
        self.latest = total / self.latest_tokens
        return self.latest

    def _over_all(self, part: StepOutput) -> tuple[float, float, Tensor | None, int]:
        """Loss, correct predictions and tokens of the whole batch, and this part's share of the extra loss.

        The extra loss is a mean over the nodes of the batch, for each of its target tokens.
        """
        mine = 0.0 if part.extra is None else part.extra.item()
        values = [part.total.item(), part.correct, part.tokens, part.nodes, mine]
        total, correct, tokens, nodes, extra = self.communicator.sum(values)
        if not math.isfinite(extra):
            raise DivergedError(f"the extra loss is {extra}")
        if part.extra is None:
            return total, correct, None, int(tokens)
        return total, correct, part.extra * (tokens * (part.nodes / nodes)), int(tokens)

    def evaluate(self, hidden: States, target: Tensor) -> tuple[Tensor, float]:
        """States and targets [N] to the summed loss and number of correct ones, averaged over passes."""
        proj, weights = self.generator.proj, None
        if isinstance(hidden, tuple):
            states, weights = hidden[0], hidden[1].flatten()
            hidden, target = states.flatten(0, 1), target.repeat(len(states))
        total, correct = output_loss(
            hidden, proj.weight, proj.bias, target, self.criterion, r_drop=self.r_drop, weights=weights
        )
        passes = hidden.dim() - 1
        return total / passes, correct / passes

    def learn(self, total: Tensor, n_tokens: int) -> None:
        """Accumulate a batch's gradient."""
        self.communicator.backward(total)
        self.waiting_tokens += n_tokens

    def take_step(self) -> None:
        """Average over tokens, clip, update.

        Raises
        ------
        DivergedError
            If the gradient is not finite; the weights are not changed.
        """
        grads = [
            p.grad for group in self.opt.optimizer.param_groups for p in group["params"] if p.grad is not None
        ]
        # Gradients are means over the processes already.
        divisor = self.waiting_tokens / self.communicator.size
        self.grad_norm = float(torch.nn.utils.get_total_norm(grads)) / divisor
        if not math.isfinite(self.grad_norm):
            raise DivergedError(f"the gradient's length is {self.grad_norm}")
        torch._foreach_mul_(grads, min(1.0, self.clip / (self.grad_norm + 1e-12)) / divisor)
        self.waiting_tokens = 0
        self.opt.step()
