"""FlexAttention's ``BlockMask``: which blocks of 128 x 128 pairs hold edges, and which are full."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

BLOCK = 128

MOST = 2**28
"""Bytes that the bits of partial blocks may take, one for each pair of tokens in them."""

Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def from_intervals(start: Tensor, stop: Tensor, num_src: int) -> "BlockMask":
    """From receivers that attend to ``start .. stop - 1``, without a look at single pairs."""
    rows, columns = -(-len(start) // BLOCK), -(-num_src // BLOCK)
    row = torch.arange(len(start), device=start.device) // BLOCK

    def covered(first: Tensor, last: Tensor, some: Tensor) -> Tensor:
        """How many receivers of each block of rows have the blocks of columns ``first .. last - 1``."""
        change = start.new_zeros(rows, columns + 1)
        for ends, sign in ((first, 1), (last, -1)):
            change.index_put_((row, ends), sign * some.long(), accumulate=True)
        return change.cumsum(1)[:, :columns]

    some, whole = start < stop, (-(-start // BLOCK), stop // BLOCK)
    touched = covered(start // BLOCK, -(-stop // BLOCK), some) > 0
    full = covered(*whole, whole[0] < whole[1]) == BLOCK

    def attends(batch: Tensor, head: Tensor, receiver: Tensor, sender: Tensor) -> Tensor:
        return (sender >= start[receiver]) & (sender < stop[receiver])

    return _block_mask(touched, full, attends, (len(start), num_src))


def from_edges(src: Tensor, dst: Tensor, num_src: int, num_dst: int) -> "BlockMask":
    """From single edges, each once: the bits of partial blocks are kept.

    Raises
    ------
    ValueError
        If they would take more than ``MOST`` bytes.
    """
    rows, columns = -(-num_dst // BLOCK), -(-num_src // BLOCK)
    number = dst // BLOCK * columns + src // BLOCK
    count = torch.bincount(number, minlength=rows * columns).view(rows, columns)
    touched, full = count > 0, count == BLOCK**2
    partial = touched & ~full
    if (blocks := int(partial.sum())) * BLOCK**2 > MOST:
        raise ValueError(
            f"{len(src):,} edges lie scattered over {blocks:,} blocks of {BLOCK} x {BLOCK}, whose bits would "
            f"take {blocks * BLOCK**2:,} bytes: use engine='csr', or reorder() the graph"
        )
    kind = torch.where(
        partial, partial.flatten().cumsum(0).view_as(count) + 1, full.long()
    )  # none, full, its own
    bits = torch.zeros(blocks + 2, BLOCK, BLOCK, dtype=torch.bool, device=src.device)
    bits[kind.flatten()[number], dst % BLOCK, src % BLOCK] = True

    def attends(batch: Tensor, head: Tensor, receiver: Tensor, sender: Tensor) -> Tensor:
        block = kind[receiver // BLOCK, sender // BLOCK]
        return bits[block, receiver % BLOCK, sender % BLOCK]

    return _block_mask(touched, full, attends, (num_dst, num_src))


def _block_mask(touched: Tensor, full: Tensor, attends: Rule, lengths: tuple[int, int]) -> "BlockMask":
    from torch.nn.attention.flex_attention import BlockMask

    lists = []
    for blocks in (touched & ~full, full):
        order = blocks.byte().argsort(dim=1, descending=True, stable=True)
        lists += [blocks.sum(1).int()[None, None], order.int()[None, None]]
    build: Any = BlockMask.from_kv_blocks
    return build(*lists, BLOCK_SIZE=BLOCK, mask_mod=attends, seq_lengths=lengths)
