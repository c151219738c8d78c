"""What a page computes and draws by itself, in JavaScript, and the Python that puts it there."""

from attention_on_edges.live.chapter_elements import att_animation, editable_graph, one_receiver
from attention_on_edges.live.one_pass import one_pass
