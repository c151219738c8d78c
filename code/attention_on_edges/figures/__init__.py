"""Every drawing of the book: arrays in, picture out; nothing here knows a model."""

from attention_on_edges.figures.curves import curves
from attention_on_edges.figures.graph_drawings import draw_graph, draw_molecule, draw_with_mask
from attention_on_edges.figures.maps import attention_maps
from attention_on_edges.figures.source import show_source
from attention_on_edges.figures.style import PALETTE, use_style
from attention_on_edges.figures.table import Table, table
