"""Receptive fields: how far information travels in a number of layers."""

import torch
from torch import Tensor

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.graph_forms import check_graph
from edgewise.validation import check_count


def receptive_field(graph: AttentionGraph, layers: int) -> Tensor:
    """Return each token's receptive field after up to ``layers`` layers on one graph.

    Because of the residual connections it always includes the token itself.

    Returns
    -------
    Tensor
        bool [layers + 1, receivers, senders]; entry 0 is before the first layer.

    Raises
    ------
    ValueError
        If the graph is not self-attention or ``layers`` is negative.
    """
    check_graph(graph)
    if not graph.self_attention:
        raise ValueError(f"graph must be self-attention, over one set of tokens, got {graph}")
    step = graph.to_mask().float()
    known = torch.eye(graph.num_src, dtype=torch.bool, device=graph.device)
    known = known.repeat(check_count("layers", layers) + 1, 1, 1)
    for i in range(layers):
        known[i + 1] = known[i] | (step @ known[i].float() > 0)
    return known
