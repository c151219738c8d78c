"""Global tokens, random links, BigBird's union of them with a window; prefixes and sinks."""

import torch
from torch import Tensor

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.constructors import Sizes, causal, from_pairs, per_token_of, window
from edgewise.graphs.graph_forms import check_graph
from edgewise.graphs.packed_lengths import device_of
from edgewise.validation import check_bool, check_count


def global_tokens(sizes: Sizes, count: Sizes, causal: bool = False) -> AttentionGraph:
    """The first ``count`` tokens attend to all tokens of their sequence, and all of these attend to them.

    ``2 * count * n - count ** 2`` edges on ``n`` tokens, causal ``count * n - count * (count - 1) / 2``,
    where ``count`` is at most ``n``. Held as intervals: a token attends to all tokens or to a prefix.

    Parameters
    ----------
    sizes : int, sequence of int or Tensor
        Tokens of each sequence, as in :func:`edgewise.complete`.
    count : int or sequence of int
        How many of them are global: one number for all sequences or one for each.
    causal : bool
        Whether no token attends to a later one.

    Raises
    ------
    TypeError, ValueError
        If a count is not an integer or negative, or there are not as many as sequences.
    """
    start, stop, most = per_token_of(sizes, ("count (global tokens)", count, 0))
    token, last = torch.arange(len(start), device=start.device), start + most
    ahead = token + 1 if check_bool("causal", causal) else stop
    return AttentionGraph._of(len(start), None, (start, torch.where(token < last, ahead, last)))


def random_links(
    sizes: Sizes, per_token: Sizes, seed: int = 0, causal: bool = False, besides: AttentionGraph | None = None
) -> AttentionGraph:
    """Every token attends to ``per_token`` others of its sequence, drawn uniformly without replacement.

    ``n * R`` edges on ``n`` tokens with ``R = min(per_token, n - 1)``, causal ``n * R - R * (R + 1) / 2``;
    fewer where ``besides`` leaves a token too few to draw from.

    Parameters
    ----------
    sizes : int, sequence of int or Tensor
        Tokens of each sequence, as in :func:`edgewise.complete`.
    per_token : int or sequence of int
        Random senders of each token, all if there are fewer: one number for all sequences or one for each.
    seed : int
        For the draw.
    causal : bool
        Whether only earlier tokens are drawn.
    besides : AttentionGraph, optional
        A token's senders in this graph are not drawn. Without it only the token itself is excluded.

    Raises
    ------
    TypeError, ValueError
        If a count is not an integer or negative, there are not as many as sequences, or ``besides`` has other
        tokens.
    """
    number = "per_token (random tokens that each token attends to)", per_token, 0
    start, stop, most = (x.cpu() for x in per_token_of(sizes, number))
    n = len(start)
    besides = window(n, 0, 0) if besides is None else besides
    check_graph(besides, "besides")
    excluded = besides.to("cpu")
    if not excluded.self_attention or excluded.num_src != n:
        raise ValueError(f"besides must be a graph over the same {n} tokens, got {excluded}")
    most = torch.minimum(most, stop - start)
    stop = torch.arange(1, n + 1, device="cpu") if check_bool("causal", causal) else stop
    excluded = excluded & AttentionGraph._of(n, None, (start, stop))
    order = (excluded._dst * n + excluded._src).sort().values  # by receiver, then by sender
    receiver, sender = order // max(n, 1), order % max(n, 1)
    degree = torch.bincount(receiver, minlength=n)
    generator = torch.Generator("cpu").manual_seed(check_count("seed", seed))
    dst, rank = _draw(stop - start - degree, most, generator)
    first = degree.cumsum(0) - degree
    strangers_before = sender - start[receiver] - (torch.arange(len(order), device="cpu") - first[receiver])
    passed = torch.searchsorted(receiver * (n + 1) + strangers_before, dst * (n + 1) + rank, right=True)
    return from_pairs(start[dst] + rank + passed - first[dst], dst, n).to(device_of(sizes))


def _draw(population: Tensor, count: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """For each row, draw as many different numbers below its population as its count says.

    Floyd's algorithm (Bentley and Floyd 1987), all rows at once. Returns equally many rows and numbers; all
    numbers of a population of as many or fewer.
    """
    chosen = torch.full((len(population), max(count.tolist(), default=0)), -1, device="cpu")
    for i in range(chosen.shape[1]):
        last = population - count + i
        share = torch.rand(len(population), generator=generator, dtype=torch.float64, device="cpu")
        number = (share * (last + 1)).long()
        number = torch.minimum(number, last)  # the product may round up
        taken = (chosen == number[:, None]).any(1)
        chosen[:, i] = torch.where((last < 0) | (i >= count), -1, torch.where(taken, last, number))
    row, column = (chosen >= 0).nonzero(as_tuple=True)
    return row, chosen[row, column]


def bigbird(
    sizes: Sizes, reach: int, num_global: Sizes, num_random: Sizes, seed: int = 0, causal: bool = False
) -> AttentionGraph:
    """The union of a window, global tokens and random links (Zaheer et al. 2020, sec. 2).

    Links are drawn from tokens outside the window that are not global, so that none is wasted. On ``n``
    tokens with ``m = n - num_global >= 2 * reach + 1 + num_random`` it has
    ``m * (2 * reach + 1 + num_random) - reach * (reach + 1) + 2 * num_global * n - num_global ** 2`` edges.

    Parameters
    ----------
    sizes : int, sequence of int or Tensor
        Tokens of each sequence, as in :func:`edgewise.complete`.
    reach : int
        Of the window: tokens on either side.
    num_global, num_random : int or sequence of int
        Global tokens, the first ones; random tokens that each other token attends to. One number for all
        sequences or one for each.
    seed : int
        For the links.
    causal : bool
        Whether no token attends to a later one.

    Raises
    ------
    TypeError, ValueError
        If a count is not an integer or negative, or there are not as many as sequences.
    """
    local = window(sizes, reach, 0 if causal else reach) | global_tokens(sizes, num_global, causal)
    return local | random_links(sizes, num_random, seed, causal, besides=local)


def prefix_lm(sizes: Sizes, prefixes: Sizes, left: int | None = None) -> AttentionGraph:
    """A causal graph, or a causal window, and every token attends to the whole prefix of its text.

    The first tokens of a text, its prefix, thus all attend to each other. Dong et al. 2019 and Raffel et al.
    2020, fig. 4. A window that also limits how far the prefix is attended to is
    ``prefix_lm(sizes, prefixes) & window(sizes, left, right)``.

    Parameters
    ----------
    sizes : int, sequence of int or Tensor
        Tokens of each text, as in :func:`edgewise.complete`.
    prefixes : int or sequence of int
        How many of them are its prefix: one number for all texts or one for each.
    left : int, optional
        Tokens before it that a token attends to besides the prefix; without it, to all.

    Raises
    ------
    TypeError, ValueError
        If a count is not an integer or negative, there are not as many prefixes as texts, or one is longer
        than its text.
    """
    start, stop, prefix = per_token_of(sizes, ("prefixes", prefixes, 0))
    if bool((start + prefix > stop).any()):
        raise ValueError(f"each text needs a prefix within it, got sizes {sizes} and prefixes {prefixes}")
    to_prefix = AttentionGraph._of(len(start), None, (start, start + prefix))
    return to_prefix | (causal(sizes) if left is None else window(sizes, left, 0))


def sinks(sizes: Sizes, width: int, count: Sizes) -> AttentionGraph:
    """A causal window of ``width`` tokens, itself included, and the first ``count`` tokens of the text.

    Xiao et al. 2024: without these sinks a model that was trained on whole texts fails on a window.

    Parameters
    ----------
    sizes : int, sequence of int or Tensor
        Tokens of each text, as in :func:`edgewise.complete`.
    width : int
        At least 1.
    count : int or sequence of int
        One number for all texts or one for each.

    Raises
    ------
    TypeError, ValueError
        If an argument is not an integer or too small, or there are not as many counts as texts.
    """
    return window(sizes, check_count("width", width, 1) - 1, 0) | global_tokens(sizes, count, causal=True)
