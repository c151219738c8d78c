"""Segments with a memory, and with a compressed memory."""

import torch
from torch import Tensor

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.intervals import from_runs
from edgewise.validation import check_count


def segments(n: int, length: int, memory: int, causal: bool = True) -> AttentionGraph:
    """Every token attends to its segment and to the ``memory`` tokens before the segment.

    Transformer-XL's recurrence (Dai et al. 2019, sec. 3.2) on the whole text at once: the cached states of
    the layer below are ordinary senders. Only gradients differ: the paper stops them at segment boundaries.
    Held as intervals.

    Parameters
    ----------
    n : int
        Tokens.
    length : int
        Of a segment; the last one may be shorter.
    memory : int
        Tokens before the segment that are attended to; 0 isolates segments.
    causal : bool
        Whether a token attends to its segment only up to itself.

    Raises
    ------
    TypeError, ValueError
        If an argument is not an integer, ``n`` or ``memory`` is negative or ``length`` below 1.
    """
    n, place, first = _segments(n, length)
    memory = min(check_count("memory (tokens attended to before a segment)", memory), n)
    stop = place + 1 if causal else (first + length).clamp(max=n)
    return AttentionGraph.from_intervals((first - memory).clamp(min=0), stop, n, self_attention=True)


def compressed_spans(n: int, rate: int) -> tuple[Tensor, Tensor]:
    """Return the bounds of the spans that compressed memory summarises: ``rate`` tokens each.

    Returns
    -------
    start, stop : Tensor
        int64 [n // rate]; span ``s`` is token ``n + s`` of the graph.
    """
    rate = check_count("rate (tokens per compressed token)", rate, 1)
    start = torch.arange(check_count("n (tokens)", n) // rate) * rate
    return start, start + rate


def compressive(n: int, length: int, memory: int, compressed: int, rate: int) -> AttentionGraph:
    """Causal segments with a memory and, before it, a compressed memory.

    The graph of the Compressive Transformer (Rae et al. 2020, sec. 3). Tokens ``0 .. n - 1`` are followed by
    the spans of :func:`compressed_spans`, each of which attends to its ``rate`` tokens. A token attends to
    its segment up to itself, to the ``memory`` tokens before the segment, and to the last ``compressed``
    spans before these, which reach ``rate`` times as far per edge.

    Parameters
    ----------
    n, length, memory : int
        As in :func:`segments`.
    compressed : int
        Compressed tokens attended to.
    rate : int
        Tokens per compressed token. ``length`` and ``memory`` must be multiples of it, or tokens between
        memory and compressed memory would be lost.

    Raises
    ------
    TypeError, ValueError
        If an argument is not such an integer.
    """
    start, stop = compressed_spans(n, rate)
    n, place, first = _segments(n, length)
    memory = check_count("memory (tokens attended to before a segment)", memory)
    compressed = min(check_count("compressed (compressed tokens attended to)", compressed), n)
    for name, value in (("length", length), ("memory", memory)):
        if value % rate:
            raise ValueError(
                f"{name} must be a multiple of rate ({rate}), the tokens per compressed token, got {value}"
            )
    remembered = (first - min(memory, n)).clamp(min=0)
    last = n + (first - memory).clamp(min=0) // rate
    runs = [
        (place, remembered, place + 1),
        (place, (last - compressed).clamp(min=n), last),
        (torch.arange(n, n + len(start)), start, stop),
    ]
    receivers, starts, stops = (torch.cat(parts) for parts in zip(*runs, strict=True))
    return from_runs(receivers, starts, stops, n + len(start))


def _segments(n: int, length: int) -> tuple[int, Tensor, Tensor]:
    """Check arguments; return n, the tokens' numbers and the starts of their segments."""
    n = check_count("n (tokens)", n)
    length = check_count("length (tokens of a segment)", length, 1)
    place = torch.arange(n)
    return n, place, place // length * length
