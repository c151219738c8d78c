"""Chapter 11: adaptive computation time: one layer, applied to each token until it halts.

:func:`ponder` revises states until each token has halted; :class:`UTransformer` does so on both sides of a
Transformer, on an active graph that shrinks from step to step.
"""

from edgewise.adaptive.halting import HaltingUnit, Pondering, Revision, StepCount, check_halting, ponder
from edgewise.adaptive.universal import Decoding, Encoding, Side, UTransformer, make_universal_model

__all__ = [
    "Decoding",
    "Encoding",
    "HaltingUnit",
    "Pondering",
    "Revision",
    "Side",
    "StepCount",
    "UTransformer",
    "check_halting",
    "make_universal_model",
    "ponder",
]
