"""Speed of data loading against training."""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch

from attention_on_edges.data.tasks import TranslationDataset
from edgewise.graphs import Batch, GraphPool
from edgewise.models.transformer import Transformer
from edgewise.training import LabelSmoothing, NoamOpt, StateLossCompute, TrainingConfig, TrainingStep
from edgewise.training.step import on_device
from edgewise.validation import check_count


@dataclass(frozen=True)
class LoaderRow:
    """Target tokens per second of the loader alone and of the trainer alone."""

    read: float
    trained: float

    @property
    def ratio(self) -> float:
        """Speed of the loader relative to the trainer."""
        return self.read / self.trained


def bench_loader(
    model: Transformer, data: TranslationDataset, config: TrainingConfig, batches: int = 10, repeats: int = 3
) -> LoaderRow:
    """Time the loader alone, then whole updates on loaded batches; medians.

    Parameters
    ----------
    model : Transformer
        Trained in place, on its device.
    data : TranslationDataset
        Its training batches are read.
    config : TrainingConfig
        Sets their size.
    batches : int
        How many; one more comes first, unmeasured, with the order of the epoch.
    repeats : int
        Measured turns of each.
    """
    check_count("batches", batches, 1)
    check_count("repeats", repeats, 1)
    device = next(model.parameters()).device
    opt = NoamOpt(model.pos_enc.dim_model, config.factor, config.warmup, torch.optim.Adam(model.parameters()))
    criterion = LabelSmoothing(data.vocab_size, data.pad_id, config.smoothing)
    loss = StateLossCompute(model.generator, criterion, opt, clip=config.clip, r_drop=config.r_drop)
    forward = TrainingStep(model.train(), on_device(config, model), loss.evaluate)

    def some() -> Iterator[Batch]:
        if config.batch_tokens is None:
            found = data(GraphPool(), "train", config.batch_size, device)
        else:
            found = data.by_tokens(GraphPool(), "train", config.batch_tokens, config.bucketed, device)
        return islice(found, batches + 1)

    def learn(batch: Batch) -> Batch:
        loss(forward(batch, opt.steps), batch.tgt_y, batch.n_tokens)  # its counts wait for the device
        return batch

    read, trained = [], []
    for _ in range(repeats):
        at_hand, seconds = _timed(some())
        read.append(sum(batch.n_tokens for batch in at_hand[1:]) / seconds)
        _, seconds = _timed(learn(batch) for batch in at_hand)
        trained.append(sum(batch.n_tokens for batch in at_hand[1:]) / seconds)
    return LoaderRow(statistics.median(read), statistics.median(trained))


def _timed(batches: Iterator[Batch]) -> tuple[list[Batch], float]:
    """Return all batches, and the seconds that all but the first of them took."""
    found = [next(batches)]
    begin = time.perf_counter()
    found += batches
    return found, time.perf_counter() - begin


def format_loader(row: LoaderRow) -> str:
    """Format it as a line."""
    return (
        f"loader alone {row.read:,.0f} target tokens/s, training {row.trained:,.0f}: "
        f"input is {row.ratio:.1f} times as fast as it is needed"
    )
