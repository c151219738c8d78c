"""Batches from a cache: shuffled, sharded by process, and prefetched by data workers."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from attention_on_edges.data.tasks import Share, share_of
from attention_on_edges.data.token_cache import TokenCache
from edgewise.graphs import Batch, GraphPool
from edgewise.validation import check_count


class Cut(NamedTuple):
    """An epoch: pairs in reading order, the start of each batch, and the end."""

    order: np.ndarray
    starts: np.ndarray


def cut_by_count(order: np.ndarray, batch_size: int) -> Cut:
    """Cut an order into batches of ``batch_size`` pairs; the last may be smaller."""
    starts = np.arange(0, len(order), check_count("batch_size", batch_size, 1))
    return Cut(order, np.append(starts, len(order)))


def cut_by_tokens(
    order: np.ndarray,
    lengths: np.ndarray,
    batch_tokens: int,
    bucketed: bool,
    generator: np.random.Generator,
) -> Cut:
    """Cut an order as ``TranslationDataset.by_tokens`` does, without a list of lists.

    Parameters
    ----------
    order : ndarray
        int [pairs]
    lengths : ndarray
        int [pairs]: target tokens of each, by its number.
    batch_tokens : int
        Most target tokens of a batch.
    bucketed : bool
        Whether sentences of similar length share a batch; ``generator`` then draws the order of batches.
    """
    check_count("batch_tokens", batch_tokens, 1)
    if bucketed:
        order = order[np.argsort(lengths[order], kind="stable")]
    ends = lengths[order].cumsum(dtype=np.int64)
    starts = [0] if len(order) else []
    while starts:
        before = ends[starts[-1] - 1] if starts[-1] else 0
        stop = max(int(np.searchsorted(ends, before + batch_tokens, "right")), starts[-1] + 1)
        if stop >= len(order):
            break
        starts.append(stop)
    starts = np.array([*starts, len(order)])
    if bucketed and len(starts) > 1:
        batches = list(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True))
        generator.shuffle(batches)
        order = np.concatenate([order[start:stop] for start, stop in batches])
        starts = np.cumsum([0, *(stop - start for start, stop in batches)])
    return Cut(order, starts)


class Shares(Dataset):
    """A process's share of each batch of an epoch, as arrays."""

    def __init__(self, cache: TokenCache, cut: Cut, share: Share):
        self.cache, self.cut, self.share = cache, cut, share

    def __len__(self) -> int:
        return len(self.cut.starts) - 1

    def __getitem__(self, number: int) -> tuple[Tensor, list[int], Tensor, list[int], bool]:
        """Sources and their lengths, targets and theirs, and whether they are a stand-in."""
        start, stop = self.cut.starts[number : number + 2]
        numbers = self.cut.order[start:stop]
        stand_in = False
        if self.share[1] > 1:
            own = share_of(self.cache.target_lengths(numbers), self.share)
            stand_in = not own
            numbers = numbers[own or [0]]
        source, src_lengths, target, tgt_lengths = self.cache.take(numbers)
        return torch.from_numpy(source), src_lengths, torch.from_numpy(target), tgt_lengths, stand_in


def read(
    shares: Shares,
    graph_pool: GraphPool,
    sos_id: int,
    eos_id: int,
    device: torch.device | str = "cpu",
    workers: int = 0,
) -> Iterator[Batch]:
    """Iterate over the batches of an epoch.

    ``workers`` processes prefetch whole batches; their order is kept.
    """
    # The loader draws a seed for its workers; with torch's global generator, that would change dropout.
    own = torch.Generator()
    loader = DataLoader(shares, None, num_workers=check_count("workers", workers), generator=own)
    for source, src_lengths, target, tgt_lengths, stand_in in loader:
        batch = graph_pool.packed(source, src_lengths, target, tgt_lengths, sos_id, eos_id, device)
        yield replace(batch, stand_in=True) if stand_in else batch
