"""A training step as one module: from a batch to its loss."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from edgewise.graphs import Batch
from edgewise.models.transformer import Transformer
from edgewise.training.config import TrainingConfig

States = Tensor | tuple[Tensor, Tensor]
"""Final states [N, dim_model], those of two passes, or several per token with their weights [S, N]."""

Evaluate = Callable[[States, Tensor], tuple[Tensor, float]]
"""States and targets [N] to the summed loss and the number of correct predictions."""


class StepOutput(NamedTuple):
    """The result of a pass over a batch, or over a process's share of it.

    Attributes
    ----------
    total : Tensor
        Summed loss of the target tokens, in nats.
    correct : float
        Target tokens predicted right.
    tokens : int
        Target tokens.
    nodes : int
        Source and target tokens.
    extra : Tensor or None
        The model's extra loss per token, a mean over ``nodes``; part of the gradient, not of the reported
        loss.
    """

    total: Tensor
    correct: float
    tokens: int
    nodes: int
    extra: Tensor | None = None


class TrainingStep(nn.Module):
    """Model, output layer and loss as one module.

    ``DistributedDataParallel`` needs a single ``forward``; here a model is used through several methods, and
    twice for R-Drop.

    Parameters
    ----------
    model : Transformer
        In either mode.
    config : TrainingConfig
        Sets R-Drop and precision.
    evaluate : callable
        From states to the loss.
    """

    def __init__(self, model: Transformer, config: TrainingConfig, evaluate: Evaluate):
        super().__init__()
        self.model, self.config, self.evaluate = model, config, evaluate

    def forward(self, batch: Batch, step: int) -> StepOutput:
        """Pass a batch through, after ``step`` updates; a stand-in counts as nothing.

        Raises
        ------
        ValueError
            If R-Drop is combined with a loss averaged over several states.
        """
        states, extra = self.states(batch, step)
        total, correct = self.evaluate(states, batch.tgt_y)
        if not batch.stand_in:
            return StepOutput(total, correct, batch.n_tokens, batch.n_nodes, extra)
        return StepOutput(total * 0, 0.0, 0, 0, None if extra is None else extra * 0)

    def states(self, batch: Batch, step: int) -> tuple[States, Tensor | None]:
        """Return the final states and the model's extra loss per token."""
        states, extras = [], []
        with torch.autocast(batch.device.type, torch.bfloat16, enabled=self.config.autocast):
            for _ in range(2 if self.config.r_drop and self.model.training else 1):
                states.append(self.model.hidden(batch))
                extras.append(self.model.extra_loss(step))
            several = self.model.predictions()
        terms = [term for term in extras if term is not None]
        extra = torch.stack(terms).mean() if terms else None
        if several is None:
            return states[0] if len(states) == 1 else torch.stack(states), extra
        if len(states) > 1:
            raise ValueError("R-Drop is not defined for a loss averaged over several states")
        return several, extra
