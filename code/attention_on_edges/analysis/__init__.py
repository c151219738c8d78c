"""Chapter 9: what heads learn, and which of them matter."""

from attention_on_edges.analysis.alignment import pool_words, split_words
from attention_on_edges.analysis.convolution import ConvolutionAttention
from attention_on_edges.analysis.heads import heads_of, importance, without_heads
from attention_on_edges.analysis.mixing import make_mixing_model
from attention_on_edges.analysis.syntax import gold_tree

__all__ = [
    "ConvolutionAttention",
    "gold_tree",
    "heads_of",
    "importance",
    "make_mixing_model",
    "pool_words",
    "split_words",
    "without_heads",
]
