"""Chapters 7 and 12: losses, a resumable trainer, several processes."""

from edgewise.training.chunked_loss import output_loss
from edgewise.training.config import TrainingConfig
from edgewise.training.dataset import TrainingData
from edgewise.training.loss import DivergedError, batch_loss, states_loss, take_step
from edgewise.training.smoothing import LabelSmoothing
from edgewise.training.trainer import StoppedError, Trainer, evaluate

__all__ = [
    "DivergedError",
    "LabelSmoothing",
    "StoppedError",
    "Trainer",
    "TrainingConfig",
    "TrainingData",
    "batch_loss",
    "evaluate",
    "output_loss",
    "states_loss",
    "take_step",
]
