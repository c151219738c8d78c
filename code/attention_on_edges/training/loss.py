"""From a batch to its loss, without the matrix of all logits; and the update that follows."""

import math
import platform
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from attention_on_edges.layers import Generator
from attention_on_edges.models.halting import Pondering
from attention_on_edges.models.transformer import Transformer
from attention_on_edges.pool import Batch
from attention_on_edges.training.chunked_loss import output_loss
from attention_on_edges.training.distributed import world_size
from attention_on_edges.training.smoothing import LabelSmoothing
from attention_on_edges.tutorial import NoamOpt
from edgewise.validation import is_plain


class DivergedError(Exception):
    """A loss or a gradient is not a finite number."""


class BatchLoss(NamedTuple):
    """The result of a pass over a batch, or over a process's share of it.

    Attributes
    ----------
    total : Tensor
        Summed loss of the target tokens, in nats.
    correct : float
        Target tokens predicted right.
    tokens : int
        Target tokens that are not padding.
    nodes : int
        Source and target tokens.
    extra : Tensor or None
        The model's extra loss per token, a mean over ``nodes``; part of the gradient, not of the reported
        loss.
    pondered : dict of str to Pondering
        As in :class:`attention_on_edges.models.transformer.Output`.
    """

    total: Tensor
    correct: float
    tokens: int
    nodes: int
    extra: Tensor | None
    pondered: Mapping[str, Pondering]


def batch_loss(
    model: Transformer, batch: Batch, criterion: LabelSmoothing, step: int = 0, autocast: bool = False
) -> BatchLoss:
    """Pass a batch through, after ``step`` updates; a stand-in counts as nothing.

    With ``autocast``, matrix products are in bfloat16.
    """
    with torch.autocast(batch.device.type, torch.bfloat16, enabled=autocast):
        output = model.run(batch)
        extra = model.extra_loss(output, step)
        total, correct = states_loss(model.generator, criterion, output.hidden, batch.tgt_y)
    if not batch.stand_in:
        tokens = int((batch.tgt_y != criterion.padding_idx).sum())
        return BatchLoss(total, correct, tokens, batch.n_nodes, extra, output.pondered)
    return BatchLoss(total * 0, 0.0, 0, 0, None if extra is None else extra * 0, output.pondered)


def states_loss(
    generator: Generator, criterion: LabelSmoothing, hidden: Tensor, target: Tensor
) -> tuple[Tensor, float]:
    """Return the summed loss of final states, and how many targets they predict; see :func:`output_loss`."""
    proj = generator.proj
    if is_plain(generator, Generator) and is_plain(proj) and is_plain(criterion, LabelSmoothing):
        return output_loss(hidden, proj.weight, proj.bias, target, criterion)
    log_probs = generator(hidden)
    right = (log_probs.argmax(1) == target) & (target != criterion.padding_idx)
    return criterion(log_probs, target), float(right.sum())


def take_step(opt: NoamOpt, tokens: int, clip: float | None = None) -> float:
    """Average gradients over the target tokens of an update, clip and update; return their norm before.

    Raises
    ------
    DivergedError
        If the gradient is not finite; the weights are not changed.
    """
    grads = [p.grad for group in opt.optimizer.param_groups for p in group["params"] if p.grad is not None]
    divisor = tokens / world_size()  # gradients are means over the processes already
    norm = float(torch.nn.utils.get_total_norm(grads)) / divisor
    if not math.isfinite(norm):
        raise DivergedError(f"the gradient's norm is {norm}")
    torch._foreach_mul_(grads, min(1.0, (clip or math.inf) / (norm + 1e-12)) / divisor)
    opt.step()
    return norm


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether a device has matrix products in bfloat16; a CPU that emulates them takes many times as long."""
    if device.type != "cpu":
        return True
    if platform.machine().lower() in ("x86_64", "amd64"):
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
