"""Every drawing of the book: arrays in, picture out; nothing here knows a model."""

from edgewise.figures.architecture import draw_architecture
from edgewise.figures.curves import bars, curves
from edgewise.figures.graphs import draw_batch, draw_graph, draw_packing, draw_social
from edgewise.figures.maps import attention_maps
from edgewise.figures.pipeline import draw_forward_pass, draw_layers
from edgewise.figures.player import AttentionPlayer, AttentionView, att_animation
from edgewise.figures.shares import draw_shares
from edgewise.figures.source import show_source
from edgewise.figures.style import PALETTE, use_style
from edgewise.figures.table import table

__all__ = [
    "PALETTE",
    "AttentionPlayer",
    "AttentionView",
    "att_animation",
    "attention_maps",
    "bars",
    "curves",
    "draw_architecture",
    "draw_batch",
    "draw_forward_pass",
    "draw_graph",
    "draw_layers",
    "draw_packing",
    "draw_shares",
    "draw_social",
    "show_source",
    "table",
    "use_style",
]
