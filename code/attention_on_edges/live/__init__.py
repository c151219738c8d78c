"""What a page computes and draws by itself, in JavaScript, and the Python that puts it there."""

from attention_on_edges.live.elements import graph_and_mask
from attention_on_edges.live.player import AttentionPlayer, AttentionView, att_animation

__all__ = ["AttentionPlayer", "AttentionView", "att_animation", "graph_and_mask"]
