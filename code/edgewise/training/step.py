"""A training step as one module: from a batch to its loss."""

import platform
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from edgewise.graphs import Batch
from edgewise.models.halting import Pondering
from edgewise.models.transformer import Output, Transformer
from edgewise.training.config import TrainingConfig

States = Tensor | tuple[Tensor, Tensor]
"""Final states [N, dim_model], those of two passes, or several per token with their weights [S, N]."""

Evaluate = Callable[[States, Tensor], tuple[Tensor, float]]
"""States and targets [N] to the summed loss and the number of correct predictions."""


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether a device has matrix products in bfloat16; a CPU that emulates them takes many times as long."""
    if device.type != "cpu":
        return True
    if platform.machine().lower() in ("x86_64", "amd64"):
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def on_device(config: TrainingConfig, model: nn.Module) -> TrainingConfig:
    """Return a configuration as it runs on a model's device: without bfloat16 where that is emulated."""
    device = next(model.parameters()).device
    return replace(config, autocast=config.autocast and multiplies_bfloat16(device))


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
    pondered : dict of str to Pondering
        As in :class:`edgewise.models.transformer.Output`.
    """

    total: Tensor
    correct: float
    tokens: int
    nodes: int
    extra: Tensor | None
    pondered: Mapping[str, Pondering]


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
        with torch.autocast(batch.device.type, torch.bfloat16, enabled=self.config.autocast):
            passes = 2 if self.config.r_drop and self.model.training else 1
            outputs = [self.model.run(batch) for _ in range(passes)]
            terms = [self.model.extra_loss(output, step) for output in outputs]
            states = self._states(outputs)
            total, correct = self.evaluate(states, batch.tgt_y)
        extras = [term for term in terms if term is not None]
        extra = torch.stack(extras).mean() if extras else None
        pondered = outputs[-1].pondered
        if not batch.stand_in:
            return StepOutput(total, correct, batch.n_tokens, batch.n_nodes, extra, pondered)
        return StepOutput(total * 0, 0.0, 0, 0, None if extra is None else extra * 0, pondered)

    def _states(self, outputs: list[Output]) -> States:
        several = self.model.predictions(outputs[0])
        if len(outputs) == 1:
            return outputs[0].hidden if several is None else several
        if several is not None:
            raise ValueError("R-Drop is not defined for a loss averaged over several states")
        return torch.stack([output.hidden for output in outputs])
