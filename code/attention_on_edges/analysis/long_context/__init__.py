"""Chapter 10: what a model can learn on sparse graphs.

Texts with a question far from its answer, an encoder that reads them on any graph, and one training loop.
"""

from attention_on_edges.analysis.long_context.adaptive_span import AdaptiveSpan
from attention_on_edges.analysis.long_context.fit import LongContextConfig, accuracy, fit, train_reader
from attention_on_edges.analysis.long_context.hashing import BucketReader, make_bucket_reader
from attention_on_edges.analysis.long_context.reader import Reader, make_reader
from attention_on_edges.analysis.long_context.recall_tasks import (
    TASKS,
    GraphOf,
    LongBatch,
    LongData,
    LongTask,
)
from attention_on_edges.analysis.long_context.tagging import (
    WORD_GRAPHS,
    Tags,
    shared_links,
    tagged_right,
    train_tagger,
)
from attention_on_edges.analysis.long_context.translator import (
    SOURCE_GRAPHS,
    SparseTransformer,
    on_source_graph,
    partitions,
    source_edges,
)

__all__ = [
    "SOURCE_GRAPHS",
    "TASKS",
    "WORD_GRAPHS",
    "AdaptiveSpan",
    "BucketReader",
    "GraphOf",
    "LongBatch",
    "LongContextConfig",
    "LongData",
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
    "shared_links",
    "source_edges",
    "tagged_right",
    "train_reader",
    "train_tagger",
]
