"""Attention as message passing on graphs of tokens: exact, on any graph, in PyTorch.

An :class:`AttentionGraph` says which token attends to which; :func:`propagate_attention` computes multi-head
attention on its edges; :class:`GraphAttention` is that with projections, a layer for anyone's model. Two
packed sentences, of three and of four tokens:

>>> import torch
>>> import edgewise
>>> graph = edgewise.AttentionGraph.from_lengths([3, 4])
>>> layer = edgewise.GraphAttention(dim_model=8, num_heads=2)
>>> layer(graph, torch.randn(7, 8)).shape
torch.Size([7, 8])
>>> graph.num_edges  # 9 + 16: no padding, no mask
25
"""

from edgewise.graph_attention import GraphAttention
from edgewise.graphs import AttentionGraph, batch, bigbird, bipartite, causal, complete, dilated, window
from edgewise.interop import attend_along, check_along, from_pyg, from_torch, to_torch
from edgewise.propagation import (
    add_sinks,
    attention_weights,
    choice,
    merge_parts,
    prepare,
    propagate_attention,
)
from edgewise.transformer_layer import GraphTransformerLayer

__version__ = "0.4.0"

__all__ = [
    "AttentionGraph",
    "GraphAttention",
    "GraphTransformerLayer",
    "add_sinks",
    "attend_along",
    "attention_weights",
    "batch",
    "bigbird",
    "bipartite",
    "causal",
    "check_along",
    "choice",
    "complete",
    "dilated",
    "from_pyg",
    "from_torch",
    "merge_parts",
    "prepare",
    "propagate_attention",
    "to_torch",
    "window",
]
