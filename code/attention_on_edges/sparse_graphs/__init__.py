"""Chapters 9 and 10: graphs of words and of spans, and how far information travels on a graph."""

from attention_on_edges.sparse_graphs.partition import binary_partition, partition_spans
from attention_on_edges.sparse_graphs.receptive_field import receptive_field
from attention_on_edges.sparse_graphs.trees import dependency_tree
