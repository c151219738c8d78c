"""A training run: epochs, validation, checkpoints and a log; resumed bit for bit."""

import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import Batch, GraphPool
from edgewise.layers import evaluating
from edgewise.models.halting import StepCount
from edgewise.models.transformer import Transformer
from edgewise.training.checkpoint_files import checkpoints, load_checkpoint, save_checkpoint
from edgewise.training.communicator import LOCAL, LocalCommunicator
from edgewise.training.config import TrainingConfig
from edgewise.training.dataset import TrainingData
from edgewise.training.epoch import Progress, run_epoch
from edgewise.training.log import Log
from edgewise.training.loss import DivergedError, StateLossCompute
from edgewise.training.schedule import NoamOpt
from edgewise.training.smoothing import LabelSmoothing
from edgewise.training.step import StepOutput, TrainingStep, on_device
from edgewise.validation import InputError, check_choice


class StoppedError(Exception):
    """A run stopped on request, after saving its state."""


Score = Callable[[Transformer], dict[str, float]]
"""Metrics of a model on validation data, by decoding."""


class Trainer:
    """A training run in a folder.

    Parameters
    ----------
    model : Transformer
        Trained in place.
    data : TrainingData
        Its ``train`` and ``valid`` splits are used.
    config : TrainingConfig
        Settings of the training.
    folder : Path
        For ``checkpoints/`` and ``metrics.jsonl``.
    run_config : mapping
        Everything that identifies the run, JSON; a checkpoint with another one, or of another number of
        processes, is refused.
    score : callable, optional
        Further validation metrics after each epoch, besides loss and token accuracy.
    stage : mapping, optional
        Facts about this process (device, commit, ...), recorded in ``stages``.
    save_every : float
        Seconds between checkpoints within an epoch.
    progress : callable, optional
        Called after each batch with its number of target tokens.
    communicator : LocalCommunicator
        The processes that share each batch; by default this one alone. The first of them writes files.

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
        data: TrainingData,
        config: TrainingConfig,
        folder: Path,
        run_config: Mapping[str, Any],
        score: Score | None = None,
        stage: Mapping[str, Any] | None = None,
        save_every: float = 60.0,
        progress: Progress | None = None,
        communicator: LocalCommunicator = LOCAL,
    ):
        self.model, self.data, self.config = model, data, config
        self.run_config = {**run_config, "processes": communicator.size}
        self.folder, self.score, self.save_every, self.progress = Path(folder), score, save_every, progress
        self.device = next(model.parameters()).device
        adam = torch.optim.Adam(model.parameters(), lr=0.0, betas=config.betas, eps=config.eps)
        dim_model = model.pos_enc.dim_model
        self.opt = NoamOpt(
            dim_model, config.factor, config.warmup, adam, config.with_warmup, config.with_decay
        )
        self.criterion = LabelSmoothing(data.vocab_size, data.pad_id, config.smoothing)
        self.pool = GraphPool()
        self.communicator, self.log = communicator, Log(self.folder / "metrics.jsonl")
        self.loss = self._loss_compute(self.opt)
        step = TrainingStep(model, on_device(config, model), self.loss.evaluate)
        self._step = communicator.wrap(step)
        self.epochs: list[dict[str, Any]] = []
        self.losses: list[float] = []
        self.stages: list[dict[str, Any]] = []
        self.stop_requested = False
        self._snapshots: deque[dict[str, Tensor]] = deque(maxlen=config.average)
        self._order, self._batches_done, self._log_end = data.order_state, 0, 0
        self._stage = dict(stage or {})
        self._began = self._saved_at = 0.0
        self._last_batch = self._epoch_over = False

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
        """Begin a stage: from scratch, or from the newest checkpoint.

        Raises
        ------
        FileExistsError
            If the folder holds a run and ``resume`` is false.
        CheckpointError
            If the newest checkpoint cannot be used.
        InputError
            If past epochs would have been different under this configuration or device.
        """
        found = checkpoints(self.folder / "checkpoints")
        if not resume and (found or self.log.path.exists()):
            raise FileExistsError(
                f"{self.folder} holds a run already; go on with --resume, or name another folder"
            )
        self.communicator.assert_same({"checkpoint": found[-1].name if found else None})
        if found:
            self._restore(load_checkpoint(found[-1], self.run_config))
        else:
            self.communicator.seed_by_rank(self.config.seed)
        if self.communicator.rank == 0:
            if not found and self.log.path.exists():
                warnings.warn(f"{self.folder} has a log but no checkpoint: the run begins anew", stacklevel=2)
            self.log.open(self._log_end)
        self.stages.append(self._stage | {"from_step": self.step, "to_step": self.step, "seconds": 0.0})
        self._began = self._saved_at = time.monotonic()

    def train(self, max_steps: int | None = None) -> None:
        """Train to the last epoch, or until ``max_steps`` updates are made; :meth:`start` goes first.

        Raises
        ------
        RuntimeError
            If :meth:`start` was not called.
        ValueError
            If early stopping monitors a metric that validation does not have; raised after the first epoch.
        DivergedError
            If a loss or gradient is not finite; says where. The newest checkpoint is kept.
        StoppedError
            If ``stop_requested`` was set.
        """
        if not self.stages:
            raise RuntimeError("train() goes on where start() begins: call start() first")
        self.communicator.assert_same({"steps": max_steps})
        while not self.finished and (max_steps is None or self.step < max_steps):
            self.model.train()
            self.opt.scale = self.config.scale(len(self.epochs) + 1)
            self.data.epoch = len(self.epochs) + 1
            self.data.order_state = self._order  # of this epoch, if it was interrupted
            self._epoch_over = False
            try:
                run_epoch(self._training_batches(max_steps), self._forward, self.loss, progress=self.progress)
                if self._epoch_over:
                    self._end_epoch()
            except DivergedError as error:
                raise DivergedError(f"{error} {self._where()}; {self._left()}") from None

    def _forward(self, batch: Batch) -> StepOutput:
        """Pass a batch through; gradients are exchanged only if an update follows."""
        updates = self._last_batch or self.loss.waiting + 1 == self.config.grad_accum
        return self._step(batch, self.step, sync=updates)

    def _training_batches(self, max_steps: int | None) -> Iterator[Batch]:
        """Iterate over the remaining batches of an epoch; between two of them, log and save."""
        batches = islice(self._batches("train"), self._batches_done, None)
        following = next(batches, None)
        while following is not None:
            if self.loss.waiting == 0 and self._pause(max_steps):
                return
            batch, following = following, next(batches, None)
            self._last_batch = following is None
            yield batch
            self._batches_done += 1
            if len(self.losses) < self.RECORDED:
                self.losses.append(self.loss.latest)
            facts: dict[str, float] = {"step": self.step, "epoch": len(self.epochs) + 1}
            facts["tokens"] = self.loss.latest_tokens
            if self.loss.waiting == 0:  # this batch completed an update
                facts |= {"rate": self.opt.rate(), "grad_norm": self.loss.grad_norm}
            self._log(**facts, loss=self.loss.latest)
        self._epoch_over = True

    def _pause(self, max_steps: int | None) -> bool:
        """Save if it is due; return whether to stop."""
        enough = max_steps is not None and self.step >= max_steps
        late = time.monotonic() - self._saved_at > self.save_every
        # Clocks differ between processes, and a signal may reach only one.
        stop, due = self.communicator.sum([self.stop_requested, late])
        self.stop_requested = stop > 0
        if enough or stop or due:
            self.save()
        if self.stop_requested:
            raise StoppedError
        return enough

    def _where(self) -> str:
        number = len(self.epochs) + 1
        if self._epoch_over:
            return f"after step {self.step}, at the end of epoch {number} or in its validation"
        return f"at step {self.step + 1}, batch {self._batches_done + 1} of epoch {number}"

    def _left(self) -> str:
        found = checkpoints(self.folder / "checkpoints")
        if not found:
            return "there is no checkpoint yet: start again with another configuration"
        return f"the newest checkpoint, {found[-1].name}, is as it was"

    def averaged_weights(self) -> dict[str, Tensor]:
        """Return the mean of the weights after each of the last ``config.average`` epochs.

        Raises
        ------
        ValueError
            If no epoch is over, or the weights of fewer epochs were kept.
        """
        if not self._snapshots:
            raise ValueError("there is nothing to average before the first epoch is over")
        kept, wanted = len(self._snapshots), min(self.config.average, len(self.epochs))
        if kept < wanted:
            raise ValueError(f"the weights of {wanted} epochs should be averaged, and {kept} were kept")
        return {
            name: torch.stack([snapshot[name] for snapshot in self._snapshots]).mean(0)
            for name in self._snapshots[0]
        }

    def save(self) -> None:
        """Write a checkpoint, after flushing the log to disk."""
        self.stages[-1] |= {"to_step": self.step, "seconds": time.monotonic() - self._began}
        state = self._state()
        if self.communicator.rank == 0:
            self.log.flush()
            save_checkpoint(self.folder / "checkpoints", self.step, state, self.run_config)
        self._saved_at = time.monotonic()

    def _state(self) -> dict[str, Any]:
        random = {"random": torch.get_rng_state()}
        if self.device.type == "cuda":
            random["random_cuda"] = torch.cuda.get_rng_state(self.device)
        state = {
            "model": self.model.state_dict(),
            "opt": self.opt.state_dict(),
            **random,
            "snapshots": list(self._snapshots),
            "order": self._order,
            "batches_done": self._batches_done,
            "log_end": self.log.end,
            "totals": [self.loss.total_loss, self.loss.correct, self.loss.tokens],
            "epochs": self.epochs,
            "losses": self.losses,
            "stages": self.stages,
        }
        if self._batches_done:
            current = {"epoch": len(self.epochs) + 1, "scale": self.opt.scale}
            state["current_epoch"] = current | {"data": self.data.epoch_facts()}
        if self.communicator.size > 1:
            gathered = [self.communicator.gather(drawn) for drawn in random.values()]
            state["processes"] = [
                dict(zip(random, drawn, strict=True)) for drawn in zip(*gathered, strict=True)
            ]
        return state

    def _restore(self, state: dict[str, Any]) -> None:
        random = state["processes"][self.communicator.rank] if self.communicator.size > 1 else state
        if self.device.type == "cuda" and "random_cuda" not in random:
            raise InputError(f"{self.folder} was begun without a GPU: go on so, or name another folder")
        self.model.load_state_dict(state["model"])
        self.opt.load_state_dict(state["opt"])
        torch.set_rng_state(random["random"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(random["random_cuda"], self.device)
        self._snapshots.extend(state["snapshots"])
        self._check_epochs(
            [*state["epochs"], *([state["current_epoch"]] if "current_epoch" in state else [])]
        )
        self._order, self._batches_done = state["order"], state["batches_done"]
        self._log_end = state["log_end"]
        self.loss.total_loss, self.loss.correct, self.loss.tokens = state["totals"]
        self.epochs, self.losses, self.stages = state["epochs"], state["losses"], state["stages"]

    def _check_epochs(self, epochs: list[dict[str, Any]]) -> None:
        """Refuse a configuration or data under which past epochs would have differed."""
        for epoch in epochs:
            self.data.epoch = epoch["epoch"]
            drawn, facts = epoch.get("data", {}), self.data.epoch_facts()
            if drawn != facts:
                raise InputError(
                    f"epoch {epoch['epoch']} of {self.folder} was drawn with {drawn}, and this configuration "
                    f"asks for {facts}: what was special about an epoch cannot be changed afterwards"
                )
            was, asked = epoch.get("scale", 1.0), self.config.scale(epoch["epoch"])
            if was != asked:
                raise InputError(
                    f"epoch {epoch['epoch']} of {self.folder} was run at {was:.3g} of the rate, and this "
                    f"configuration asks for {asked:.3g}: epochs and decay_epochs cannot be changed any more"
                )

    def _loss_compute(self, opt: NoamOpt | None) -> StateLossCompute:
        config = self.config
        r_drop = config.r_drop if opt else 0.0
        return StateLossCompute(
            self.model.generator,
            self.criterion,
            opt,
            config.grad_accum,
            config.clip,
            r_drop,
            self.communicator,
        )

    def _batches(self, mode: str) -> Iterator[Batch]:
        config, data, share = self.config, self.data, (self.communicator.rank, self.communicator.size)
        if config.batch_size is not None:
            return data(self.pool, mode, config.batch_size, self.device, share=share)
        assert config.batch_tokens is not None  # a configuration has one of the two
        return data.by_tokens(self.pool, mode, config.batch_tokens, config.bucketed, self.device, share)

    def _log(self, **facts: Any) -> None:
        if self.communicator.rank == 0:
            self.log.write(**facts)

    def _end_epoch(self) -> None:
        """Validate, record the metrics, save."""
        valid, counted = self._loss_compute(None), StepCount()
        forward = TrainingStep(self.model, on_device(self.config, self.model), valid.evaluate)

        def count(batch: Batch) -> StepOutput:
            output = forward(batch, self.step)
            counted.add(output.pondered, counts=not batch.stand_in)
            return output

        with evaluating(self.model), torch.no_grad():
            run_epoch(self._batches("valid"), count, valid, is_train=False, progress=self.progress)
            counted.over_all(self.communicator.sum)
            scores = self.communicator.broadcast(lambda: score(self.model)) if (score := self.score) else {}
        epoch: dict[str, Any] = {
            "epoch": len(self.epochs) + 1,
            "step": self.step,
            "train": {"loss": self.loss.avg_loss, "accuracy": self.loss.accuracy},
            "valid": {"loss": valid.avg_loss, "accuracy": valid.accuracy, **scores, **counted.figures},
        }
        if self.config.patience is not None:
            check_choice("monitor", self.config.monitor, epoch["valid"])
        if self.opt.scale != 1:
            epoch["scale"] = self.opt.scale
        if counted.histograms:
            epoch["steps"] = counted.histograms
        if facts := self.data.epoch_facts():
            epoch["data"] = facts
        self.epochs.append(epoch)
        self._log(**self.epochs[-1])
        weights = dict(self.model.named_parameters())  # a shared matrix occurs once
        self._snapshots.append({name: x.detach().cpu().clone() for name, x in weights.items()})
        self._batches_done = 0
        self._order = self.data.order_state
        self.loss.total_loss, self.loss.correct, self.loss.tokens = 0.0, 0, 0
        self.save()
        if any(self.communicator.sum([self.stop_requested])):
            raise StoppedError
