"""Chapters 7 and 12: losses, the learning-rate schedule, a resumable trainer, several processes."""

from edgewise.training.chunked_loss import output_loss
from edgewise.training.communicator import LOCAL, LocalCommunicator
from edgewise.training.config import TrainingConfig
from edgewise.training.dataset import TrainingData
from edgewise.training.epoch import EpochResult, SimpleLossCompute, run_epoch
from edgewise.training.loss import DivergedError, StateLossCompute
from edgewise.training.schedule import NoamOpt
from edgewise.training.smoothing import LabelSmoothing
from edgewise.training.step import StepOutput, TrainingStep
from edgewise.training.trainer import StoppedError, Trainer

__all__ = [
    "LOCAL",
    "DivergedError",
    "EpochResult",
    "LabelSmoothing",
    "LocalCommunicator",
    "NoamOpt",
    "SimpleLossCompute",
    "StateLossCompute",
    "StepOutput",
    "StoppedError",
    "Trainer",
    "TrainingConfig",
    "TrainingData",
    "TrainingStep",
    "output_loss",
    "run_epoch",
]
