"""Packed sequences, whole or in windows: two numbers per token, from the forms of other libraries."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from edgewise.validation import assert_soon, check_real_device, kind_of


class Packed(NamedTuple):
    """Pairs of sequences, packed one after the other; the last receiver of a pair stands at its last sender.

    Attributes
    ----------
    senders : tuple of int
        Tokens of each sequence of senders.
    receivers : tuple of int, optional
        Of receivers; without it they are the senders.
    left, right : int, optional
        How far a receiver attends before and after its own place; without, to all.
    """

    senders: tuple[int, ...]
    receivers: tuple[int, ...] | None = None
    left: int | None = None
    right: int | None = None

    def num_edges(self) -> int:
        """Edges, on the host: a GPU is not asked."""
        if self.left is None and self.right is None:
            receivers = self.senders if self.receivers is None else self.receivers
            return sum(s * r for s, r in zip(self.senders, receivers, strict=True))
        start, stop = self.intervals(torch.device("cpu"))
        return int((stop - start).sum())

    def intervals(self, device: torch.device | None) -> tuple[Tensor, Tensor]:
        """Start and stop of each receiver's senders."""
        sizes = self.senders, self.senders if self.receivers is None else self.receivers
        senders, receivers = (torch.tensor(x, dtype=torch.int64, device=device) for x in sizes)
        return intervals_of(senders, receivers, (sum(sizes[0]), sum(sizes[1])), self.left, self.right)


def intervals_of(
    senders: Tensor, receivers: Tensor, tokens: tuple[int, int], left: int | None, right: int | None
) -> tuple[Tensor, Tensor]:
    """Start and stop of each receiver's senders; ``tokens`` says how many senders and receivers there are."""

    def of_each(x: Tensor) -> Tensor:
        return x.repeat_interleave(receivers, output_size=tokens[1])

    first = of_each(senders.cumsum(0) - senders)
    start, stop = first, first + of_each(senders)
    place = first + torch.arange(tokens[1], device=first.device) - of_each(receivers.cumsum(0) - senders)
    most = sum(tokens)  # nothing is farther away
    if right is not None:
        stop = torch.minimum(stop, place + min(right, most) + 1).clamp(min=first)
    if left is not None:
        start = torch.minimum(torch.maximum(start, place - min(left, most)), stop)
    return start, stop


def device_of(x: object = None) -> torch.device:
    """Where a tensor lies; if it is none, where new tensors do, but for ``meta``, which has no numbers.

    Modules are made there in ``from_pretrained``, and their graphs with them.
    """
    if isinstance(x, Tensor):
        return x.device
    usual = torch.get_default_device()
    return torch.device("cpu") if usual.type == "meta" else usual


def lengths_of_offsets(name: str, offsets: Tensor | Sequence[int], tokens: int | None = None) -> Tensor:
    """Tokens of each sequence, from FlashAttention's ``cu_seqlens``: 0, and where each sequence ends.

    A GPU that is told how many tokens there are is not asked for anything.
    """
    offsets = _check(name, offsets, 1)
    lengths = offsets.diff()
    if tokens is not None and len(offsets):
        holds = torch.cat([offsets[:1] == 0, lengths >= 0, offsets[-1:] == tokens])
        assert_soon(holds, f"{name} must begin with 0, never fall and end with {tokens}")
    elif len(offsets) == 0 or int(offsets[0]) != 0 or bool((lengths < 0).any()):
        raise ValueError(f"{name} must begin with 0 and never fall, got {offsets.tolist()[:9]}")
    return lengths


def offsets_of_lengths(lengths: Tensor | Sequence[int]) -> Tensor:
    """0, and where each sequence ends."""
    ends = _check("lengths", lengths, 1).cumsum(0)
    return torch.cat([ends.new_zeros(1), ends])


def lengths_of_positions(ids: Tensor | Sequence[int]) -> Tensor:
    """Tokens of each sequence; one begins wherever a position is not the one before it plus one."""
    ids = _check("position_ids", ids, 1)
    return _run_lengths(ids.diff() != 1, len(ids))


def lengths_of_documents(ids: Tensor | Sequence[int]) -> Tensor:
    """Tokens of each document, all of whose tokens have one id and stand together."""
    ids = _check("document_ids", ids, 1)
    lengths = _run_lengths(ids.diff() != 0, len(ids))
    if len(lengths) != len(ids.unique()):
        raise ValueError(
            "document_ids must number each document's tokens alike, side by side; one id returns"
        )
    return lengths


def lengths_of_padding(mask: Tensor | Sequence[Sequence[int]]) -> Tensor:
    """Real tokens of each row."""
    mask = _check("padding_mask", mask, 2)
    if bool(((mask != 0) & (mask != 1)).any()):
        raise ValueError("padding_mask must hold True or 1 at real tokens, False or 0 at padding")
    return mask.sum(1)


def _check(name: str, x: Tensor | Sequence[Any], dim: int) -> Tensor:
    if not isinstance(x, Tensor) and hasattr(x, "__len__"):
        x = torch.as_tensor(x, device=device_of(), dtype=None if len(x) else torch.int64)
    if not isinstance(x, Tensor) or x.is_floating_point() or x.is_complex():
        raise TypeError(f"{name} must be a tensor of integers, got {kind_of(x)}")
    check_real_device(name, x)
    if x.dim() != dim:
        raise ValueError(f"{name} must have {dim} dimension{'s' * (dim > 1)}, got {list(x.shape)}")
    return x.long()  # what is subtracted must not wrap


def _run_lengths(begins: Tensor, count: int) -> Tensor:
    """Lengths of runs in a list of ``count``, from whether each but the first element begins one."""
    ends = [begins.nonzero().squeeze(1) + 1, begins.new_full((min(count, 1),), count, dtype=torch.int64)]
    return torch.cat([ends[0].new_zeros(min(count, 1)), *ends]).diff()
