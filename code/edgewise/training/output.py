"""The output layer and its loss, a few rows at a time.

A vocabulary of thousands makes the matrix [tokens, vocabulary] the largest of a training step. Here it
exists only as two buffers of a few rows: each chunk's logits become probabilities, and those become
gradients, before the next chunk takes their place.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from edgewise.training.smoothing import LabelSmoothing
from edgewise.validation import check_count

CHUNK = 1 << 21
"""Logits in a chunk: eight megabytes in float32, which stay in a third-level cache."""


def output_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    criterion: LabelSmoothing,
    chunk: int = CHUNK,
) -> tuple[Tensor, int]:
    """Equal ``criterion((hidden @ weight.T + bias).log_softmax(1), target)``, in little memory.

    The gradient is worked out in the forward pass, chunk by chunk; derivatives are of first order only.

    Parameters
    ----------
    hidden : Tensor
        States [N, d].
    weight, bias : Tensor
        Of the output layer, [V, d] and [V]; the bias may be ``None``.
    target : Tensor
        int64 [N]
    criterion : LabelSmoothing
        How certain the targets are, and which id is padding.
    chunk : int
        Most logits that exist at a time, but at least one row.

    Returns
    -------
    loss : Tensor
        Scalar: the sum over tokens, in nats.
    correct : int
        Tokens whose target is the likeliest prediction.

    Raises
    ------
    TypeError, ValueError
        If shapes do not fit or a target lies outside the vocabulary.
    """
    if hidden.dim() != 2 or hidden.shape[1:] != weight.shape[1:]:
        raise ValueError(f"hidden must be [N, {weight.shape[1]}], got {list(hidden.shape)}")
    criterion.check(target, len(hidden), len(weight))
    rows = max(check_count("chunk", chunk, 1) // len(weight), 1)
    with torch.autocast(hidden.device.type, enabled=False):  # logits in half precision would cost accuracy
        states = hidden.to(weight.dtype)
        loss, correct = _OutputLoss.apply(states, weight, bias, target, criterion, rows)
    return loss, int(correct)


class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        criterion: LabelSmoothing,
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        learning = any(ctx.needs_input_grad[:3])
        grads = [None if x is None or not learning else torch.zeros_like(x) for x in (hidden, weight, bias)]
        loss = torch.zeros((), dtype=torch.float64, device=hidden.device)
        correct = torch.zeros((), dtype=torch.int64, device=hidden.device)
        buffers = hidden.new_empty(2, min(rows, len(hidden)), len(weight))
        for first in range(0, len(hidden), rows):
            part = slice(first, first + rows)
            logits, slope = buffers[:, : len(target[part])]
            torch.mm(hidden[part], weight.T, out=logits)
            if bias is not None:
                logits += bias
            some, right = _loss_and_slope(logits, target[part], criterion, slope)
            loss, correct = loss + some, correct + right
            if learning:
                torch.mm(slope, weight, out=grads[0][part])
                grads[1].addmm_(slope.T, hidden[part])
                if bias is not None:
                    grads[2] += slope.sum(0)
        ctx.save_for_backward(*grads)
        ctx.mark_non_differentiable(correct)
        return loss.to(hidden.dtype), correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        grads = (None if grad is None else grad * upstream for grad in ctx.saved_tensors)
        return *grads, None, None, None


def _loss_and_slope(
    logits: Tensor, target: Tensor, criterion: LabelSmoothing, slope: Tensor
) -> tuple[Tensor, Tensor]:
    """Loss and right predictions of a chunk; writes the loss's derivative by the logits into ``slope``.

    With weights w of a smoothed target, which sum to one, that derivative is softmax(logits) - w.
    """
    torch.softmax(logits, 1, out=slope)
    highest, likeliest = slope.max(1)
    log_z = logits.gather(1, likeliest[:, None]).squeeze(1) - highest.log()
    right = logits.gather(1, target[:, None]).squeeze(1) - log_z
    others = logits.sum(1) - logits[:, criterion.padding_idx] - (criterion.size - 1) * log_z
    loss = -criterion.certain * right - criterion.share * others - criterion.entropy()
    slope -= criterion.share
    slope[:, criterion.padding_idx] += criterion.share
    slope.scatter_add_(1, target[:, None], torch.full_like(log_z, -criterion.certain)[:, None])
    real = target != criterion.padding_idx
    if not bool(real.all()):
        slope *= real[:, None]
        loss = loss.masked_fill(~real, 0)
    return loss.double().sum(), ((likeliest == target) & real).sum()
