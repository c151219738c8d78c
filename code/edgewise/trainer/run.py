"""A run: epochs, validation, checkpoints and a log; resumed bit for bit."""

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.adaptive import StepCount
from edgewise.checkpoints import checkpoints, load_checkpoint, save_checkpoint
from edgewise.graphs import Batch, GraphPool
from edgewise.layers import evaluating
from edgewise.tasks import TranslationDataset
from edgewise.trainer.epoch import Epoch, StoppedError
from edgewise.trainer.loss import DivergedError, StateLossCompute
from edgewise.trainer.passing import Part, Pass
from edgewise.trainer.recipe import Recipe
from edgewise.trainer.team import ALONE, Alone
from edgewise.training import LabelSmoothing, NoamOpt, run_epoch
from edgewise.transformer import Transformer
from edgewise.validation import check_choice

Score = Callable[[Transformer], dict[str, float]]
"""Metrics of a model on validation data, by decoding."""


class Run:
    """A training run in a folder.

    Parameters
    ----------
    model : Transformer
        Trained in place.
    data : TranslationDataset
        Its ``train`` and ``valid`` splits are used.
    recipe : Recipe
        Its settings.
    folder : Path
        For ``checkpoints/`` and ``metrics.jsonl``.
    config : mapping
        The run's configuration, JSON; a checkpoint with another one is refused.
    score : callable, optional
        Further validation metrics after each epoch, besides loss and token accuracy.
    stage : mapping, optional
        Facts about this process (device, commit, ...), recorded in ``stages``.
    save_every : float
        Seconds between checkpoints within an epoch.
    progress : bool
        Whether to show bars.
    team : Alone
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
        data: TranslationDataset,
        recipe: Recipe,
        folder: Path,
        config: Mapping[str, Any],
        score: Score | None = None,
        stage: Mapping[str, Any] | None = None,
        save_every: float = 60.0,
        progress: bool = False,
        team: Alone = ALONE,
    ):
        self.model, self.data, self.recipe, self.config = model, data, recipe, config
        self.folder, self.score, self.save_every, self.progress = Path(folder), score, save_every, progress
        self.device = next(model.parameters()).device
        adam = torch.optim.Adam(model.parameters(), lr=0.0, betas=recipe.betas, eps=recipe.eps)
        dim_model = model.pos_enc.dim_model
        self.opt = NoamOpt(dim_model, recipe.factor, recipe.warmup, adam, recipe.rises, recipe.falls)
        self.criterion = LabelSmoothing(data.vocab_size, data.pad_id, recipe.smoothing)
        self.pool = GraphPool()
        self.team = team
        self.loss = self._loss_compute(self.opt)
        self._pass = team.wrap(Pass(model, recipe, self.loss.evaluate))
        self.epochs: list[dict[str, Any]] = []
        self.losses: list[float] = []
        self.stages: list[dict[str, Any]] = []
        self.stop_requested = False
        self._snapshots: deque[dict[str, Tensor]] = deque(maxlen=recipe.average)
        self._order, self._batches_done, self._log_end = data.order_state, 0, 0
        self._stage = dict(stage or {})
        self._saved_at = 0.0

    @property
    def step(self) -> int:
        """Updates made."""
        return self.opt.steps

    @property
    def finished(self) -> bool:
        """Whether the recipe's last epoch is over, or its patience exhausted."""
        done = len(self.epochs)
        if self.recipe.patience is None or done == 0:
            return done >= self.recipe.epochs
        sign = 1 if self.recipe.monitor == "loss" else -1
        figures = [sign * epoch["valid"][self.recipe.monitor] for epoch in self.epochs]
        best = figures.index(min(figures)) + 1
        return done >= self.recipe.epochs or done - best >= self.recipe.patience

    def start(self, resume: bool = False) -> None:
        """Begin a stage: from scratch, or from the newest checkpoint.

        Raises
        ------
        FileExistsError
            If the folder holds a run and ``resume`` is false.
        CheckpointError
            If the newest checkpoint cannot be used.
        ValueError
            If past epochs would have had other learning rates under this recipe's cooldown.
        """
        found = checkpoints(self.folder / "checkpoints")
        if found and not resume:
            raise FileExistsError(
                f"{self.folder} holds a run already; go on with --resume, or name another folder"
            )
        self.team.agree({"checkpoint": found[-1].name if found else None})
        if found:
            defaults = {"processes": 1, "data": self.config.get("data")}  # defaults of old checkpoints
            self._restore(load_checkpoint(found[-1], self.config, defaults))
        else:
            self.team.part_ways(self.recipe.seed)
        if self.team.rank == 0:
            self._open_log()
        self.stages.append(self._stage | {"from_step": self.step, "to_step": self.step, "seconds": 0.0})
        self._began = self._saved_at = time.monotonic()

    def _open_log(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "metrics.jsonl", "ab") as log:
            self._log_end = min(self._log_end, log.tell())  # truncating to more would append zeros
            log.truncate(self._log_end)  # later batches will be repeated, and logged again

    def train(self, max_steps: int | None = None) -> None:
        """Train to the end of the recipe, or until ``max_steps`` updates are made; :meth:`start` goes first.

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
        self.team.agree({"steps": max_steps})
        while not self.finished and (max_steps is None or self.step < max_steps):
            self.model.train()
            self.opt.scale = self.recipe.scale(len(self.epochs) + 1)
            self.data.epoch = len(self.epochs) + 1
            self.data.order_state = self._order  # of this epoch, if it was interrupted
            epoch = Epoch(self, max_steps)
            try:
                run_epoch(epoch, epoch.part_of, self.loss, progress=self.progress)
                if epoch.over:
                    self._end_epoch()
            except DivergedError as error:
                raise DivergedError(f"{error} {self._where(epoch.over)}; {self._left()}") from None

    def _where(self, epoch_over: bool) -> str:
        number = len(self.epochs) + 1
        if epoch_over:
            return f"after step {self.step}, at the end of epoch {number} or in its validation"
        return f"at step {self.step + 1}, batch {self._batches_done + 1} of epoch {number}"

    def _left(self) -> str:
        found = checkpoints(self.folder / "checkpoints")
        if not found:
            return "there is no checkpoint yet: start again with another recipe"
        return f"the newest checkpoint, {found[-1].name}, is as it was"

    def averaged_weights(self) -> dict[str, Tensor]:
        """Return the mean of the weights after each of the last ``recipe.average`` epochs.

        Raises
        ------
        ValueError
            If no epoch is over, or the weights of fewer epochs were kept.
        """
        if not self._snapshots:
            raise ValueError("there is nothing to average before the first epoch is over")
        kept, wanted = len(self._snapshots), min(self.recipe.average, len(self.epochs))
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
        if self.team.rank == 0:
            with open(self.folder / "metrics.jsonl", "ab") as log:
                os.fsync(log.fileno())
            save_checkpoint(self.folder / "checkpoints", self.step, state, self.config)
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
            "log_end": self._log_end,
            "totals": [self.loss.total_loss, self.loss.correct, self.loss.tokens],
            "epochs": self.epochs,
            "losses": self.losses,
            "stages": self.stages,
        }
        if self._batches_done:
            at_hand = {"epoch": len(self.epochs) + 1, "scale": self.opt.scale}
            state["at_hand"] = at_hand | {"data": self.data.epoch_facts()}
        if self.team.size > 1:
            gathered = [self.team.gather(drawn) for drawn in random.values()]
            state["team"] = [dict(zip(random, drawn, strict=True)) for drawn in zip(*gathered, strict=True)]
        return state

    def _restore(self, state: dict[str, Any]) -> None:
        random = state["team"][self.team.rank] if self.team.size > 1 else state
        if self.device.type == "cuda" and "random_cuda" not in random:
            raise ValueError(f"{self.folder} was begun without a GPU: go on so, or name another folder")
        self.model.load_state_dict(state["model"])
        adam = state["opt"]["optimizer"]
        adam["state"] = {int(number): moments for number, moments in adam["state"].items()}
        self.opt.load_state_dict(state["opt"])
        torch.set_rng_state(random["random"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(random["random_cuda"], self.device)
        self._snapshots.extend(state["snapshots"])
        self._check_epochs([*state["epochs"], *([state["at_hand"]] if "at_hand" in state else [])])
        self._order, self.data.order_state = state["order"], state["order"]
        self._batches_done, self._log_end = state["batches_done"], state["log_end"]
        self.loss.total_loss, self.loss.correct, self.loss.tokens = state["totals"]
        self.epochs, self.losses, self.stages = state["epochs"], state["losses"], state["stages"]

    def _check_epochs(self, epochs: list[dict[str, Any]]) -> None:
        """Refuse a recipe or data under which past epochs would have differed."""
        for epoch in epochs:
            self.data.epoch = epoch["epoch"]
            drawn, facts = epoch.get("data", {}), self.data.epoch_facts()
            if drawn != facts:
                raise ValueError(
                    f"epoch {epoch['epoch']} of {self.folder} was drawn with {drawn}, and this recipe asks "
                    f"for {facts}: what was special about an epoch cannot be changed afterwards"
                )
            was, asked = epoch.get("scale", 1.0), self.recipe.scale(epoch["epoch"])
            if was != asked:
                raise ValueError(
                    f"epoch {epoch['epoch']} of {self.folder} was run at {was:.3g} of the rate, and this "
                    f"recipe asks for {asked:.3g}: epochs and cooldown cannot be changed any more"
                )

    def _loss_compute(self, opt: NoamOpt | None) -> StateLossCompute:
        recipe = self.recipe
        consistency = recipe.consistency if opt else 0.0
        return StateLossCompute(
            self.model.generator,
            self.criterion,
            opt,
            recipe.grad_accum,
            recipe.clip,
            consistency,
            self.team,
        )

    def _batches(self, mode: str) -> Iterator[Batch]:
        recipe, data, share = self.recipe, self.data, (self.team.rank, self.team.size)
        if recipe.batch_size is not None:
            return data(self.pool, mode, recipe.batch_size, self.device, share=share)
        return data.by_tokens(self.pool, mode, recipe.batch_tokens, recipe.bucketed, self.device, share)

    def _log(self, **facts: Any) -> None:
        if self.team.rank > 0:
            return
        with open(self.folder / "metrics.jsonl", "a", encoding="utf-8") as log:
            log.write(json.dumps(facts) + "\n")
            log.flush()
            self._log_end = log.tell()

    def _end_epoch(self) -> None:
        """Validate, record the metrics, save."""
        valid, counted = self._loss_compute(None), StepCount()
        through = Pass(self.model, self.recipe, valid.evaluate)

        def part_of(batch: Batch) -> Part:
            part = through(batch, self.step)
            counted.add(self.model.pondered, counts=not batch.stand_in)
            return part

        with evaluating(self.model), torch.no_grad():
            run_epoch(self._batches("valid"), part_of, valid, is_train=False, progress=self.progress)
            counted.over_all(self.team.sum)
            scores = self.team.ask_first(lambda: self.score(self.model)) if self.score else {}
        epoch = {
            "epoch": len(self.epochs) + 1,
            "step": self.step,
            "train": {"loss": self.loss.avg_loss, "accuracy": self.loss.accuracy},
            "valid": {"loss": valid.avg_loss, "accuracy": valid.accuracy, **scores, **counted.figures},
        }
        if self.recipe.patience is not None:
            check_choice("monitor", self.recipe.monitor, epoch["valid"])
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
        if any(self.team.sum([self.stop_requested])):
            raise StoppedError
