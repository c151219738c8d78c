"""What a page computes and draws by itself, in JavaScript, and the Python that puts it there."""

from attention_on_edges.live.elements import editable_graph
from attention_on_edges.live.player import AttentionPlayer, AttentionView, att_animation

__all__ = ["AttentionPlayer", "AttentionView", "att_animation", "editable_graph"]
