"""Global tokens, random links, and their union with a window: BigBird."""

import torch
from torch import Tensor

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.constructors import window
from edgewise.graphs.edge_lists import from_pairs
from edgewise.validation import check_bool, check_count


def global_tokens(n: int, count: int, causal: bool = False) -> AttentionGraph:
    """The first ``count`` tokens attend to all tokens, and all tokens attend to them.

    ``2 * count * n - count ** 2`` edges, causal ``count * n - count * (count - 1) / 2``, where ``count`` is
    at most ``n``. Held as intervals: a token attends to all tokens or to a prefix.

    Parameters
    ----------
    n, count : int
        Tokens, and how many of them are global.
    causal : bool
        Whether no token attends to a later one.

    Raises
    ------
    TypeError, ValueError
        If a count is not an integer or negative.
    """
    n = check_count("n (tokens)", n)
    count = min(check_count("count (global tokens)", count), n)
    place = torch.arange(n)
    ends = check_bool("causal", causal)
    stop = (place + 1).clamp(max=count) if ends else torch.where(place < count, n, count)
    return AttentionGraph.from_intervals(torch.zeros_like(stop), stop, n, self_attention=True)


def random_links(
    n: int, per_token: int, seed: int = 0, causal: bool = False, besides: AttentionGraph | None = None
) -> AttentionGraph:
    """Every token attends to ``per_token`` others, drawn uniformly without replacement.

    ``n * R`` edges with ``R = min(per_token, n - 1)``, causal ``n * R - R * (R + 1) / 2``; fewer where
    ``besides`` leaves a token too few to draw from.

    Parameters
    ----------
    n, per_token : int
        Tokens, and random senders of each; all if there are fewer.
    seed : int
        For the draw.
    causal : bool
        Whether only earlier tokens are drawn.
    besides : AttentionGraph, optional
        A token's senders in this graph are not drawn. Without it only the token itself is excluded.

    Raises
    ------
    TypeError, ValueError
        If a count is not an integer or negative, or ``besides`` has other tokens.
    """
    n = check_count("n (tokens)", n)
    per_token = min(check_count("per_token (random tokens that each token attends to)", per_token), n)
    known = window(n, 0, 0) if besides is None else besides
    if not known.self_attention or known.num_src != n:
        raise ValueError(f"besides must be a graph over the same {n} tokens, got {known}")
    order = (known.dst * n + known.src).unique()  # by receiver, then by sender
    receiver, sender = order // max(n, 1), order % max(n, 1)
    visible = torch.arange(1, n + 1) if check_bool("causal", causal) else torch.full((n,), n)
    counted = torch.bincount(receiver[sender < visible[receiver]], minlength=n)
    generator = torch.Generator().manual_seed(check_count("seed", seed))
    dst, rank = _draw(visible - counted, per_token, generator)
    degree = torch.bincount(receiver, minlength=n)
    first = degree.cumsum(0) - degree
    strangers_before = sender - (torch.arange(len(order)) - first[receiver])
    passed = torch.searchsorted(receiver * (n + 1) + strangers_before, dst * (n + 1) + rank, right=True)
    return from_pairs(rank + passed - first[dst], dst, n)


def _draw(population: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """For each row, draw ``count`` different numbers below its population.

    Floyd's algorithm (Bentley and Floyd 1987), all rows at once. Returns equally many rows and numbers; all
    numbers of a population of ``count`` or fewer.
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

    Links are drawn from tokens outside the window that are not global, so that none is wasted. With
    ``m = n - num_global >= 2 * reach + 1 + num_random`` it has
    ``m * (2 * reach + 1 + num_random) - reach * (reach + 1) + 2 * num_global * n - num_global ** 2`` edges;
    :func:`edgewise.graphs.edge_counts.bigbird` counts any.

    Parameters
    ----------
    n : int
        Tokens.
    reach : int
        Of the window: tokens on either side.
    num_global, num_random : int
        Global tokens, the first ones; random tokens that each other token attends to.
    seed : int
        For the links.
    causal : bool
        Whether no token attends to a later one.

    Raises
    ------
    TypeError, ValueError
        If a count is not an integer or negative.
    """
    local = window(n, reach, 0 if causal else reach) | global_tokens(n, num_global, causal)
    return local | random_links(n, num_random, seed, causal, besides=local)
