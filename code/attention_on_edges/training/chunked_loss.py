"""The output layer and its loss, a few rows at a time.

A vocabulary of thousands makes the matrix [tokens, vocabulary] the largest of a training step. Here it
exists only as two buffers of a few rows: each chunk's logits become probabilities, and those become
gradients, before the next chunk takes their place.
"""

from typing import Any

import torch
from torch import Tensor

from attention_on_edges.training.smoothing import LabelSmoothing
from edgewise.propagation.precision import widest, without_second_derivatives

CHUNK = 1 << 21
"""Logits in a chunk: eight megabytes in float32, which stay in a third-level cache."""


def output_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    criterion: LabelSmoothing,
    chunk: int = CHUNK,
) -> tuple[Tensor, float]:
    """Compute ``criterion((hidden @ weight.T + bias).log_softmax(1), target)`` in little memory.

    The gradient is computed in the forward pass, chunk by chunk; there are no second derivatives. Under
    autocast, matrix products run in its precision, everything else in that of the weights.

    Parameters
    ----------
    hidden : Tensor
        States [N, d].
    weight, bias : Tensor
        Of the output layer, [V, d] and [V]; the bias may be ``None``.
    target : Tensor
        int64 [N]
    criterion : LabelSmoothing
        Smoothing of the targets, and the id of padding.
    chunk : int
        Most logits in memory at a time, but at least those of one token.

    Returns
    -------
    loss : Tensor
        Scalar: the sum over tokens, in nats.
    correct : float
        Tokens whose target is the most probable prediction.

    Raises
    ------
    TypeError, ValueError
        If a target is outside the vocabulary.
    """
    criterion.check(target, len(hidden), len(weight))
    rows = max(chunk // len(weight), 1)
    kind = hidden.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
    with torch.autocast(kind, enabled=False):
        states = hidden.to(weight.dtype)
        loss, correct = _OutputLoss.apply(states, weight, bias, target, criterion, rows, dtype)
    return loss, correct.item()


class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,  # [N, d]
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        criterion: LabelSmoothing,
        rows: int,
        dtype: torch.dtype,  # of matrix products
    ) -> tuple[Tensor, Tensor]:
        learning = any(ctx.needs_input_grad[:3])
        inputs = (hidden, weight, bias)
        grads: list[Any] = [None if x is None or not learning else torch.zeros_like(x) for x in inputs]
        loss, correct = torch.zeros(2, dtype=widest(hidden.device), device=hidden.device)
        factor, rounded = weight.to(dtype), hidden.to(dtype)
        buffers = hidden.new_empty(2, min(rows, len(target)), len(weight))
        for first in range(0, len(target), rows):
            part = slice(first, first + rows)
            states, targets = rounded[part], target[part]
            logits, gradient = buffers[:, : len(targets)]
            _write_logits(logits, states, factor, bias)
            some, right = _loss_and_gradient(logits, targets, criterion, gradient)
            loss, correct = loss + some.to(loss.dtype).sum(), correct + right.to(loss.dtype).sum()
            if learning:
                if bias is not None:
                    grads[2] += gradient.sum(0)
                gradient = gradient.to(dtype)
                grads[0][part] = gradient @ factor
                grads[1] += gradient.T @ states
        ctx.save_for_backward(*grads)
        ctx.mark_non_differentiable(correct)
        return loss.to(hidden.dtype), correct

    @staticmethod
    @without_second_derivatives("LabelSmoothing")
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        grads = (None if grad is None else grad * upstream for grad in ctx.saved_tensors)
        return *grads, None, None, None, None


def _write_logits(logits: Tensor, states: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Multiply in the precision of ``weight``, and write the result into ``logits`` in theirs."""
    if logits.dtype == weight.dtype:
        torch.mm(states, weight.T, out=logits)
    else:
        logits.copy_(states @ weight.T)
    if bias is not None:
        logits += bias


def _loss_and_gradient(
    logits: Tensor, target: Tensor, criterion: LabelSmoothing, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Loss of each row, and whether it is right; writes the gradient for the logits into ``gradient``.

    With a smoothed target w, which sums to one, that gradient is softmax(logits) - w.
    """
    torch.softmax(logits, 1, out=gradient)
    highest = logits.amax(1)
    log_z = highest - gradient.amax(1).log()
    right = logits.gather(1, target[:, None]).squeeze(1)
    correct = right == highest
    rows = correct.nonzero().squeeze(1)
    correct[rows] = logits[rows].argmax(1) == target[rows]  # of equal predictions the first counts
    right = right - log_z
    loss = -criterion.certain * right - criterion.entropy()
    if criterion.share:
        logits[:, criterion.padding_idx] = 0
        loss -= criterion.share * (logits.sum(1) - (criterion.size - 1) * log_z)
    gradient -= criterion.share
    gradient[:, criterion.padding_idx] += criterion.share
    gradient.scatter_add_(1, target[:, None], torch.full_like(log_z, -criterion.certain)[:, None])
    real = target != criterion.padding_idx
    if not bool(real.all()):
        gradient *= real[:, None]
        loss = loss.masked_fill(~real, 0)
    return loss, correct & real
