"""A training run, from top to bottom: batch, loss, backward, update, log, validation, checkpoint."""

import contextlib
import json
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attention_on_edges.layers import evaluating
from attention_on_edges.models.transformer import Transformer
from attention_on_edges.pool import Batch, GraphPool
from attention_on_edges.tasks import TranslationDataset
from attention_on_edges.training.checkpoint_files import (
    CheckpointError,
    checkpoints,
    load_checkpoint,
    locked,
    naming,
    save_checkpoint,
)
from attention_on_edges.training.config import TrainingConfig
from attention_on_edges.training.distributed import (
    assert_same,
    broadcast,
    gather,
    parallel,
    rank,
    seed_by_rank,
    sum_over_processes,
    world_size,
)
from attention_on_edges.training.loss import (
    BatchLoss,
    DivergedError,
    batch_loss,
    multiplies_bfloat16,
    take_step,
)
from attention_on_edges.training.smoothing import LabelSmoothing
from attention_on_edges.tutorial import NoamOpt
from edgewise.validation import check_choice

Progress = Callable[[int], object]
"""Is told how many target tokens were processed."""


class StoppedError(Exception):
    """A run stopped on request, after saving its state."""


Score = Callable[[Transformer], dict[str, float]]
"""Metrics of a model on validation data, by decoding."""


class Trainer:
    """A training run in a folder, resumed bit for bit.

    Under ``torchrun`` each process has a share of every batch, and the first of them writes files.

    Parameters
    ----------
    model : Transformer
        Trained in place.
    data : TranslationDataset
        Its ``train`` and ``valid`` splits are used.
    config : TrainingConfig
        Settings of the training.
    folder : Path
        For ``checkpoints/`` and ``metrics.jsonl``.
    run_config : mapping
        Everything that identifies the run, JSON; a checkpoint with another one, or of another kind of device
        or number of processes, is refused.
    score : callable, optional
        Further validation metrics after each epoch, besides loss and token accuracy.
    stage : mapping, optional
        Facts about this process (device, commit, ...), recorded in ``stages``.
    save_every : float
        Seconds between checkpoints within an epoch.
    progress : callable, optional
        Called after each batch with its number of target tokens.

    Attributes
    ----------
    step : int
        Updates made.
    epochs : list of dict
        Metrics of each finished epoch.
    losses : list of float
        Training loss of the first ``RECORDED`` batches.
    stages : list of dict
        One for each process that worked on the run.
    stop_requested : bool
        If set, by a signal handler for instance, the run saves its state after the current batch and raises
        :class:`StoppedError`.
    """

    RECORDED = 100

    def __init__(
        self,
        model: Transformer,
        data: TranslationDataset,
        config: TrainingConfig,
        folder: Path,
        run_config: Mapping[str, Any],
        score: Score | None = None,
        stage: Mapping[str, Any] | None = None,
        save_every: float = 60.0,
        progress: Progress | None = None,
    ):
        self.model, self.data, self.config = model, data, config
        self.folder, self.score, self.save_every, self.progress = Path(folder), score, save_every, progress
        self.device = next(model.parameters()).device
        self.run_config = {**run_config, "processes": world_size(), "device": self.device.type}
        adam = torch.optim.Adam(model.parameters(), lr=0.0, betas=config.betas, eps=config.eps)
        rate = config.factor, config.warmup, adam, config.with_warmup, config.with_decay
        self.opt = NoamOpt(model.pos_enc.dim_model, *rate)
        if empty := [name for name in ("train", "valid") if not len(data.splits[name])]:
            raise ValueError(f"there is nothing to learn from or to validate with in {empty}")
        self.criterion = LabelSmoothing(data.vocab_size, data.pad_id, config.smoothing)
        self.autocast = config.autocast and multiplies_bfloat16(self.device)
        self.pool, self.log = GraphPool(), self.folder / "metrics.jsonl"
        self.epochs: list[dict[str, Any]] = []
        self.losses: list[float] = []
        self.stages: list[dict[str, Any]] = []
        self.stop_requested = False
        self._loss: Any = parallel(model, batch_loss)
        self._snapshots: deque[dict[str, Tensor]] = deque(maxlen=config.average)
        self._order, self._batches_done = data.order_state, 0
        self._totals = [0.0, 0.0, 0.0]  # loss, correct predictions and tokens of the epoch so far
        self._stage = dict(stage or {})
        self._began = self._saved_at = 0.0

    @property
    def step(self) -> int:
        """Updates made."""
        return self.opt.steps

    @property
    def finished(self) -> bool:
        """Whether the last epoch is over, or its patience exhausted."""
        done = len(self.epochs)
        if self.config.patience is None or done == 0:
            return done >= self.config.epochs
        sign = 1 if self.config.monitor == "loss" else -1
        figures = [sign * epoch["valid"][self.config.monitor] for epoch in self.epochs]
        best = figures.index(min(figures)) + 1
        return done >= self.config.epochs or done - best >= self.config.patience

    def start(self, resume: bool = False) -> None:
        """Begin a stage: from scratch, or from the newest checkpoint, if there is one.

        Raises
        ------
        FileExistsError
            If the folder holds a run and ``resume`` is false.
        CheckpointError
            If the newest checkpoint is of another configuration.
        InputError
            If the processes have different configurations or checkpoints.
        """
        found = checkpoints(self.folder / "checkpoints")
        if not resume and (found or self.log.exists()):
            raise FileExistsError(
                f"{self.folder} holds a run already; go on with --resume, or name another folder"
            )
        assert_same(self.run_config | {"checkpoint": found[-1].name if found else None})
        log_end = 0
        if found:
            log_end = self._restore(load_checkpoint(found[-1], self.run_config))
        else:
            seed_by_rank(self.config.seed)
        if rank() == 0:
            with self._alone(), open(self.log, "ab") as file:
                if file.tell() < log_end:
                    raise CheckpointError(
                        f"{self.log} ends before {found[-1].name} was written: put back its lines, or begin "
                        "in another folder"
                    )
                file.truncate(log_end)  # lines after the checkpoint will be written again
        self.stages.append(self._stage | {"from_step": self.step, "to_step": self.step, "seconds": 0.0})
        self._began = self._saved_at = time.monotonic()

    def train(self, max_steps: int | None = None) -> None:
        """Train to the last epoch, or until ``max_steps`` updates are made; :meth:`start` goes first.

        Raises
        ------
        ValueError
            If early stopping monitors a metric that validation does not have; raised after the first epoch.
        DivergedError
            If a loss or gradient is not finite; says where. The newest checkpoint is kept.
        StoppedError
            If ``stop_requested`` was set.
        """
        with self._alone():
            while not self.finished and (max_steps is None or self.step < max_steps):
                try:
                    if self._train_epoch(max_steps):
                        self._end_epoch()
                except DivergedError as error:
                    where = f"after step {self.step}, in epoch {len(self.epochs) + 1}"
                    raise DivergedError(f"{error} {where}") from None

    def _alone(self) -> contextlib.AbstractContextManager[None]:
        """Refuse to write into the folder while another run does."""
        return locked(self.folder / "run", wait=False) if rank() == 0 else contextlib.nullcontext()

    def _train_epoch(self, max_steps: int | None) -> bool:
        """Train on the batches of an epoch that are left; return whether it is over."""
        number = len(self.epochs) + 1
        self.model.train()
        self.opt.scale = self.config.scale(number)
        self.data.epoch = number
        self.data.order_state = self._order  # of this epoch, if it was interrupted
        batches = islice(self._batches("train"), self._batches_done, None)
        following = next(batches, None)
        waiting = waiting_tokens = 0  # batches and tokens whose gradients wait for an update
        while following is not None:
            if waiting == 0 and self._pause(max_steps):
                return False
            batch, following = following, next(batches, None)
            updates = waiting + 1 == self.config.grad_accum or following is None
            loss, tokens = self._learn(batch, first=waiting == 0, sync=updates)
            waiting, waiting_tokens = waiting + 1, waiting_tokens + tokens
            facts: dict[str, float] = {}
            if updates:
                facts["grad_norm"] = take_step(self.opt, waiting_tokens, self.config.clip)
                facts["rate"] = self.opt.rate()
                waiting = waiting_tokens = 0
            if self.progress is not None:
                self.progress(batch.n_tokens)
            self._batches_done += 1
            if len(self.losses) < self.RECORDED:
                self.losses.append(loss)
            self._write(step=self.step, epoch=number, tokens=tokens, **facts, loss=loss)
        return True

    def _learn(self, batch: Batch, first: bool = True, sync: bool = True) -> tuple[float, int]:
        """Add a batch's gradient to those that wait, unless it is the ``first``; return loss and tokens."""
        local = contextlib.nullcontext() if sync or world_size() == 1 else self._loss.no_sync()
        with local:  # gradients of several processes are exchanged once per update
            part: BatchLoss = self._loss(batch, self.criterion, self.step, self.autocast)
        extra = 0.0 if part.extra is None else part.extra.item()
        counts = [part.total.item(), part.correct, part.tokens, part.nodes, extra]
        total, correct, tokens, nodes, extra = sum_over_processes(counts)
        if not math.isfinite(total + extra):
            raise DivergedError(f"the loss is {total + extra}")
        if first:
            self.opt.zero_grad()
        objective = part.total
        if part.extra is not None:  # a mean over the nodes of the batch, for each of its target tokens
            objective = objective + part.extra * (tokens * (part.nodes / nodes))
        objective.backward()
        self._totals = [a + b for a, b in zip(self._totals, (total, correct, tokens), strict=True)]
        return total / tokens, int(tokens)

    def _pause(self, max_steps: int | None) -> bool:
        """Save if it is due; return whether to stop."""
        enough = max_steps is not None and self.step >= max_steps
        late = time.monotonic() - self._saved_at > self.save_every
        # Clocks differ between processes, and a signal may reach only one.
        stop, due = sum_over_processes([self.stop_requested, late])
        if enough or stop or due:
            self.save()
        if stop:
            raise StoppedError
        return enough

    def _end_epoch(self) -> None:
        """Validate, record the metrics, save."""
        with evaluating(self.model), torch.no_grad():
            settings = self.criterion, self.autocast, self.progress, sum_over_processes
            valid, steps = evaluate(self.model, self._batches("valid"), *settings)
            if (score := self.score) is not None:
                valid = broadcast(lambda: score(self.model)) | valid
        if self.config.patience is not None:
            check_choice("monitor", self.config.monitor, valid)
        loss, correct, tokens = self._totals
        train = {"loss": loss / tokens, "accuracy": correct / tokens}
        epoch = {"epoch": len(self.epochs) + 1, "step": self.step, "train": train, "valid": valid}
        self.epochs.append(epoch | ({"steps": steps} if steps else {}))
        self._write(**self.epochs[-1])
        weights = dict(self.model.named_parameters())  # a shared matrix occurs once
        self._snapshots.append({name: x.detach().cpu().clone() for name, x in weights.items()})
        self._order, self._batches_done, self._totals = self.data.order_state, 0, [0.0, 0.0, 0.0]
        self.save()
        if any(sum_over_processes([self.stop_requested])):
            raise StoppedError

    def averaged_weights(self) -> dict[str, Tensor]:
        """Return the mean of the weights after each of the last ``config.average`` epochs."""
        return {
            name: torch.stack([snapshot[name] for snapshot in self._snapshots]).mean(0)
            for name in self._snapshots[0]
        }

    def save(self) -> None:
        """Write a checkpoint, after flushing the log to disk."""
        self.stages[-1] |= {"to_step": self.step, "seconds": time.monotonic() - self._began}
        random = [torch.get_rng_state(), None]
        if self.device.type == "cuda":
            random[1] = torch.cuda.get_rng_state(self.device)
        elif self.device.type == "mps":
            random[1] = torch.mps.get_rng_state()
        state = {
            "model": self.model.state_dict(),
            "opt": self.opt.state_dict(),
            "random": gather(random),
            "snapshots": list(self._snapshots),
        }
        facts = {
            "order": self._order,
            "batches_done": self._batches_done,
            "totals": self._totals,
            "epochs": self.epochs,
            "losses": self.losses,
            "stages": self.stages,
        }
        if rank() == 0:
            with open(self.log, "ab") as file:
                os.fsync(file.fileno())
                state["facts"] = json.dumps(facts | {"log_end": file.tell()})
            save_checkpoint(self.folder / "checkpoints", self.step, state, self.run_config)
        self._saved_at = time.monotonic()

    def _restore(self, state: dict[str, Any]) -> int:
        """Take up a saved state; return the length of the log that belongs to it."""
        self.model.load_state_dict(state["model"])
        self.opt.load_state_dict(state["opt"])
        random, random_on_gpu = state["random"][rank()]
        torch.set_rng_state(random)
        if random_on_gpu is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(random_on_gpu, self.device)
        elif random_on_gpu is not None and self.device.type == "mps":
            torch.mps.set_rng_state(random_on_gpu)
        self._snapshots.extend(state["snapshots"])
        facts = json.loads(state["facts"])
        self._order, self._batches_done, self._totals = facts["order"], facts["batches_done"], facts["totals"]
        self.epochs, self.losses, self.stages = facts["epochs"], facts["losses"], facts["stages"]
        return facts["log_end"]

    def _batches(self, mode: str) -> Iterator[Batch]:
        config, data, share = self.config, self.data, (rank(), world_size())
        if config.batch_size is not None:
            return data(self.pool, mode, config.batch_size, self.device, share=share)
        assert config.batch_tokens is not None  # a configuration has one of the two
        return data.by_tokens(self.pool, mode, config.batch_tokens, config.bucketed, self.device, share)

    def _write(self, **facts: Any) -> None:
        """Append a line to the log."""
        if rank() == 0:
            with naming(self.log), open(self.log, "a", encoding="utf-8") as file:
                file.write(json.dumps(facts) + "\n")


@torch.no_grad()
def evaluate(
    model: Transformer,
    batches: Iterable[Batch],
    criterion: LabelSmoothing,
    autocast: bool = False,
    progress: Progress | None = None,
    add: Callable[[list[float]], list[float]] = list,
) -> tuple[dict[str, float], dict[str, list[int]]]:
    """Return the metrics of teacher-forced predictions, and by side how many tokens took how many steps.

    Metrics are ``loss`` (nats per token), ``accuracy``, and of a model of adaptive depth its mean steps.
    ``add`` sums numbers over the processes, if these are their shares of the batches.

    Raises
    ------
    DivergedError
        If the loss is not finite.
    ValueError
        If there is nothing to predict in the batches.
    """
    sums, steps = [0.0, 0.0, 0.0], dict[str, list[float]]()
    with evaluating(model):
        for batch in batches:
            found = batch_loss(model, batch, criterion, autocast=autocast)
            for side, pondered in found.pondered.items():
                counts = [count * (not batch.stand_in) for count in pondered.counts]
                steps[side] = [
                    a + b for a, b in zip(steps.get(side, [0.0] * len(counts)), counts, strict=True)
                ]
            some = found.total.item(), found.correct, found.tokens
            sums = [a + b for a, b in zip(sums, some, strict=True)]
            if progress is not None:
                progress(batch.n_tokens)
    total, correct, tokens = add(sums)
    if tokens == 0:
        raise ValueError("there is no token to predict: evaluate needs a batch")
    if not math.isfinite(total):
        raise DivergedError(f"the loss in validation is {total}")
    figures, histograms = {"loss": total / tokens, "accuracy": correct / tokens}, dict[str, list[int]]()
    for side, counts in steps.items():
        *histogram, cost = add(counts)
        figures[f"steps_{side}"] = sum(n * count for n, count in enumerate(histogram, 1)) / sum(histogram)
        figures[f"ponder_{side}"] = cost / sum(histogram)
        histograms[side] = [int(count) for count in histogram]
    return figures, histograms
