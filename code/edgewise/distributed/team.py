"""Processes that train one model together: each has a share of every batch and the same weights."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from edgewise.adaptive import UTransformer
from edgewise.checkpoints import difference
from edgewise.trainer import Alone
from edgewise.trainer.team import Result


class LostError(ConnectionError):
    """Another process of the team is gone."""


class DisagreementError(ValueError):
    """Two processes of a team would not do the same."""


class Team(Alone):
    """Processes that train together, seen from one of them; ``torch.distributed`` connects them.

    Facts and counts travel between CPUs (Gloo), also where gradients travel between GPUs (NCCL): they are
    few, they need no wait for the GPU, and a lost connection is noticed at once.

    Parameters
    ----------
    store : torch.distributed.Store
        What all processes reach; under ``torchrun`` it outlives each of them.
    rank, size : int
        Which process this is, and how many there are.
    device : torch.device
        Where this one computes.
    command : sequence of str
        How processes like these are started; the program's own words follow.
    counts, facts : torch.distributed.ProcessGroup, optional
        All of them, on CPUs: for counts, which are at hand at once, and for facts, which one may have to work
        out first. By default the group that exchanges gradients.
    """

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        size: int,
        device: torch.device,
        command: Sequence[str],
        counts: dist.ProcessGroup | None = None,
        facts: dist.ProcessGroup | None = None,
    ):
        self.store, self.rank, self.size, self.device = store, rank, size, device
        self.command, self.counts, self.facts = command, counts, facts

    def wrap(self, module: nn.Module) -> Callable[..., Any]:
        """Return what runs ``module`` under ``DistributedDataParallel``, with ``no_sync`` if not ``sync``."""
        # Halting units may go without a gradient in a batch: all its tokens halted at once.
        options = {"find_unused_parameters": any(isinstance(part, UTransformer) for part in module.modules())}
        known = inspect.signature(DistributedDataParallel).parameters
        # Tables of positions grow as each process meets longer sentences; they hold nothing learned.
        options["forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"] = False
        if self.device.type == "cuda":
            options["device_ids"] = [self.device]
        with self._noticing_loss():
            parallel = DistributedDataParallel(module, **options)

        def run(*arguments: Any, sync: bool) -> Any:
            with self._noticing_loss(), nullcontext() if sync else parallel.no_sync():
                return parallel(*arguments)

        return run

    def backward(self, total: Tensor) -> None:
        """Work out gradients; exchange them if the pass said so."""
        with self._noticing_loss():
            total.backward()

    def sum(self, values: Sequence[float]) -> list[float]:
        """Add up each of several numbers over the processes."""
        total = torch.tensor(values, dtype=torch.float64)
        with self._noticing_loss():
            dist.all_reduce(total, group=self.counts)
        return total.tolist()

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return every process's tensor, in order of rank."""
        return self._gather(tensor, self.counts)

    def _gather(self, tensor: Tensor, group: dist.ProcessGroup | None) -> list[Tensor]:
        gathered = [torch.empty_like(tensor) for _ in range(self.size)]
        with self._noticing_loss():
            dist.all_gather(gathered, tensor, group=group)
        return gathered

    def ask_first(self, compute: Callable[[], Result]) -> Result:
        """Let the first process work something out, of which JSON can be made, and tell the others."""
        return self._exchange(compute() if self.rank == 0 else None)[0]

    def part_ways(self, seed: int) -> None:
        """Give each process but the first a random state drawn from the seed and its rank."""
        if self.rank:
            torch.manual_seed(int(np.random.SeedSequence([seed, self.rank]).generate_state(1)[0]))

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Check that all processes would do the same; see :meth:`Alone.agree`."""
        first, *others = self._exchange(dict(facts))
        for rank, other in enumerate(others, 1):
            if other != first:
                how = difference(first, other, ("on rank 0", f"on rank {rank}"))
                raise DisagreementError(f"all processes must do the same, but {how}")

    def speaks(self) -> bool:
        """Say whether this process is the first to report an error: others fail of its failure, or alike."""
        try:
            return self.store.add("errors", 1) == 1
        except RuntimeError:  # the store is gone too
            return True

    def _exchange(self, facts: Any) -> list[Any]:
        """Return every process's facts, JSON, in order of rank."""
        text = torch.frombuffer(bytearray(json.dumps(facts).encode()), dtype=torch.uint8)
        lengths = torch.cat(self._gather(torch.tensor([len(text)]), self.facts)).tolist()
        padded = torch.zeros(max(lengths), dtype=torch.uint8)
        padded[: len(text)] = text
        found = zip(self._gather(padded, self.facts), lengths, strict=True)
        return [json.loads(bytes(text[:length].tolist())) for text, length in found]

    @contextmanager
    def _noticing_loss(self) -> Iterator[None]:
        """Turn what the libraries raise when a connection ends into an error that says so."""
        try:
            yield
        except RuntimeError as error:
            text = str(error).lower()
            if isinstance(error, dist.DistError) or "gloo" in text or "nccl" in text:
                raise LostError("another process of this run is gone: go on with --resume") from error
            raise
