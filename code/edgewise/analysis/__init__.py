"""Chapter 9: what heads learn, and which of them matter."""

from edgewise.analysis.alignment import diagonal_links, links_of, pool_words, split_words
from edgewise.analysis.convolution import ConvolutionAttention
from edgewise.analysis.heads import GRAPHS, Head, attention_at, heads_of, importance, without_heads
from edgewise.analysis.mixing import MixingTransformer, make_mixing_model
from edgewise.analysis.syntax import Tree, attached, chain, gold_tree, spanning_tree, uuas

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
