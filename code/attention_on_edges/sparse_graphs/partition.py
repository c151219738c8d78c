"""The binary partition of BP-Transformer: near tokens one by one, far ones as increasingly long spans."""

import torch
from torch import Tensor

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.constructors import from_runs
from edgewise.validation import check_bool, check_count


def partition_spans(n: int) -> tuple[Tensor, Tensor]:
    """Return the bounds of the binary partition's spans, the additional tokens, level by level.

    A span of level ``l`` holds ``2 ** l`` tokens, the last one of a level the rest; the only span of the top
    level holds all ``n``. Level 0, the tokens themselves, is not included.

    Returns
    -------
    start, stop : Tensor
        int64 [spans]; span ``s`` is token ``n + s`` of the graph.
    """
    n = check_count("n (tokens)", n)
    widths = [2**level for level in range(1, num_levels(n) + 1)]
    starts = [torch.arange(0, n, width) for width in widths]
    stops = [(start + width).clamp(max=n) for start, width in zip(starts, widths, strict=True)]
    none = torch.zeros(0, dtype=torch.int64)
    return torch.cat([none, *starts]), torch.cat([none, *stops])


def num_levels(n: int) -> int:
    """Return the number of levels above the tokens: the least ``L`` with ``2 ** L >= n``."""
    return max(n - 1, 0).bit_length()


def binary_partition(n: int, k: int, causal: bool = False) -> AttentionGraph:
    """Every token attends to its neighbours one by one and to the rest as spans that grow with distance.

    The graph of BP-Transformer (Ye et al. 2019, sec. 3). Tokens ``0 .. n - 1`` are followed by the spans of
    :func:`partition_spans`. A span attends to its tokens. On either side a token attends to ``k`` tokens,
    then ``k`` spans of level 1, ``k`` of level 2, to the end; one more on a level if the next would otherwise
    not begin with a whole span. Any two tokens are thereby connected within two layers, directly or through
    one span, with at most ``n * (1 + L + 2 * (k + 1) * L)`` edges, where ``L`` is the number of levels.

    Parameters
    ----------
    n : int
        Tokens.
    k : int
        Spans attended to on each level and side.
    causal : bool
        Whether a token attends only to its left side. Its spans end before it, so that no path leads from a
        later token to an earlier one.

    Raises
    ------
    TypeError, ValueError
        If an argument is not an integer, ``n`` is negative or ``k`` is below 1.
    """
    n = check_count("n (tokens)", n)
    k = check_count("k (spans that a token attends to on each level and side)", k, 1)
    check_bool("causal", causal)
    token, levels = torch.arange(n), num_levels(n)
    inside = partition_spans(n)
    num_tokens = n + len(inside[0])
    runs = [(token, token, token + 1), (torch.arange(n, num_tokens), *inside)]
    first = 0  # of the level's spans, among all tokens of the graph
    for level in range(levels):
        size = 2**level
        end = left_end(token, k, level)
        runs.append((token, first + 2 * left_end(token, k, level + 1).clamp(min=0), first + end))
        if not causal:
            there = -(-n // size)
            begin, stop = right_begin(token, k, level), 2 * right_begin(token, k, level + 1)
            runs.append((token, first + begin, first + stop.clamp(max=there)))
        first += -(-n // size)
    receiver, start, stop = (torch.cat(parts) for parts in zip(*runs, strict=True))
    return from_runs(receiver, start, stop, num_tokens)


def left_end(token: Tensor, k: int, level: int) -> Tensor:
    """End of the spans attended to on the left, by level; below 1 there are none.

    Each level takes ``k`` spans off the end ``e`` of the one below and rounds down to a whole span:
    ``(e - k) // 2``; this is the closed form.
    """
    return ((token + k) >> level) - k


def right_begin(token: Tensor, k: int, level: int) -> Tensor:
    """Start of the spans attended to on the right, by level: :func:`left_end` mirrored."""
    return k - ((k - 1 - token) >> level)
