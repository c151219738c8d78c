"""Chapter 10: what a model can still learn when its tokens do not all hear each other.

Texts whose question stands far from its answer, an encoder that reads them on any graph, and one training
loop for every graph.
"""

from edgewise.longrange.reader import Reader, make_reader
from edgewise.longrange.span import AdaptiveSpan
from edgewise.longrange.texts import TASKS, GraphOf, LongBatch, LongData, LongTask
from edgewise.longrange.trial import LongRecipe, accuracy, train_reader

__all__ = [
    "TASKS",
    "AdaptiveSpan",
    "GraphOf",
    "LongBatch",
    "LongData",
    "LongRecipe",
    "LongTask",
    "Reader",
    "accuracy",
    "make_reader",
    "train_reader",
]
