"""Chapter 12: processes that share every batch and have the same weights; one alone is a special case."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from attention_on_edges.models.transformer import Transformer
from attention_on_edges.training.checkpoint_files import difference
from edgewise.validation import InputError

Result = TypeVar("Result")

TIMEOUT = timedelta(hours=2)
"""How long a process waits for the others, while the first one may be decoding a validation set."""


@contextmanager
def process_group(device: str) -> Iterator[str]:
    """Join the processes that ``torchrun`` started, if there are several; yield this one's device.

    Counts and facts are exchanged between CPUs (Gloo) even if gradients are between GPUs (NCCL).

    Raises
    ------
    InputError
        If the device is neither ``"cpu"`` nor ``"cuda"``, of which each process gets its own.
    ConnectionError
        If the processes do not meet.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield device
        return
    if device not in ("cpu", "cuda"):
        raise InputError(f"several processes need --device cpu or --device cuda, got {device!r}")
    if device == "cuda" and "LOCAL_RANK" not in os.environ:
        raise InputError(
            "LOCAL_RANK must say which GPU this process has, as torchrun sets it (srun: SLURM_LOCALID)"
        )
    try:
        number, count = int(os.environ.get("RANK", "0")), int(os.environ["WORLD_SIZE"])
        if count < 1:
            raise ValueError(f"WORLD_SIZE must be at least 1, got {count}")
        if not 0 <= number < count:
            raise ValueError(f"RANK must lie in 0..{count - 1}, got {number}")  # it would wait for ever
        dist.init_process_group("gloo" if device == "cpu" else "cpu:gloo,cuda:nccl", timeout=TIMEOUT)
    except (RuntimeError, ValueError) as error:
        raise ConnectionError(f"the processes cannot meet: {error}") from None
    try:
        if device == "cuda":
            device = f"cuda:{os.environ['LOCAL_RANK']}"
            torch.cuda.set_device(device)
        yield device
    finally:
        dist.destroy_process_group()


def rank() -> int:
    """Which process this is."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def sum_over_processes(values: Sequence[float]) -> list[float]:
    """Add up each of several numbers."""
    if world_size() == 1:
        return list(values)
    total = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(total)
    return total.tolist()


def gather(fact: Result) -> list[Result]:
    """Return every process's fact, in order of rank."""
    found = [fact] * world_size()
    if len(found) > 1:
        dist.all_gather_object(found, fact)
    return found


def broadcast(compute: Callable[[], Result]) -> Result:
    """Compute something in the first process and give it to all."""
    found: list[Any] = [compute() if rank() == 0 else None]
    if world_size() > 1:
        dist.broadcast_object_list(found)
    return found[0]


def assert_same(facts: Mapping[str, Any]) -> None:
    """Raise ``InputError`` in all processes, naming the first difference, if their facts differ."""
    first, *others = gather(dict(facts))
    for number, other in enumerate(others, 1):
        if other != first:
            how = difference(first, other, ("on rank 0", f"on rank {number}"))
            raise InputError(f"all processes must do the same, but {how}")


def seed_by_rank(seed: int) -> None:
    """Seed each process but the first from the seed and its rank."""
    if rank():
        torch.manual_seed(int(np.random.SeedSequence([seed, rank()]).generate_state(1)[0]))


class _Module(nn.Module):
    """A function of a model as a module: ``DistributedDataParallel`` needs one with a single ``forward``."""

    def __init__(self, model: nn.Module, function: Callable[..., Any]):
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *arguments: Any) -> Any:
        return self.function(self.model, *arguments)


def parallel(model: nn.Module, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function(model, ...)``, after which the gradients of several processes are their means."""
    if world_size() == 1:
        return partial(function, model)
    # Others may have parts that a batch does not need: halting units, where all tokens halt at once; spans.
    unused = type(model) is not Transformer
    return DistributedDataParallel(_Module(model, function), find_unused_parameters=unused)
