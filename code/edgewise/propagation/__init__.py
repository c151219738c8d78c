"""Chapter 5: attention as message passing, one operation with several engines.

Every layer calls :func:`propagate_attention`. Its engines give the same values and gradients;
they differ in speed by two orders of magnitude.
"""

from edgewise.propagation.engine_choice import choice
from edgewise.propagation.operation import (
    ENGINES,
    GPU_ENGINES,
    add_sinks,
    attention_weights,
    merge_parts,
    prepare,
    propagate_attention,
)
from edgewise.propagation.scatter import softmax_over_in_edges
from edgewise.propagation.tiles.tile_plan import plan_tiles

__all__ = [
    "ENGINES",
    "GPU_ENGINES",
    "add_sinks",
    "attention_weights",
    "choice",
    "merge_parts",
    "plan_tiles",
    "prepare",
    "propagate_attention",
    "softmax_over_in_edges",
]
