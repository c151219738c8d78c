"""Global tokens, random links, and both beside a window: BigBird."""

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph, window
from edgewise.sparse.runs import from_pairs, union
from edgewise.validation import check_count


def global_tokens(n: int, count: int, causal: bool = False) -> AttentionGraph:
    """The first ``count`` tokens hear everybody, and everybody hears them.

    ``2 * count * n - count ** 2`` edges, causal ``count * n - count * (count - 1) / 2``, where ``count`` is
    at most ``n``. Held as intervals: a token hears everything or a beginning.

    Parameters
    ----------
    n, count : int
        Tokens, and how many of them are global.
    causal : bool
        Whether nobody hears a later token.

    Raises
    ------
    TypeError, ValueError
        If a count is not an integer or negative.
    """
    n = check_count("n (tokens)", n)
    count = min(check_count("count (global tokens)", count), n)
    place = torch.arange(n)
    stop = (place + 1).clamp(max=count) if causal else torch.where(place < count, n, count)
    return AttentionGraph.from_intervals(torch.zeros_like(stop), stop, n, self_attention=True)


def random_links(
    n: int, per_token: int, seed: int = 0, causal: bool = False, besides: AttentionGraph | None = None
) -> AttentionGraph:
    """Every token hears ``per_token`` others, any set of them as likely as any other.

    ``n * R`` edges with ``R = min(per_token, n - 1)``, causal ``n * R - R * (R + 1) / 2``; fewer where
    ``besides`` leaves a token too few to draw from.

    Parameters
    ----------
    n, per_token : int
        Tokens, and how many each hears; all where there are no more.
    seed : int
        For the draw.
    causal : bool
        Whether only tokens before one's own are drawn.
    besides : AttentionGraph, optional
        Nobody is drawn whom a token hears in this graph. Without it only the token itself is left out.

    Raises
    ------
    TypeError, ValueError
        If a count is not an integer or negative, or ``besides`` has other tokens.
    """
    n = check_count("n (tokens)", n)
    per_token = min(check_count("per_token (random tokens that each token hears)", per_token), n)
    known = window(n, 0, 0) if besides is None else besides
    if not known.self_attention or known.num_src != n:
        raise ValueError(f"besides must be a graph over the same {n} tokens, got {known}")
    order = (known.dst * n + known.src).sort().values  # by receiver, then by sender
    receiver, sender = order // max(n, 1), order % max(n, 1)
    may_hear = torch.arange(1, n + 1) if causal else torch.full((n,), n)
    counted = torch.bincount(receiver[sender < may_hear[receiver]], minlength=n)
    generator = torch.Generator().manual_seed(check_count("seed", seed))
    dst, rank = _draw(may_hear - counted, per_token, generator)
    degree = torch.bincount(receiver, minlength=n)
    first = degree.cumsum(0) - degree
    strangers_before = sender - (torch.arange(len(order)) - first[receiver])
    passed = torch.searchsorted(receiver * (n + 1) + strangers_before, dst * (n + 1) + rank, right=True)
    return from_pairs(rank + passed - first[dst], dst, n)


def _draw(population: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """For each row, draw ``count`` different numbers below its population.

    Floyd's algorithm (Bentley and Floyd 1987), all rows at once. Returns rows and numbers, as many of each;
    all numbers of a population that has no more than ``count``.
    """
    chosen = torch.full((len(population), count), -1)
    for i in range(count):
        last = population - count + i
        number = (torch.rand(len(population), generator=generator, dtype=torch.float64) * (last + 1)).long()
        number = torch.minimum(number, last)  # the product may round up
        taken = (chosen == number[:, None]).any(1)
        chosen[:, i] = torch.where(last < 0, -1, torch.where(taken, last, number))
    row, column = (chosen >= 0).nonzero(as_tuple=True)
    return row, chosen[row, column]


def bigbird(
    n: int, reach: int, num_global: int, num_random: int, seed: int = 0, causal: bool = False
) -> AttentionGraph:
    """The union of a window, global tokens and random links (Zaheer et al. 2020, sec. 2).

    Links are drawn from the tokens that window and global tokens leave out, so that none is wasted. With
    ``m = n - num_global >= 2 * reach + 1 + num_random`` it has
    ``m * (2 * reach + 1 + num_random) - reach * (reach + 1) + 2 * num_global * n - num_global ** 2`` edges;
    :func:`edgewise.sparse.counts.bigbird` counts any.

    Parameters
    ----------
    n : int
        Tokens.
    reach : int
        Of the window: tokens heard on either side.
    num_global, num_random : int
        Tokens that hear all and that all hear, the first ones; random tokens that each other token hears.
    seed : int
        For the links.
    causal : bool
        Whether nobody hears a later token.

    Raises
    ------
    TypeError, ValueError
        If a count is not an integer or negative.
    """
    check_count("reach (tokens heard on a side)", reach)
    check_count("num_random (random tokens that each token hears)", num_random)
    check_count("num_global (global tokens)", num_global)
    local = union(window(n, reach, 0 if causal else reach), global_tokens(n, num_global, causal))
    return union(local, random_links(n, num_random, seed, causal, besides=local))
