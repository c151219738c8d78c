"""Chapter 10: what a model can learn on sparse graphs.

Texts with a question far from its answer, an encoder that reads them on any graph, and one training loop.
"""

from edgewise.longrange.hashing import BucketReader, make_bucket_reader
from edgewise.longrange.reader import Reader, make_reader
from edgewise.longrange.span import AdaptiveSpan
from edgewise.longrange.tagging import WORD_GRAPHS, Tags, tagged_right, train_tagger
from edgewise.longrange.texts import TASKS, GraphOf, LongBatch, LongData, LongTask
from edgewise.longrange.translator import (
    SOURCE_GRAPHS,
    SparseTransformer,
    on_source_graph,
    partitions,
    source_edges,
)
from edgewise.longrange.trial import LongRecipe, accuracy, fit, train_reader

__all__ = [
    "SOURCE_GRAPHS",
    "TASKS",
    "WORD_GRAPHS",
    "AdaptiveSpan",
    "BucketReader",
    "GraphOf",
    "LongBatch",
    "LongData",
    "LongRecipe",
    "LongTask",
    "Reader",
    "SparseTransformer",
    "Tags",
    "accuracy",
    "fit",
    "make_bucket_reader",
    "make_reader",
    "on_source_graph",
    "partitions",
    "source_edges",
    "tagged_right",
    "train_reader",
    "train_tagger",
]
