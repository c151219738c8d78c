"""Chapter 7: training that can be stopped, continued and trusted; the loop behind every experiment."""

from edgewise.trainer.loss import DivergedError, StateLossCompute
from edgewise.trainer.recipe import Recipe
from edgewise.trainer.run import Run, StoppedError

__all__ = ["DivergedError", "Recipe", "Run", "StateLossCompute", "StoppedError"]
