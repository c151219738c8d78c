"""The graphs of whole sentences, windows, pairs and runs of tokens, and several graphs side by side."""

from collections.abc import Iterable, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.graph_forms import check_graph
from edgewise.graphs.ordering import distinct_pairs, rows_and_positions
from edgewise.graphs.packed_lengths import Packed, device_of
from edgewise.validation import check_bool, check_count, check_counts, check_each, check_ids

Sizes = Tensor | int | Sequence[int]
"""One number, or one of each sequence."""


def complete(sizes: Sizes) -> AttentionGraph:
    """Every token attends to every token of its sentence, itself included: the encoder's graph.

    Parameters
    ----------
    sizes : int, sequence of int or Tensor
        Tokens in the sentence; several give the disjoint union of as many, on a tensor's device.

    Raises
    ------
    TypeError, ValueError
        If a size is not an integer or negative.
    """
    return _packed(sizes)


def causal(sizes: Sizes) -> AttentionGraph:
    """Every token attends to itself and to those before it: the decoder's half-complete graph.

    Parameters and errors are those of :func:`complete`.
    """
    return _packed(sizes, right=0)


def bipartite(src_sizes: Sizes, dst_sizes: Sizes) -> AttentionGraph:
    """Every receiving token attends to every sending token of its pair: the graph of cross-attention.

    Parameters
    ----------
    src_sizes, dst_sizes : int or sequence of int
        Sending and receiving tokens; several give the disjoint union of as many pairs.

    Raises
    ------
    TypeError, ValueError
        If a size is not an integer or negative, or the two sequences differ in length.
    """
    senders, receivers = check_counts("src_sizes", src_sizes), check_counts("dst_sizes", dst_sizes)
    if len(senders) != len(receivers):
        raise ValueError(
            f"src_sizes and dst_sizes must pair up, got {len(senders)} and {len(receivers)} of them"
        )
    return AttentionGraph.of_packed(Packed(tuple(senders), tuple(receivers)), device_of(src_sizes))


def window(sizes: Sizes, left: int, right: int) -> AttentionGraph:
    """Every token attends to itself, to ``left`` tokens before it and ``right`` after it.

    The window ends where the sentence does. ``sizes`` as in :func:`complete`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not an integer or negative.
    """
    left = check_count("left (tokens attended to before the token)", left)
    right = check_count("right (tokens attended to after the token)", right)
    return _packed(sizes, left, right)


def _packed(sizes: Sizes, left: int | None = None, right: int | None = None) -> AttentionGraph:
    packed = Packed(tuple(check_counts("sizes", sizes)), None, left, right)
    return AttentionGraph.of_packed(packed, device_of(sizes))


def per_token_of(sizes: Sizes, *numbers: tuple[str, object, int]) -> list[Tensor]:
    """For each token: where its sequence starts and stops, and the sequence's numbers.

    Numbers have a name and a minimum, and are given as one for all sequences or one for each; those above
    the number of tokens become that plus one.
    """
    lengths = check_counts("sizes", sizes)
    complete(lengths)  # refuses more tokens than a graph may have
    size, n = torch.tensor(lengths, dtype=torch.int64, device=device_of(sizes)), sum(lengths)
    numbers_of = [
        check_each(name, values, len(lengths), "sequence", least) for name, values, least in numbers
    ]
    cut = [size.new_tensor([min(x, n + 1) for x in values]) for values in numbers_of]
    return [x.repeat_interleave(size, output_size=n) for x in (size.cumsum(0) - size, size.cumsum(0), *cut)]


def dilated(sizes: Sizes, reach: Sizes, step: Sizes, causal: bool = False) -> AttentionGraph:
    """Every token attends to itself and to every ``step``-th token on either side, ``reach`` of them.

    A dilated window of ``2 * reach + 1`` tokens (Beltagy et al. 2020, sec. 3.1). With
    ``T = min(reach, (n - 1) // step)``, it has ``n + 2 * (T * n - step * T * (T + 1) / 2)`` edges on ``n``
    tokens; causal, half of those beyond ``n``.

    Parameters
    ----------
    sizes : int, sequence of int or Tensor
        Tokens of each sequence, as in :func:`complete`.
    reach : int or sequence of int
        Tokens attended to on each side, within the sequence; one number for all sequences or one for each.
    step : int or sequence of int
        Distance between two of them; 1 is a plain window.
    causal : bool
        Whether to omit the right side.

    Raises
    ------
    TypeError, ValueError
        If an argument is not an integer, a size or ``reach`` is negative or ``step`` is below 1, or there are
        not as many as sequences.
    """
    sides = "reach (tokens attended to on each side)", reach, 0
    gap = "step (distance between tokens attended to)", step, 1
    start, stop, most, apart = per_token_of(sizes, sides, gap)
    token = torch.arange(len(start), device=start.device)
    ahead = token if check_bool("causal", causal) else stop - 1
    left, right = (torch.minimum(most, there // apart) for there in (token - start, ahead - token))
    dst, position = rows_and_positions(left + 1 + right)
    return from_pairs(dst + apart[dst] * (position - left[dst]), dst, len(start))


def from_runs(receiver: Tensor, start: Tensor, stop: Tensor, num_tokens: int) -> AttentionGraph:
    """Let token ``receiver[r]`` attend to tokens ``start[r] .. stop[r] - 1``, for every run ``r``.

    Parameters
    ----------
    receiver, start, stop : Tensor
        int64 [runs]. A receiver may have many runs, and they may overlap; a run that stops before it starts
        is empty.
    num_tokens : int
        Tokens of the graph.

    Raises
    ------
    TypeError, ValueError
        If the runs are not tensors of int64 or a token is out of range.
    """
    runs = {"receiver": receiver, "start": start, "stop": stop}
    for name, x in runs.items():
        check_ids(name, x.new_empty(0) if isinstance(x, Tensor) else x, num_tokens)
        if x.shape != receiver.shape or x.dim() != 1:
            raise ValueError(f"{name} must be a list, as long as the others, got {list(x.shape)}")
    for name, x in runs.items():
        check_ids(name, x[start < stop], num_tokens + (name == "stop"))
    run, position = rows_and_positions((stop - start).clamp(min=0))
    return from_pairs(start[run] + position, receiver[run], num_tokens)


def from_pairs(src: Tensor, dst: Tensor, num_tokens: int) -> AttentionGraph:
    """Build a graph of self-attention from pairs in range, possibly repeated; edges are ordered by sender."""
    return AttentionGraph._of(num_tokens, None, edges=distinct_pairs(src, dst, num_tokens))


def batch(graphs: Sequence[AttentionGraph]) -> AttentionGraph:
    """Return the disjoint union: tokens and edges of the first graph, then of the second, and so on.

    Raises
    ------
    TypeError
        If something else is among them.
    ValueError
        If there is none, or self- and cross-attention are mixed, or devices.
    """
    graphs = list(graphs)
    if not graphs:
        raise ValueError("batch needs at least one graph, got none")
    for i, graph in enumerate(graphs):
        check_graph(graph, f"graphs[{i}]")
    same = graphs[0].self_attention
    if any(g.self_attention != same for g in graphs):
        raise ValueError("batch takes graphs of self-attention or of cross-attention, not both at once")
    if len(devices := {str(g.device) for g in graphs}) > 1:
        raise ValueError(f"batch takes graphs on one device, got some on {' and '.join(sorted(devices))}")
    offsets_src = list(accumulate((g.num_src for g in graphs), initial=0))
    offsets_dst = list(accumulate((g.num_dst for g in graphs), initial=0))
    sides = (offsets_src[-1], None if same else offsets_dst[-1])

    def joined(parts: Iterable[Tensor], offsets: list[int]) -> Tensor:
        return torch.cat([part + offset for part, offset in zip(parts, offsets, strict=False)])

    packed = [g.packed for g in graphs if g.packed is not None]
    if len(packed) == len(graphs) and len({(p.left, p.right) for p in packed}) == 1:
        senders = tuple(n for p in packed for n in p.senders)
        receivers = None if same else tuple(n for p in packed for n in p.receivers or ())
        whole = packed[0]._replace(senders=senders, receivers=receivers)
        return AttentionGraph.of_packed(whole, graphs[0].device)
    intervals = [g._intervals for g in graphs if g._intervals is not None]
    if len(intervals) == len(graphs):
        start, stop = (joined(parts, offsets_src) for parts in zip(*intervals, strict=True))
        return AttentionGraph._of(*sides, intervals=(start, stop))
    src, dst = joined((g._src for g in graphs), offsets_src), joined((g._dst for g in graphs), offsets_dst)
    return AttentionGraph._of(*sides, edges=(src, dst))
