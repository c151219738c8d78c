"""Graphs decided by states: tokens attend to those in the same bucket."""

from collections.abc import Sequence

import torch
from torch import Tensor

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.constructors import causal as causal_graph
from edgewise.graphs.constructors import complete
from edgewise.graphs.intervals import from_pairs
from edgewise.validation import check_count, check_ids


def lsh_labels(x: Tensor, num_buckets: int, seed: int = 0) -> Tensor:
    """Locality-sensitive hashing: vectors of similar direction are likely to share a bucket.

    Random directions ``r``, half as many as buckets; the bucket is the largest of ``(x r, -x r)``
    (Andoni et al. 2015; Kitaev et al. 2020, sec. 2). The length of ``x`` does not matter.

    Parameters
    ----------
    x : Tensor
        [n, d], floating-point.
    num_buckets : int
        Even, at least 2.
    seed : int
        For the directions.

    Returns
    -------
    Tensor
        int64 [n], below ``num_buckets``.

    Raises
    ------
    TypeError, ValueError
        If ``x`` is no such matrix or ``num_buckets`` is not an even number from 2.
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError(f"x must be a floating-point tensor, got {getattr(x, 'dtype', type(x).__name__)}")
    if x.dim() != 2:
        raise ValueError(f"x must be [n, d], got {list(x.shape)}")
    if check_count("num_buckets", num_buckets, 2) % 2:
        raise ValueError(f"num_buckets must be even (each direction and its opposite), got {num_buckets}")
    generator = torch.Generator().manual_seed(check_count("seed", seed))
    directions = torch.randn(x.shape[1], num_buckets // 2, generator=generator).to(x)
    along = x.detach() @ directions  # [n, num_buckets / 2]
    return torch.cat([along, -along], 1).argmax(1)


def even_chunks(labels: Tensor, size: int) -> Tensor:
    """Cut tokens, sorted by label and then by position, into chunks of one size; return the chunk of each.

    Unlike buckets, chunks have a fixed size, so the number of edges is known beforehand (Kitaev et al. 2020,
    sec. 2). A chunk may hold the end of one bucket and the start of the next.

    Parameters
    ----------
    labels : Tensor
        int64 [n], none negative.
    size : int
        Tokens of a chunk; the last one may have fewer.

    Returns
    -------
    Tensor
        int64 [n]: labels for :func:`same_bucket`.

    Raises
    ------
    TypeError, ValueError
        If the labels are not that, or ``size`` is below 1.
    """
    check_count("size (tokens of a chunk)", size, 1)
    place = torch.empty_like(_checked(labels))
    place[labels.argsort(stable=True)] = torch.arange(len(labels), device=labels.device)
    return place // size


def same_bucket(labels: Tensor | Sequence[int], causal: bool = False) -> AttentionGraph:
    """Every token attends to those with its label: ``sum(s ** 2)`` edges for buckets of ``s`` tokens.

    Built as a batch of complete graphs over the tokens sorted by label. With ``causal`` a token attends to
    itself and to earlier ones of its bucket, ``sum(s * (s + 1) / 2)`` edges.

    Parameters
    ----------
    labels : Tensor
        int64 [n], none negative.
    causal : bool
        Whether no token attends to a later one.

    Raises
    ------
    TypeError, ValueError
        If the labels are not that.
    """
    labels = _checked(labels if isinstance(labels, Tensor) else torch.tensor(labels, dtype=torch.int64))
    order = labels.cpu().argsort(stable=True)
    sizes = torch.bincount(labels.cpu().unique(return_inverse=True)[1]).tolist()
    grouped = (causal_graph if causal else complete)(sizes)
    return from_pairs(order[grouped.src], order[grouped.dst], len(labels))


def _checked(labels: Tensor) -> Tensor:
    check_ids("labels", labels, torch.iinfo(torch.int64).max)
    if labels.dim() != 1:
        raise ValueError(f"labels must be [n], got {list(labels.shape)}")
    return labels
