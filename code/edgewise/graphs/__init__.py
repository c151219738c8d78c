"""Chapters 4, 10 and 13: attention graphs: which token attends to which.

:class:`AttentionGraph` and its constructors, complete and sparse, of texts, grids and points, and
:func:`load_dgl`, the one place where DGL is imported. Additional tokens of a graph (spans) follow the ``n``
tokens of the sequence.
"""

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.bigbird import bigbird, global_tokens, random_links
from edgewise.graphs.constructors import batch, bipartite, causal, complete, dilated, window
from edgewise.graphs.dgl_import import dgl_available, load_dgl
from edgewise.graphs.edge_lists import from_runs
from edgewise.graphs.grids import grid_blocks, grid_window, product
from edgewise.graphs.per_graph import clear_cache
from edgewise.graphs.points import nearest, within
from edgewise.graphs.variants import prefix_lm, sinks

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
