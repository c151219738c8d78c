"""Models that chapters compare with: other aggregators, sparse encoders, readers."""

from attention_on_edges.models.convolution import ConvolutionAttention
from attention_on_edges.models.mixing import make_mixing_model
from attention_on_edges.models.sparse_translator import on_source_graph, source_edges
