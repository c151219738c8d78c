"""An epoch of a run."""

import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from edgewise.graphs import Batch
from edgewise.trainer.passing import Part

if TYPE_CHECKING:
    from edgewise.trainer.run import Run


class StoppedError(Exception):
    """A run stopped on request, after saving its state."""


class Epoch:
    """The remaining batches of a run's epoch; between two of them, the run logs and saves.

    Attributes
    ----------
    over : bool
        Whether the last of them has passed.
    """

    def __init__(self, run: "Run", max_steps: int | None):
        self.run, self.max_steps, self.over = run, max_steps, False
        self._last = False

    def part_of(self, batch: Batch) -> Part:
        """Pass a batch through; gradients are exchanged only if an update follows."""
        run = self.run
        updates = self._last or run.loss.waiting + 1 == run.recipe.grad_accum
        return run._pass(batch, run.step, sync=updates)

    def __iter__(self) -> Iterator[Batch]:
        run = self.run
        batches = islice(run._batches("train"), run._batches_done, None)
        coming = next(batches, None)
        while coming is not None:
            if run.loss.waiting == 0 and self._pause():
                return
            batch, coming = coming, next(batches, None)
            self._last = coming is None
            yield batch
            run._batches_done += 1
            if len(run.losses) < run.RECORDED:
                run.losses.append(run.loss.latest)
            facts = {"step": run.step, "epoch": len(run.epochs) + 1, "tokens": run.loss.latest_tokens}
            if run.loss.waiting == 0:  # this batch completed an update
                facts |= {"rate": run.opt.rate(), "grad_norm": run.loss.grad_norm}
            run._log(**facts, loss=run.loss.latest)
        self.over = True

    def _pause(self) -> bool:
        """Save if it is due; return whether to stop."""
        run = self.run
        enough = self.max_steps is not None and run.step >= self.max_steps
        late = time.monotonic() - run._saved_at > run.save_every
        asked = run.team.sum([run.stop_requested, late])  # clocks differ, and a signal may reach one process
        run.stop_requested = asked[0] > 0
        if enough or any(asked):
            run.save()
        if run.stop_requested:
            raise StoppedError
        return enough
