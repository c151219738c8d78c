"""Chapters 7 and 12: losses, a resumable trainer, several processes."""

from attention_on_edges.training.chunked_loss import output_loss
from attention_on_edges.training.config import TrainingConfig
from attention_on_edges.training.loss import DivergedError, batch_loss, states_loss, take_step
from attention_on_edges.training.smoothing import LabelSmoothing
from attention_on_edges.training.trainer import StoppedError, Trainer, evaluate

__all__ = [
    "DivergedError",
    "LabelSmoothing",
    "StoppedError",
    "Trainer",
    "TrainingConfig",
    "batch_loss",
    "evaluate",
    "output_loss",
    "states_loss",
    "take_step",
]
