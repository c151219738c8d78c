"""Chapter 10: what a model can learn on sparse graphs.

Texts with a question far from its answer, words to be tagged, an encoder that reads both on any graph, and a
translator whose encoder has fewer edges.
"""

from attention_on_edges.analysis.long_context.translator import on_source_graph, source_edges

__all__ = ["on_source_graph", "source_edges"]
