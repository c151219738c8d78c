"""Chapter 4: attention graphs: which token attends to which.

:class:`AttentionGraph` and its constructors, the :class:`GraphPool` that turns pairs of sentences into a
:class:`Batch`, and :func:`load_dgl`, the one place where DGL is imported.
"""

from edgewise.graphs.attention_graph import AttentionGraph, batch, bipartite, causal, complete, window
from edgewise.graphs.interop import dgl_available, load_dgl
from edgewise.graphs.pool import Batch, GraphPool

__all__ = [
    "AttentionGraph",
    "Batch",
    "GraphPool",
    "batch",
    "bipartite",
    "causal",
    "complete",
    "dgl_available",
    "load_dgl",
    "window",
]
