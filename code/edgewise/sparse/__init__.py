"""Chapter 10: sparse attention graphs, whose cost grows with their edges.

Each constructor returns an :class:`~edgewise.graphs.AttentionGraph`; :mod:`edgewise.sparse.counts` has its
number of edges in closed form. Additional tokens of a graph (spans) follow the ``n`` tokens of the sequence.
:func:`~edgewise.graphs.window` is shared with chapter 4.
"""

from edgewise.graphs import window
from edgewise.sparse import counts
from edgewise.sparse.bigbird import bigbird, global_tokens, random_links
from edgewise.sparse.buckets import even_chunks, lsh_labels, same_bucket
from edgewise.sparse.local import dilated
from edgewise.sparse.memory import compressed_spans, compressive, segments
from edgewise.sparse.partition import binary_partition, partition_spans
from edgewise.sparse.reach import receptive_field
from edgewise.sparse.runs import from_runs, union
from edgewise.sparse.trees import dependency_tree

__all__ = [
    "bigbird",
    "binary_partition",
    "compressed_spans",
    "compressive",
    "counts",
    "dependency_tree",
    "dilated",
    "even_chunks",
    "from_runs",
    "global_tokens",
    "lsh_labels",
    "partition_spans",
    "random_links",
    "receptive_field",
    "same_bucket",
    "segments",
    "union",
    "window",
]
