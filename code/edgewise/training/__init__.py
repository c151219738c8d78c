"""Chapters 7 and 12: losses, the learning-rate schedule, a resumable trainer, several processes."""

from edgewise.training.chunked_loss import output_loss
from edgewise.training.config import TrainingConfig
from edgewise.training.dataset import TrainingData
from edgewise.training.loss import DivergedError, batch_loss, states_loss, take_step
from edgewise.training.smoothing import LabelSmoothing
from edgewise.training.trainer import StoppedError, Trainer, evaluate
from edgewise.training.tutorial import EpochResult, NoamOpt, SimpleLossCompute, run_epoch

__all__ = [
    "DivergedError",
    "EpochResult",
    "LabelSmoothing",
    "NoamOpt",
    "SimpleLossCompute",
    "StoppedError",
    "Trainer",
    "TrainingConfig",
    "TrainingData",
    "batch_loss",
    "evaluate",
    "output_loss",
    "run_epoch",
    "states_loss",
    "take_step",
]
