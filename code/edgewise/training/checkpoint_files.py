"""The files of checkpoints: tensors and JSON in one file, written atomically.

What a run saves to resume bit for bit is decided in :mod:`~edgewise.training.trainer`.

A checkpoint is a safetensors file. Its tensors are those of a tree of dicts and lists, numbered; its header
holds the rest of the tree as JSON, the format's version and the configuration it belongs to, and a digest of
all that and of the tensors. A new file is written beside the old ones, flushed to the disk and only then
renamed; the one before it is kept.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

FORMAT = 2
"""Version of the format that this code writes and reads."""

NAME = re.compile(r"step-(\d{8,})\.safetensors")

KEPT = 2
"""Checkpoints in a folder: the newest and the one before it."""


class CheckpointError(Exception):
    """A checkpoint cannot be used; the message says which, why, and what to do."""


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
    """Write a file atomically: its name never refers to a partial file.

    Raises
    ------
    OSError
        If the disk is full or the folder cannot be written; the old file stays.
    """
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
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read(path: Path) -> tuple[list[Tensor], dict[str, Any]]:
    """Return the tensors and the facts of a checkpoint.

    Raises
    ------
    CheckpointError
        If the file is missing, truncated, altered, of another kind or of another format.
    """
    if not path.is_file():
        raise CheckpointError(f"{path} {'is no regular file' if path.exists() else 'does not exist'}")
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            text, digest = header.get("edgewise", "null"), header.get("digest")
            facts = json.loads(text)
            named = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no iterator)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is truncated or no safetensors file ({error})") from None
    if not isinstance(facts, dict) or not isinstance(facts.get("format"), int):
        raise CheckpointError(f"{path} was not written by edgewise: it has no header of ours")
    if facts["format"] != FORMAT:
        age = "newer" if facts["format"] > FORMAT else "older"
        raise CheckpointError(
            f"{path} has format {facts['format']}, {age} than {FORMAT}, which this edgewise reads"
        )
    tensors = [named[name] for name in sorted(named)]
    if digest != _digest(text, tensors):
        raise CheckpointError(f"{path} is damaged: it is not what was written")
    if facts["step"] != _step_of(path):
        raise CheckpointError(f"{path} was renamed: it was written after step {facts['step']}")
    return tensors, facts


def save_checkpoint(folder: Path, step: int, state: Mapping[str, Any], config: Mapping[str, Any]) -> Path:
    """Write the state of a run after ``step`` updates into its folder; keep the checkpoint before it.

    Parameters
    ----------
    folder : Path
        Created if missing.
    step : int
        Names the file.
    state : mapping
        A tree of tensors, numbers, strings, booleans and ``None`` in lists and in mappings whose keys are
        strings or integers. It comes back equal, tuples as lists.
    config : mapping
        The run's configuration, JSON; a run with another one cannot continue from this checkpoint.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for part in folder.glob(".step-*.part"):
        part.unlink(missing_ok=True)  # of a process that was killed
    tensors: list[Tensor] = []
    tree = _take_tensors(state, "state", tensors)
    text = json.dumps({"format": FORMAT, "step": step, "config": dict(config), "tree": tree})
    named = {f"{number:06d}": tensor for number, tensor in enumerate(tensors)}
    path = folder / f"step-{step:08d}.safetensors"
    write_atomically(path, save(named, {"edgewise": text, "digest": _digest(text, tensors)}))
    for old in [other for other in checkpoints(folder) if _step_of(other) <= step][:-KEPT]:
        old.unlink()
    return path


def load_checkpoint(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Read a state back.

    Parameters
    ----------
    path : Path
        As :func:`save_checkpoint` returned it.
    config : mapping
        The configuration of the run that continues.

    Raises
    ------
    CheckpointError
        If the file cannot be used or belongs to another configuration. Names the previous checkpoint, if
        that one is intact.
    """
    ours = json.loads(json.dumps(dict(config)))
    try:
        tensors, facts = _read(path)
        if facts["config"] != ours:
            raise CheckpointError(f"{path} is of another configuration: {difference(facts['config'], ours)}")
    except CheckpointError as error:
        raise CheckpointError(f"{error}; {_advice(path, ours)}") from None
    return _put_tensors(facts["tree"], tensors)


def checkpoints(folder: Path) -> list[Path]:
    """Return a folder's checkpoints, those of fewer steps first; other files are left alone."""
    return sorted((p for p in folder.glob("step-*.safetensors") if NAME.fullmatch(p.name)), key=_step_of)


def _step_of(path: Path) -> int:
    found = NAME.fullmatch(path.name)
    return int(found[1]) if found else -1


def _advice(path: Path, config: Mapping[str, Any]) -> str:
    for other in reversed([p for p in checkpoints(path.parent) if _step_of(p) < _step_of(path)]):
        try:
            _, facts = _read(other)
        except CheckpointError:
            continue
        if facts["config"] == config:
            return f"the one before it, {other.name}, is whole: remove {path.name} to go on from there"
    return (
        f"there is no whole checkpoint of this configuration before it in {path.parent}: "
        "start again in another folder"
    )


def difference(theirs: Any, ours: Any, places: tuple[str, str] = ("there", "here"), name: str = "") -> str:
    """Say where two configurations first differ; ``places`` are theirs and ours."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(theirs.keys() | ours.keys()):
            if theirs.get(key) != ours.get(key):
                return difference(theirs.get(key), ours.get(key), places, f"{name}.{key}".lstrip("."))
    return f"{name or 'it'} is {theirs!r} {places[0]} and {ours!r} {places[1]}"


def _take_tensors(tree: Any, place: str, tensors: list[Tensor]) -> Any:
    """Move the tensors of a tree into ``tensors``; return what is left, which JSON can hold.

    An object of the JSON has one key, which says what it stands for: a tensor or a mapping.
    """
    if isinstance(tree, Tensor):
        tensors.append(tree.detach().cpu().contiguous().clone())
        return {"tensor": len(tensors) - 1}
    if isinstance(tree, Mapping):
        if wrong := [key for key in tree if type(key) not in (str, int)]:
            raise TypeError(f"keys of a checkpoint are strings or integers, got {wrong[0]!r} at {place}")
        return {"mapping": [[k, _take_tensors(v, f"{place}/{k}", tensors)] for k, v in tree.items()]}
    if isinstance(tree, list | tuple):
        return [_take_tensors(value, f"{place}/{i}", tensors) for i, value in enumerate(tree)]
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise TypeError(f"a checkpoint holds tensors and JSON, got {type(tree).__name__} at {place}")


def _put_tensors(tree: Any, tensors: list[Tensor]) -> Any:
    if isinstance(tree, list):
        return [_put_tensors(value, tensors) for value in tree]
    if not isinstance(tree, dict):
        return tree
    if "tensor" in tree:
        return tensors[tree["tensor"]]
    return {key: _put_tensors(value, tensors) for key, value in tree["mapping"]}


def _digest(text: str, tensors: list[Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for x in tensors:
        digest.update(f"{x.dtype} {list(x.shape)}\n".encode())
        digest.update(x.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
