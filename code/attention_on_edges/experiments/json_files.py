"""JSON files that are read back: errors name file and field."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import msgspec

from attention_on_edges.data.corpora.files import json_digest
from edgewise.training.checkpoint_files import write_atomically
from edgewise.validation import InputError

Kind = TypeVar("Kind")

MOST_BYTES = 1 << 28
"""Largest file that is read."""


class Provenance(TypedDict):
    """What the provenance of a result says at least: when and where it was made, by which code."""

    commit: str
    changed: bool
    date: str
    device: str
    torch: str
    python: str
    seconds: float


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file.

    Raises
    ------
    InputError
        If there is no such file, or it holds something else.
    """
    if not path.is_file():
        raise InputError(f"{path} {'is no regular file' if path.exists() else 'does not exist'}")
    if (size := path.stat().st_size) > MOST_BYTES:
        raise InputError(f"{path} has {size:,} bytes, more than any file of results")
    return parse_object(path.read_bytes(), path)


def parse_object(data: bytes, where: Path | str) -> dict[str, Any]:
    """Return the JSON object that some bytes are; ``where`` is for the message of the ``InputError``."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is damaged: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{where} must hold a JSON object, got {str(found)[:40]}")
    return found


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Write a JSON object."""
    write_atomically(path, (json.dumps(facts, indent=1) + "\n").encode())


def typed(found: object, kind: type[Kind], where: Path | str) -> Kind:
    """Turn what JSON gave into a type; fields are checked, and a dataclass has no others.

    Raises
    ------
    InputError
        Names the field, after ``where``.
    """
    names = {field.name for field in fields(kind)} if is_dataclass(kind) else set()
    if names and isinstance(found, dict) and (unknown := sorted(found.keys() - names)):
        raise InputError(f"{where}: there is no field {unknown[0]!r}; there are {', '.join(sorted(names))}")
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {error}") from None


def sealed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts with a ``digest`` of the others."""
    return {**facts, "digest": json_digest(facts)}


def check_seal(facts: Mapping[str, Any], path: Path) -> None:
    """Raise ``InputError`` if facts are not those that :func:`sealed` returned."""
    if sealed({key: value for key, value in facts.items() if key != "digest"}) != facts:
        raise InputError(f"{path} was changed after it was written: its digest is not that of its content")
