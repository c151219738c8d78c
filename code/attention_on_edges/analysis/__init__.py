"""Chapter 9: what heads learn, and which of them matter."""

from attention_on_edges.analysis.alignment import diagonal_links, links_of, pool_words, split_words
from attention_on_edges.analysis.convolution import ConvolutionAttention
from attention_on_edges.analysis.heads import GRAPHS, Head, attention_at, heads_of, importance, without_heads
from attention_on_edges.analysis.mixing import MixingTransformer, make_mixing_model
from attention_on_edges.analysis.syntax import Tree, attached, chain, gold_tree, spanning_tree, uuas

__all__ = [
    "GRAPHS",
    "ConvolutionAttention",
    "Head",
    "MixingTransformer",
    "Tree",
    "attached",
    "attention_at",
    "chain",
    "diagonal_links",
    "gold_tree",
    "heads_of",
    "importance",
    "links_of",
    "make_mixing_model",
    "pool_words",
    "spanning_tree",
    "split_words",
    "uuas",
    "without_heads",
]
