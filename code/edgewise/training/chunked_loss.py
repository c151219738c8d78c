"""The output layer and its loss, a few rows at a time.

A vocabulary of thousands makes the matrix [tokens, vocabulary] the largest of a training step. Here it
exists only as two buffers of a few rows: each chunk's logits become probabilities, and those become
gradients, before the next chunk takes their place.
"""

from typing import Any

import torch
from torch import Tensor

from edgewise.message_passing.precision import without_second_derivatives
from edgewise.training.smoothing import LabelSmoothing

CHUNK = 1 << 21
"""Logits in a chunk: eight megabytes in float32, which stay in a third-level cache."""


def output_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    criterion: LabelSmoothing,
    chunk: int = CHUNK,
    r_drop: float = 0.0,
    weights: Tensor | None = None,
) -> tuple[Tensor, float]:
    r"""Compute ``criterion((hidden @ weight.T + bias).log_softmax(1), target)`` in little memory.

    The gradient is computed in the forward pass, chunk by chunk; there are no second derivatives. Under
    autocast, matrix products run in its precision, everything else in that of the weights.

    R-Drop (Wu et al. 2021, eq. 4): for two passes over the same tokens, which differ in their dropout, with
    predictions :math:`P_1, P_2` and ``r_drop`` :math:`\gamma`, the loss is

    .. math::
        \sum_t \Big(\mathrm{criterion}(P_1) + \mathrm{criterion}(P_2)
        + \tfrac{\gamma}{2} \big(D_\mathrm{KL}(P_1 \,\|\, P_2) + D_\mathrm{KL}(P_2 \,\|\, P_1)\big)\Big)

    Parameters
    ----------
    hidden : Tensor
        States [N, d], or those of two passes [2, N, d].
    weight, bias : Tensor
        Of the output layer, [V, d] and [V]; the bias may be ``None``.
    target : Tensor
        int64 [N]
    criterion : LabelSmoothing
        Smoothing of the targets, and the id of padding.
    chunk : int
        Most logits in memory at a time, but at least those of one token.
    r_drop : float
        Weight of R-Drop's divergence between two passes, at least 0.
    weights : Tensor, optional
        [N]: each token's weight in loss and count; may require gradients. One pass only.

    Returns
    -------
    loss : Tensor
        Scalar: the sum over tokens, and over passes, in nats.
    correct : float
        Tokens whose target is the most probable prediction, over all passes, weighted if there are weights.

    Raises
    ------
    TypeError, ValueError
        If a target is outside the vocabulary.
    """
    passes = hidden.dim() - 1
    criterion.check(target, hidden.shape[-2], len(weight))
    rows = max(chunk // (passes * len(weight)), 1)
    kind = hidden.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
    with torch.autocast(kind, enabled=False):
        states = hidden.to(weight.dtype).reshape(passes, *hidden.shape[-2:])
        if weights is not None:
            weights = weights.to(weight.dtype)
        settings = (target, criterion, rows, r_drop, dtype)
        loss, correct = _OutputLoss.apply(states, weight, bias, weights, *settings)
    return loss, correct.item()


class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,  # [passes, N, d]
        weight: Tensor,
        bias: Tensor | None,
        weights: Tensor | None,  # [N]
        target: Tensor,
        criterion: LabelSmoothing,
        rows: int,
        r_drop: float,
        dtype: torch.dtype,  # of matrix products
    ) -> tuple[Tensor, Tensor]:
        learning = any(ctx.needs_input_grad[:4])
        inputs = (hidden, weight, bias, weights)
        grads: list[Any] = [None if x is None or not learning else torch.zeros_like(x) for x in inputs]
        loss = torch.zeros((), dtype=torch.float64, device=hidden.device)
        correct = torch.zeros((), dtype=torch.float64, device=hidden.device)
        passes, factor, rounded = len(hidden), weight.to(dtype), hidden.to(dtype)
        buffers = hidden.new_empty(2, passes * min(rows, len(target)), len(weight))
        for first in range(0, len(target), rows):
            part = slice(first, first + rows)
            states, targets = rounded[:, part].flatten(0, 1), target[part].repeat(passes)
            logits, gradient = buffers[:, : len(targets)]
            _write_logits(logits, states, factor, bias)
            some, right = _loss_and_gradient(logits, targets, criterion, gradient, r_drop)
            if weights is not None:
                if learning:
                    grads[3][part] = some
                some, right = some * weights[part], right * weights[part]
                gradient *= weights[part, None]
            loss, correct = loss + some.double().sum(), correct + right.double().sum()
            if learning:
                if bias is not None:
                    grads[2] += gradient.sum(0)
                gradient = gradient.to(dtype)
                grads[0][:, part] = (gradient @ factor).unflatten(0, (passes, -1))
                grads[1] += gradient.T @ states
        ctx.save_for_backward(*grads)
        ctx.mark_non_differentiable(correct)
        return loss.to(hidden.dtype), correct

    @staticmethod
    @without_second_derivatives("LabelSmoothing")
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        grads = (None if grad is None else grad * upstream for grad in ctx.saved_tensors)
        return *grads, None, None, None, None, None


def _write_logits(logits: Tensor, states: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Multiply in the precision of ``weight``, and write the result into ``logits`` in theirs."""
    if logits.dtype == weight.dtype:
        torch.mm(states, weight.T, out=logits)
    else:
        logits.copy_(states @ weight.T)
    if bias is not None:
        logits += bias


def _loss_and_gradient(
    logits: Tensor, target: Tensor, criterion: LabelSmoothing, gradient: Tensor, r_drop: float
) -> tuple[Tensor, Tensor]:
    """Loss of each row, and whether it is right; writes the gradient for the logits into ``gradient``.

    With a smoothed target w, which sums to one, that gradient is softmax(logits) - w, plus R-Drop's. Logits
    may be overwritten.
    """
    torch.softmax(logits, 1, out=gradient)
    highest = logits.amax(1)
    log_z = highest - gradient.amax(1).log()
    right = logits.gather(1, target[:, None]).squeeze(1)
    correct = right == highest
    right = right - log_z
    others = logits.sum(1) - logits[:, criterion.padding_idx] - (criterion.size - 1) * log_z
    loss = -criterion.certain * right - criterion.share * others - criterion.entropy()
    if r_drop:
        logits -= log_z[:, None]
        loss += _divergence(logits, gradient, r_drop / 2)
    gradient -= criterion.share
    gradient[:, criterion.padding_idx] += criterion.share
    gradient.scatter_add_(1, target[:, None], torch.full_like(log_z, -criterion.certain)[:, None])
    real = target != criterion.padding_idx
    if not bool(real.all()):
        gradient *= real[:, None]
        loss = loss.masked_fill(~real, 0)
    return loss, correct & real


def _divergence(log_probs: Tensor, probs: Tensor, weight: float) -> Tensor:
    """Weighted KL divergence of each half's rows from the other half's; adds its gradient to ``probs``.

    For rows p and q, and d = log p - log q, the derivative of KL(p, q) + KL(q, p) by p's logits is
    p (d - KL(p, q)) + p - q. Overwrites ``log_probs``.
    """
    (log_p, log_q), (p, q) = log_probs.chunk(2), probs.chunk(2)
    ratio = log_p.sub_(log_q)
    p_from_q, q_from_p = (p * ratio).sum(1), -(q * ratio).sum(1)
    apart = torch.sub(p, q, out=log_q).mul_(weight)
    q += q * (ratio + q_from_p[:, None]) * -weight - apart
    p += p * (ratio.sub_(p_from_q[:, None])).mul_(weight) + apart
    return weight * torch.cat([p_from_q, q_from_p])
