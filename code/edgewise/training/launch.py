"""How a process started by ``torchrun`` joins its process group and picks its device."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from edgewise.training.communicator import LOCAL, LocalCommunicator
from edgewise.training.distributed import DistributedCommunicator
from edgewise.validation import InputError

RENDEZVOUS_TIMEOUT = timedelta(seconds=60)
"""Timeout of the rendezvous."""

STEP_TIMEOUT = timedelta(minutes=10)
"""Timeout for gradients and counts, which all processes exchange within the same update."""

FACTS_TIMEOUT = timedelta(hours=2)
"""Timeout for facts: the first process may be decoding a validation set."""

# Told no address, torchrun looks up the machine's own name, and hangs where that does not resolve.
_STANDALONE = ["torchrun", "--standalone", "--local-addr", "127.0.0.1"]


def is_distributed() -> bool:
    """Whether ``torchrun``, or a similar launcher, started this process as one of several."""
    return os.environ.get("WORLD_SIZE", "1") not in ("0", "1")


def is_first_on_machine() -> bool:
    """Whether this is the first process of its machine."""
    return os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")) == "0"


@contextmanager
def process_group(device: str) -> Iterator[tuple[LocalCommunicator, str]]:
    """Join the other processes, if there are any; leave them at the end.

    Parameters
    ----------
    device : str
        ``"cpu"`` or ``"cuda"``, one per process; a single process may use any device.

    Yields
    ------
    communicator : LocalCommunicator
        The processes that train together.
    device : str
        This process's own.

    Raises
    ------
    InputError
        If the device cannot be distributed, or the environment is not ``torchrun``'s.
    ConnectionError
        If the rendezvous fails.
    """
    if not is_distributed():
        yield LOCAL, device
        return
    rank, size, local = (_number(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    place = _device_of(device, local)
    store = _rendezvous()
    # torchrun's store outlives a restart: entries of the last attempt must not be mixed with this one's.
    store = dist.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    try:
        backend = "nccl" if place.type == "cuda" else "gloo"
        meeting = dist.PrefixStore("group", store)
        try:
            dist.init_process_group(backend, store=meeting, rank=rank, world_size=size, timeout=STEP_TIMEOUT)
            groups = [dist.new_group(backend="gloo", timeout=wait) for wait in (STEP_TIMEOUT, FACTS_TIMEOUT)]
        except (dist.DistError, RuntimeError) as error:
            why = " ".join(str(error).split())
            raise ConnectionError(f"{size} processes did not all come: {why}") from None
        errors = dist.PrefixStore("errors", store)
        communicator = DistributedCommunicator(errors, rank, size, place, _launcher(size), *groups)
        yield communicator, str(place)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _number(name: str) -> int:
    value = os.environ.get(name, "")
    if not value.isdecimal():
        raise InputError(f"{name} must be a number, got {value!r}: start several processes with torchrun")
    return int(value)


def _device_of(device: str, local: int) -> torch.device:
    """Return the device of the process with local rank ``local``."""
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and kind == "cuda"):
        raise InputError(f"several processes need --device cpu or --device cuda, got {device!r}")
    if kind == "cpu":
        return torch.device("cpu")
    if not (torch.cuda.is_available() and dist.is_nccl_available()):
        raise InputError(
            "--device cuda needs NCCL and a GPU for each process, and here is none: use --device cpu"
        )
    here, count = int(os.environ.get("LOCAL_WORLD_SIZE", local + 1)), torch.cuda.device_count()
    if max(here, local + 1) > count:
        raise InputError(f"rank {local} of this machine has no GPU: {here} processes, {count} GPUs")
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def _rendezvous() -> dist.Store:
    """Connect to the store that all processes share; under ``torchrun`` it is its agent's."""
    where = f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"
    try:
        store, _, _ = next(dist.rendezvous("env://", timeout=RENDEZVOUS_TIMEOUT))
    except (dist.DistError, RuntimeError, ValueError) as error:
        used = "EADDRINUSE" in str(error)
        why = f"the port is in use: name another, or start with {' '.join(_STANDALONE)}" if used else error
        raise ConnectionError(f"processes cannot meet at {where}: {why}") from None
    return store


def _launcher(size: int) -> tuple[str, ...]:
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    return (*_STANDALONE, "--nproc-per-node", local) if local == str(size) else ("torchrun", "...")
