"""Chapter 7: what a Transformer is trained with: smoothed labels, a warmed-up rate, a loop."""

from edgewise.training.loop import EpochResult, SimpleLossCompute, run_epoch
from edgewise.training.output import output_loss
from edgewise.training.schedule import NoamOpt
from edgewise.training.smoothing import LabelSmoothing

__all__ = ["EpochResult", "LabelSmoothing", "NoamOpt", "SimpleLossCompute", "output_loss", "run_epoch"]
