"""Data-parallel processes: each has a share of every batch and the same weights."""

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

from edgewise.models.universal import UTransformer
from edgewise.training.checkpoint_files import difference
from edgewise.training.communicator import LocalCommunicator, Result
from edgewise.validation import InputError


class ProcessLostError(ConnectionError):
    """Another training process has died."""


class MismatchError(InputError):
    """Two training processes have different settings."""


class DistributedCommunicator(LocalCommunicator):
    """Processes that train together, seen from one of them; ``torch.distributed`` connects them.

    Facts and counts are exchanged between CPUs (Gloo) even if gradients are between GPUs (NCCL): they are
    few, need not wait for the GPU, and Gloo notices a lost connection where NCCL waits for its watchdog.

    Parameters
    ----------
    store : torch.distributed.Store
        Shared by all processes; under ``torchrun`` it outlives them.
    rank, size : int
        Which process this is, and how many there are.
    device : torch.device
        This process's device.
    launcher : tuple of str
        The command that started the processes, before the program's name.
    counts, facts : torch.distributed.ProcessGroup, optional
        Groups of all processes on CPUs: for counts, which are exchanged at once, and for facts, which may
        take longer. By default the group that exchanges gradients.
    """

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        size: int,
        device: torch.device,
        launcher: tuple[str, ...],
        counts: dist.ProcessGroup | None = None,
        facts: dist.ProcessGroup | None = None,
    ):
        self.store, self.rank, self.size, self.device = store, rank, size, device
        self.launcher, self.counts, self.facts = launcher, counts, facts

    def wrap(self, module: nn.Module) -> Callable[..., Any]:
        """Return a callable that runs ``module`` in ``DistributedDataParallel``."""
        # Halting units may have no gradient in a batch in which all tokens halt at once.
        unused = any(isinstance(part, UTransformer) for part in module.modules())
        options: dict[str, Any] = {"find_unused_parameters": unused}
        known = inspect.signature(DistributedDataParallel).parameters
        # Position tables grow with each process's longest sentence; they are not learned.
        options["forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"] = False
        if self.device.type == "cuda":
            options["device_ids"] = [self.device]
        with self._noticing_lost_process():
            parallel = DistributedDataParallel(module, **options)

        def run(*arguments: Any, sync: bool) -> Any:
            with self._noticing_lost_process(), nullcontext() if sync else parallel.no_sync():
                return parallel(*arguments)

        return run

    def backward(self, total: Tensor) -> None:
        """Compute gradients; exchange them if the pass asked for it."""
        with self._noticing_lost_process():
            total.backward()

    def sum(self, values: Sequence[float]) -> list[float]:
        """Add up each of several numbers over the processes."""
        total = torch.tensor(values, dtype=torch.float64)
        with self._noticing_lost_process():
            dist.all_reduce(total, group=self.counts)
        return total.tolist()

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return every process's tensor, in order of rank."""
        return self._gather(tensor, self.counts)

    def _gather(self, tensor: Tensor, group: dist.ProcessGroup | None) -> list[Tensor]:
        gathered = [torch.empty_like(tensor) for _ in range(self.size)]
        with self._noticing_lost_process():
            dist.all_gather(gathered, tensor, group=group)
        return gathered

    def broadcast(self, compute: Callable[[], Result]) -> Result:
        """Compute something JSON-serialisable in the first process and broadcast it."""
        return self._exchange(compute() if self.rank == 0 else None)[0]

    def seed_by_rank(self, seed: int) -> None:
        """Seed each process but the first from the seed and its rank."""
        if self.rank:
            torch.manual_seed(int(np.random.SeedSequence([seed, self.rank]).generate_state(1)[0]))

    def assert_same(self, facts: Mapping[str, Any]) -> None:
        """Check that all processes have the same facts; see :meth:`LocalCommunicator.assert_same`."""
        first, *others = self._exchange(dict(facts))
        for rank, other in enumerate(others, 1):
            if other != first:
                how = difference(first, other, ("on rank 0", f"on rank {rank}"))
                raise MismatchError(f"all processes must do the same, but {how}")

    def reports_errors(self) -> bool:
        """Whether this process is the first to report an error; others fail as a consequence, or alike."""
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
    def _noticing_lost_process(self) -> Iterator[None]:
        """Turn the libraries' errors at a lost connection into :class:`ProcessLostError`."""
        try:
            yield
        except RuntimeError as error:
            text = str(error).lower()
            if isinstance(error, dist.DistError) or "gloo" in text or "nccl" in text:
                raise ProcessLostError("another process of this run is gone: go on with --resume") from error
            raise
