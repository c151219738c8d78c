"""How far news travels: whom a token has heard of after so many layers."""

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph
from edgewise.validation import check_count


def heard_within(graph: AttentionGraph, layers: int) -> Tensor:
    """Tell who has heard of whom, directly or through others, after ``layers`` layers on one graph.

    A residual connection keeps what a token knows, so that it has always heard of itself.

    Returns
    -------
    Tensor
        bool [layers + 1, tokens, tokens], receivers first; entry 0 is before the first layer.

    Raises
    ------
    ValueError
        If the graph is not self-attention or ``layers`` is negative.
    """
    if not graph.self_attention:
        raise ValueError(f"news travels on among one set of tokens, got {graph}")
    step = graph.to_mask().float()
    known = [torch.eye(graph.num_src, dtype=torch.bool, device=graph.device)]
    for _ in range(check_count("layers", layers)):
        known.append(known[-1] | (step @ known[-1].float() > 0))
    return torch.stack(known)
