"""Where tokens are in tiles: buckets of one shape, and the slots of queries, keys and values."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Placement:
    """Where tokens are in the padded slots of all tiles.

    Token ``tokens[i]`` is in slot ``slots[i]``; slot ``s`` is filled from token ``source[s]``, padding
    included. ``in_one_slot``: no token is in two; ``everywhere``: moreover, ``tokens`` is all of them, in
    order; ``trivial``: slots and tokens are the same list.
    """

    num_tokens: int
    tokens: Tensor
    slots: Tensor
    source: Tensor
    in_one_slot: bool
    everywhere: bool
    trivial: bool

    @classmethod
    def of(cls, num_tokens: int, source: Tensor, real: Tensor) -> "Placement":
        """``source`` holds a token for each slot; slots with ``real`` false are padding."""
        slots = real.nonzero().squeeze(1)
        tokens = source[slots]
        in_one_slot = len(tokens) <= num_tokens and bool((torch.bincount(tokens, minlength=1) <= 1).all())
        everywhere = in_one_slot and len(tokens) == num_tokens
        if everywhere:
            slots = torch.empty_like(slots).index_copy_(0, tokens, slots)
            tokens = torch.arange(num_tokens, device=tokens.device)
        trivial = everywhere and len(source) == num_tokens and torch.equal(source, tokens)
        return cls(num_tokens, tokens, slots, source, in_one_slot, everywhere, trivial)


@dataclass(frozen=True, eq=False)
class Bucket:
    """Tiles of similar size, padded to one shape and executed by one dense call.

    ``mask`` is bool [num_tiles, 1, 1 or rows, columns]; without it every row attends to every column, or with
    ``is_causal`` to those up to its own number.
    """

    num_tiles: int
    rows: int
    columns: int
    mask: Tensor | None = None
    is_causal: bool = False

    def connected(self, device: torch.device) -> Tensor:
        """Bool, broadcast to [num_tiles, rows, columns]: which rows attend to which columns."""
        if self.mask is not None:
            return self.mask[:, 0]
        pairs = torch.ones(1, self.rows, self.columns, dtype=torch.bool, device=device)
        return pairs.tril() if self.is_causal else pairs


class Layout(NamedTuple):
    """Tiles by shape, and where queries on one side, keys and values on the other are in them."""

    buckets: list[Bucket]
    receivers: Placement
    senders: Placement


class LayoutTensors(NamedTuple):
    """A layout as three tensors, whatever the number of its buckets: what a compiled program can be given.

    Attributes
    ----------
    table : Tensor
        int64, on the CPU: numbers of sides and of buckets; of each side, tokens in all, tokens in slots,
        slots, and three flags; of each bucket, its shape, a flag, and the height of its mask.
    masks : Tensor
        bool: all masks, one after the other.
    indices : Tensor
        int64: tokens, slots and sources of each side; of one if queries are where keys and values are.
    """

    table: Tensor
    masks: Tensor
    indices: Tensor

    def to(self, device: torch.device) -> "LayoutTensors":
        """Return the same for another device."""
        return LayoutTensors(self.table, self.masks.to(device), self.indices.to(device))


def pack_layout(layout: Layout) -> LayoutTensors:
    """Write a layout down in three tensors."""
    buckets, receivers, senders = layout
    sides = [receivers] if senders is receivers else [receivers, senders]
    table = [len(sides), len(buckets)]
    for p in sides:
        table += [p.num_tokens, len(p.tokens), len(p.source), p.in_one_slot, p.everywhere, p.trivial]
    for b in buckets:
        table += [b.num_tiles, b.rows, b.columns, b.is_causal, 0 if b.mask is None else b.mask.shape[2]]
    indices = torch.cat([x for p in sides for x in (p.tokens, p.slots, p.source)])
    masks = [b.mask.flatten() for b in buckets if b.mask is not None]
    none = torch.zeros(
        2, dtype=torch.bool, device=indices.device
    )  # compilers take lengths below 2 for constants
    return LayoutTensors(torch.tensor(table, device="cpu"), torch.cat(masks or [none]), indices)


def unpack_layout(packed: LayoutTensors) -> Layout:
    """Read a layout, whose tensors are parts of the three."""
    entries = iter(packed.table.tolist())

    def take(count: int) -> list[int]:
        return [next(entries) for _ in range(count)]

    num_sides, num_buckets = take(2)
    sides, begin = [], 0
    for _ in range(num_sides):
        num_tokens, tokens, slots, *flags = take(6)
        parts = packed.indices[begin : begin + 2 * tokens + slots].split([tokens, tokens, slots])
        sides.append(Placement(num_tokens, *parts, *map(bool, flags)))
        begin += 2 * tokens + slots
    buckets, begin = [], 0
    for _ in range(num_buckets):
        tiles, rows, columns, is_causal, height = take(5)
        end = begin + tiles * height * columns
        mask = packed.masks[begin:end].view(tiles, 1, height, columns) if height else None
        buckets.append(Bucket(tiles, rows, columns, mask, bool(is_causal)))
        begin = end
    return Layout(buckets, sides[0], sides[-1])
