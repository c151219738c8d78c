"""Lists of edges from pairs, and from runs of senders: several intervals per receiver."""

from torch import Tensor

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.ordering import once, rows_and_positions
from edgewise.validation import check_ids


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
        check_ids(name, x[:0], num_tokens)
        if x.shape != receiver.shape or x.dim() != 1:
            raise ValueError(f"{name} must be a list, as long as the others, got {list(x.shape)}")
    for name, x in runs.items():
        check_ids(name, x[start < stop], num_tokens + (name == "stop"))
    run, position = rows_and_positions((stop - start).clamp(min=0))
    return from_pairs(start[run] + position, receiver[run], num_tokens)


def from_pairs(src: Tensor, dst: Tensor, num_tokens: int) -> AttentionGraph:
    """Build a graph of self-attention from pairs in range, possibly repeated; edges are ordered by sender."""
    return AttentionGraph._of(num_tokens, None, edges=once(src, dst, num_tokens))
