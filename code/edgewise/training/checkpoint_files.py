"""The files of checkpoints: tensors and JSON in one file, written atomically.

What a run saves to resume bit for bit is decided in :mod:`~edgewise.training.trainer`.

A checkpoint is a safetensors file. Its tensors are those of a tree of dicts and lists, named by their paths;
its header holds the rest of the tree as JSON, the format's version, the configuration it belongs to and a
digest of the tensors. A new file is written beside the old ones, flushed to the disk and only then renamed;
the one before it is kept.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

FORMAT = 1
"""Version of the format that this code writes, and the newest that it reads."""

TENSOR = "<tensor>"
"""Marks the place of a tensor in the JSON."""

KEPT = 2
"""Checkpoints in a folder: the newest and the one before it."""


class CheckpointError(Exception):
    """A checkpoint cannot be used; the message says which, why, and what to do."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file atomically: its name never refers to a partial file.

    Raises
    ------
    OSError
        If the disk is full or the folder cannot be written; the old file stays.
    """
    fresh = path.with_name(f".{path.name}.part")
    try:
        with open(fresh, "wb") as file:
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


def save_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write named tensors and a JSON header, atomically."""
    tensors = {name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()}
    facts = {"format": FORMAT, "digest": _digest(tensors), **header}
    write_atomically(path, save(tensors, {"edgewise": json.dumps(facts)}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_tensors` wrote.

    Raises
    ------
    CheckpointError
        If the file is missing, truncated, altered, of another kind or of a newer format.
    """
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {}).get("edgewise", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no iterator)
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is truncated or no safetensors file ({error})") from None
    if not isinstance(facts, dict) or not isinstance(facts.get("format"), int):
        raise CheckpointError(f"{path} was not written by edgewise: it has no header of ours")
    if facts["format"] > FORMAT:
        raise CheckpointError(
            f"{path} has format {facts['format']}, newer than {FORMAT}, which this edgewise reads; update it"
        )
    if facts.get("digest") != _digest(tensors):
        raise CheckpointError(f"{path} is damaged: its tensors are not those that were written")
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
        A tree of dicts and lists of tensors, numbers, strings, booleans and ``None``.
    config : mapping
        The run's configuration, JSON; a run with another one cannot continue from this checkpoint.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for part in folder.glob(".step-*.part"):
        part.unlink(missing_ok=True)  # of a process that was killed
    tensors: dict[str, Tensor] = {}
    tree = _take_tensors(state, "state", tensors)
    path = folder / f"step-{step:08d}.safetensors"
    save_tensors(path, tensors, {"config": dict(config), "tree": tree})
    for old in checkpoints(folder)[:-KEPT]:
        old.unlink()
    return path


def load_checkpoint(
    path: Path, config: Mapping[str, Any], usual: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Read a state back.

    Parameters
    ----------
    path : Path
        As :func:`save_checkpoint` returned it.
    config : mapping
        The configuration of the run that continues.
    usual : mapping, optional
        Values of the fields that a configuration may leave out.

    Raises
    ------
    CheckpointError
        If the file cannot be used or belongs to another configuration. Names the previous checkpoint, if
        that one is intact.
    """
    usual = json.loads(json.dumps(dict(usual or {})))
    ours = usual | json.loads(json.dumps(dict(config)))
    try:
        tensors, facts = load_tensors(path)
        if (theirs := _config(facts, usual)) != ours:
            raise CheckpointError(f"{path} is of another configuration: {difference(theirs, ours)}")
    except CheckpointError as error:
        raise CheckpointError(f"{error}; {_advice(path, ours, usual)}") from None
    return _put_tensors(facts["tree"], "state", tensors)


def checkpoints(folder: Path) -> list[Path]:
    """Return a folder's checkpoints, oldest first."""
    return sorted(folder.glob("step-*.safetensors"))


def _config(facts: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any] | None:
    found = facts.get("config")
    return None if found is None else {**usual, **found}


def _advice(path: Path, config: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    for other in reversed([p for p in checkpoints(path.parent) if p < path]):
        try:
            _, facts = load_tensors(other)
        except CheckpointError:
            continue
        if _config(facts, usual) != config:
            continue
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


def _take_tensors(tree: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Move the tensors of a tree into ``tensors``; return what is left, which JSON can hold."""
    if isinstance(tree, Tensor):
        tensors[path] = tree
        return TENSOR
    if isinstance(tree, Mapping):
        return {str(key): _take_tensors(value, f"{path}/{key}", tensors) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_take_tensors(value, f"{path}/{i}", tensors) for i, value in enumerate(tree)]
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise TypeError(f"a checkpoint holds tensors and JSON, got {type(tree).__name__} at {path}")


def _put_tensors(tree: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    if tree == TENSOR:
        return tensors[path]
    if isinstance(tree, dict):
        return {key: _put_tensors(value, f"{path}/{key}", tensors) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_put_tensors(value, f"{path}/{i}", tensors) for i, value in enumerate(tree)]
    return tree


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for part in _bytes_of(tensors):
        digest.update(part)
    return digest.hexdigest()


def _bytes_of(tensors: Mapping[str, Tensor]) -> Iterator[bytes]:
    for name, x in sorted(tensors.items()):
        yield f"{name} {x.dtype} {list(x.shape)}\n".encode()
        yield x.reshape(-1).view(torch.uint8).numpy().tobytes()
