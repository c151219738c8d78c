"""Chapter 5: attention as message passing, one operation with several engines.

Every layer calls :func:`propagate_attention`. Its engines give the same values and gradients;
they differ in speed by two orders of magnitude.
"""

from edgewise.message_passing.engine_choice import cost
from edgewise.message_passing.operation import (
    ENGINES,
    KERNELS,
    attention_weights,
    prepare,
    propagate_attention,
)
from edgewise.message_passing.scatter import edge_softmax, softmax_over_in_edges
from edgewise.message_passing.tile_plan import plan_tiles

__all__ = [
    "ENGINES",
    "KERNELS",
    "attention_weights",
    "cost",
    "edge_softmax",
    "plan_tiles",
    "prepare",
    "propagate_attention",
    "softmax_over_in_edges",
]
