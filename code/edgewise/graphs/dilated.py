"""Dilated windows."""

import torch

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.intervals import from_pairs
from edgewise.validation import check_count


def dilated(n: int, reach: int, step: int, causal: bool = False) -> AttentionGraph:
    """Every token attends to itself and to every ``step``-th token on either side, ``reach`` of them.

    A dilated window of ``2 * reach + 1`` tokens (Beltagy et al. 2020, sec. 3.1). With
    ``T = min(reach, (n - 1) // step)``, it has ``n + 2 * (T * n - step * T * (T + 1) / 2)`` edges;
    causal, half of those beyond ``n``.

    Parameters
    ----------
    n : int
        Tokens.
    reach : int
        Tokens attended to on each side, within the sequence.
    step : int
        Distance between two of them; 1 is a plain window.
    causal : bool
        Whether to omit the right side.

    Raises
    ------
    TypeError, ValueError
        If an argument is not an integer, ``n`` or ``reach`` is negative or ``step`` is below 1.
    """
    n = check_count("n (tokens)", n)
    reach = min(check_count("reach (tokens attended to on each side)", reach), n)
    step = min(check_count("step (distance between tokens attended to)", step, 1), max(n, 1))
    offset = step * torch.arange(-reach, 1 if causal else reach + 1)
    dst = torch.arange(n).repeat_interleave(len(offset))
    src = dst + offset.repeat(n)
    there = (src >= 0) & (src < n)
    return from_pairs(src[there], dst[there], n)
