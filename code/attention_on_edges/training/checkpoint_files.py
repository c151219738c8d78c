"""Files that outlast a kill, and the checkpoints among them.

A new file is written beside the old one, flushed to the disk and only then renamed. What a run saves to
resume bit for bit is decided in :mod:`~attention_on_edges.training.trainer`.
"""

import errno
import fcntl
import hashlib
import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from edgewise.validation import InputError

LACKING = {
    errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EISDIR, errno.EBADF, errno.ENOLCK,
}  # fmt: skip
"""What network shares and FUSE answer if a folder is to be flushed, or a file locked."""

KEPT = 2
"""Checkpoints in a folder: the newest and the one before it."""


class CheckpointError(Exception):
    """A checkpoint is damaged, or of another configuration; the message says where they differ."""


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Keep other processes out while a file or a folder of this name is written.

    Raises
    ------
    InputError
        If another process is writing and this one is not to wait.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f".{path.name}.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise InputError(f"another process is writing into {path.parent}: name another folder") from None
        except OSError as error:
            if error.errno not in LACKING:
                raise
        yield


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Let errors of the operating system, a full disk for instance, say which file they concern."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file whose name never refers to a part of it; if that fails, the old file stays."""
    fresh = path.with_name(f".{path.name}.part")
    try:
        with naming(path), open(fresh, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        rename_durably(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def rename_durably(fresh: Path, path: Path) -> None:
    """Rename a complete file or folder, and flush the rename to disk."""
    os.replace(fresh, path)
    try:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        if error.errno not in LACKING:  # else the file is in its place all the same
            raise


def save_checkpoint(folder: Path, step: int, state: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Write the state of a run after ``step`` updates into its folder; keep the checkpoint before it.

    The file is a SHA-256 of its name and of what follows, which PyTorch wrote: one bit that flips makes
    another state.

    Parameters
    ----------
    folder : Path
        Created if missing.
    step : int
        Names the file.
    state : mapping
        Tensors, numbers, strings and ``None``, in lists and mappings.
    config : mapping
        The run's configuration, JSON; a run with another one cannot continue from this checkpoint.
    """
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    torch.save({"config": json.dumps(config), "state": dict(state)}, buffer)
    path, data = folder / f"step-{step:08d}.pt", buffer.getvalue()
    write_atomically(path, _digest(path, data) + data)
    for old in checkpoints(folder)[:-KEPT]:
        old.unlink()


def _digest(path: Path, data: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + data).digest()


def load_checkpoint(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Read a state back, its tensors on the CPU.

    Raises
    ------
    CheckpointError
        If it is damaged or belongs to another configuration.
    """
    try:
        content = path.read_bytes()
        digest, data = content[:32], content[32:]
        if _digest(path, data) != digest:
            raise ValueError("it does not have its checksum")
        found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        theirs, state = json.loads(found["config"]), found["state"]
    except Exception as error:  # whatever a file makes of PyTorch's reader
        if isinstance(error, OSError) and error.filename is not None:
            raise
        before = [other.name for other in checkpoints(path.parent) if other.name < path.name]
        rest = f"; {before[-1]} is before it, from which a run goes on if it is removed" if before else ""
        raise CheckpointError(f"{path} is damaged, renamed, or of an older version{rest}") from error
    ours = json.loads(json.dumps(config))
    if theirs != ours:
        raise CheckpointError(f"{path} is of another configuration: {difference(theirs, ours)}")
    return state


def checkpoints(folder: Path) -> list[Path]:
    """Return a folder's checkpoints, those of fewer steps first."""
    found = [
        path for path in folder.glob("step-*.pt") if re.fullmatch("step-[0-9]+", path.stem) and path.is_file()
    ]
    return sorted(found, key=lambda path: int(path.stem.removeprefix("step-")))


def difference(theirs: Any, ours: Any, places: tuple[str, str] = ("there", "here"), name: str = "") -> str:
    """Say where two configurations first differ; ``places`` are theirs and ours."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(theirs.keys() | ours.keys()):
            if theirs.get(key) != ours.get(key):
                return difference(theirs.get(key), ours.get(key), places, f"{name}.{key}".lstrip("."))
    return f"{name or 'it'} is {theirs!r} {places[0]} and {ours!r} {places[1]}"
