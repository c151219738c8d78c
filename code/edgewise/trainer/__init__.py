"""Chapter 7: resumable, reproducible training; the loop behind every experiment."""

from edgewise.trainer.epoch import StoppedError
from edgewise.trainer.loss import DivergedError, StateLossCompute
from edgewise.trainer.passing import Part, Pass
from edgewise.trainer.recipe import Recipe
from edgewise.trainer.run import Run
from edgewise.trainer.team import ALONE, Alone

__all__ = [
    "ALONE",
    "Alone",
    "DivergedError",
    "Part",
    "Pass",
    "Recipe",
    "Run",
    "StateLossCompute",
    "StoppedError",
]
