"""Graphs from runs: several intervals of senders per receiver."""

import torch
from torch import Tensor

from edgewise.graphs.attention_graph import AttentionGraph


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
    length = (stop - start).clamp(min=0)
    first = (length.cumsum(0) - length).repeat_interleave(length)
    src = start.repeat_interleave(length) + torch.arange(len(first), device=first.device) - first
    return from_pairs(src, receiver.repeat_interleave(length), num_tokens)


def from_pairs(src: Tensor, dst: Tensor, num_tokens: int) -> AttentionGraph:
    """Build a graph of self-attention from pairs, possibly repeated; edges are ordered by sender."""
    pairs = (src * num_tokens + dst).unique()
    return AttentionGraph(pairs // max(num_tokens, 1), pairs % max(num_tokens, 1), num_tokens)


def union(*graphs: AttentionGraph) -> AttentionGraph:
    """The union of the edges of graphs over the same tokens, each once, ordered by sender.

    What belonged to the edges of one graph no longer fits: where edges have attributes, concatenate both in
    the same order and make a graph of that.

    Raises
    ------
    TypeError
        If something else is among them.
    ValueError
        If there is none, or they are not all self-attention over the same number of tokens.
    """
    if not graphs:
        raise ValueError("union needs at least one graph, got none")
    for graph in graphs:
        if not isinstance(graph, AttentionGraph):
            raise TypeError(f"union takes graphs, got {type(graph).__name__}")
    tokens = graphs[0].num_src
    if any(not g.self_attention or g.num_src != tokens for g in graphs):
        raise ValueError(f"union takes graphs of self-attention over the same tokens, got {list(graphs)}")
    src, dst = (torch.cat([getattr(g, side) for g in graphs]) for side in ("src", "dst"))
    return from_pairs(src, dst, tokens)
