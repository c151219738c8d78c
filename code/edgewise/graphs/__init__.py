"""Attention graphs: which token attends to which.

:class:`AttentionGraph` and its constructors, complete and sparse, of texts, grids and points, and
:func:`load_dgl`, the one place where DGL is imported.
"""

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.constructors import batch, bipartite, causal, complete, dilated, from_runs, window
from edgewise.graphs.dgl_import import dgl_available, load_dgl
from edgewise.graphs.grids import grid_blocks, grid_window, product
from edgewise.graphs.per_graph import clear_cache
from edgewise.graphs.points import nearest, within
from edgewise.graphs.sparse_patterns import bigbird, global_tokens, prefix_lm, random_links, sinks

__all__ = [
    "AttentionGraph",
    "batch",
    "bigbird",
    "bipartite",
    "causal",
    "clear_cache",
    "complete",
    "dgl_available",
    "dilated",
    "from_runs",
    "global_tokens",
    "grid_blocks",
    "grid_window",
    "load_dgl",
    "nearest",
    "prefix_lm",
    "product",
    "random_links",
    "sinks",
    "window",
    "within",
]
