"""Chapter 13: what practice calls attention variants, as graphs."""

from collections.abc import Sequence

import torch
from torch import Tensor

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.constructors import window
from edgewise.graphs.intervals import from_pairs, from_runs, union
from edgewise.validation import check_count, check_counts


def prefix_lm(sizes: int | Sequence[int], prefixes: int | Sequence[int]) -> AttentionGraph:
    """A causal graph whose first tokens, the prefix of each text, all attend to each other.

    Dong et al. 2019 and Raffel et al. 2020, fig. 4.

    Parameters
    ----------
    sizes : int or sequence of int
        Tokens of each text.
    prefixes : int or sequence of int
        How many of them are its prefix.

    Raises
    ------
    TypeError, ValueError
        If a count is not an integer or negative, there is not one prefix a text, or one is longer than its
        text.
    """
    sizes, prefixes = check_counts("sizes", sizes), check_counts("prefixes", prefixes)
    if len(sizes) != len(prefixes) or any(p > n for p, n in zip(prefixes, sizes, strict=False)):
        raise ValueError(f"each text needs a prefix within it, got sizes {sizes} and prefixes {prefixes}")
    length = torch.tensor(sizes, dtype=torch.int64)
    first = (length.cumsum(0) - length).repeat_interleave(length)
    ends = first + torch.tensor(prefixes, dtype=torch.int64).repeat_interleave(length)
    stop = torch.maximum(ends, torch.arange(len(first)) + 1)
    return AttentionGraph.unchecked(len(first), None, (first, stop))


def sinks(sizes: int | Sequence[int], width: int, count: int) -> AttentionGraph:
    """A causal window of ``width`` tokens, itself included, and the first ``count`` tokens of the text.

    Xiao et al. 2024: without these sinks a model that was trained on whole texts fails on a window.

    Parameters
    ----------
    sizes : int or sequence of int
        Tokens of each text.
    width, count : int
        At least 1, and at least 0.

    Raises
    ------
    TypeError, ValueError
        If an argument is not an integer or too small.
    """
    local = window(sizes, check_count("width", width, 1) - 1, 0)
    length = torch.tensor(check_counts("sizes", sizes), dtype=torch.int64)
    first = (length.cumsum(0) - length).repeat_interleave(length)
    token = torch.arange(len(first))
    stop = torch.minimum(first + check_count("count", count), token + 1)
    return union(local, from_runs(token, first, stop, len(first)))


def draft_tree(context: int, parents: Sequence[int] | Tensor) -> AttentionGraph:
    """A text of ``context`` tokens, and a tree of guesses at how it goes on, checked in one pass.

    The text is causal. A guess attends to the text, to itself and to its ancestors (Miao et al. 2024).

    Parameters
    ----------
    context : int
        Tokens of the text.
    parents : sequence of int
        The parent of each guess, a number of an earlier one; -1 if it follows the text.

    Raises
    ------
    TypeError
        If a number is not an integer.
    ValueError
        If ``context`` is negative or a parent is not an earlier guess or -1.
    """
    context = check_count("context", context)
    parents = check_counts("parents", parents, -1) if len(parents) else []
    pairs = []
    for guess, parent in enumerate(parents):
        if parent >= guess:
            raise ValueError(f"parents[{guess}] must be an earlier guess or -1, got {parent}")
        above = guess
        while above >= 0:
            pairs.append((context + above, context + guess))
            above = parents[above]
    n = context + len(parents)
    token = torch.arange(n)
    text = from_runs(token, torch.zeros_like(token), (token + 1).clamp(max=context), n)
    src, dst = torch.tensor(pairs, dtype=torch.int64).view(-1, 2).unbind(1)
    return union(text, from_pairs(src, dst, n))
