"""Attention on padded sentences, written by hand: a baseline of the benchmarks."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


class PaddedAttention:
    """Padding by hand: pad to the longest sentence, attend densely, remove the padding.

    Indices are computed beforehand, like a tile plan.

    Parameters
    ----------
    lengths : sequence of int
        Of each sentence's receivers.
    device : torch.device or str
        Where.
    senders : sequence of int, optional
        Lengths of the sentences attended to, if they are others.
    causal : bool
        Whether each token attends to itself and what is before it alone.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        device: torch.device | str = "cpu",
        senders: Sequence[int] | None = None,
        causal: bool = False,
    ):
        self.receivers = _Rows(lengths, device)
        self.senders = self.receivers if senders is None else _Rows(senders, device)
        self.causal = causal

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Packed q, k, v [N, h, d] to packed outputs [N, h, d]."""
        mask = None if self.causal else self.senders.mask  # no token attends to padding, which comes after it
        padded = self.receivers.pad(q), self.senders.pad(k), self.senders.pad(v)
        answer = scaled_dot_product_attention(*padded, attn_mask=mask, is_causal=self.causal)
        return self.receivers.pack(answer)


class _Rows:
    """Where packed tokens stand among sentences padded to one length, and which of these are real."""

    def __init__(self, lengths: Sequence[int], device: torch.device | str):
        size = torch.tensor(lengths, device=device)
        self.shape = (len(lengths), max(lengths))
        real = torch.arange(max(lengths), device=device) < size[:, None]
        self.slots = real.flatten().nonzero().squeeze(1)
        self.mask = None if bool(real.all()) else real[:, None, None]

    def pad(self, x: Tensor) -> Tensor:
        """Packed [N, h, d] to padded [B, h, longest, d]; a view where no sentence is shorter."""
        if self.mask is None:
            return x.unflatten(0, self.shape).transpose(1, 2)
        slots = x.new_zeros(self.shape[0] * self.shape[1], *x.shape[1:]).index_copy(0, self.slots, x)
        return slots.unflatten(0, self.shape).transpose(1, 2)

    def pack(self, x: Tensor) -> Tensor:
        """Padded [B, h, longest, d] to packed [N, h, d]."""
        packed = x.transpose(1, 2).flatten(0, 1)
        return packed if self.mask is None else packed.index_select(0, self.slots)
