"""Chapter 13: what practice calls attention variants, as graphs."""

from collections.abc import Sequence

import torch

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.constructors import window
from edgewise.graphs.edge_lists import from_runs
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
    return local | from_runs(token, first, stop, len(first))
