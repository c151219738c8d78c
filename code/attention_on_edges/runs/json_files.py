"""JSON files of results and configurations."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from attention_on_edges.corpora.files import json_digest
from attention_on_edges.training.checkpoint_files import write_atomically
from edgewise.validation import InputError

Kind = TypeVar("Kind")


def read_json(path: Path, is_sealed: bool = False) -> dict[str, Any]:
    """Read a JSON object from a file; of what was :func:`sealed` see that it is whole.

    Raises
    ------
    InputError
        If there is no such file, or it holds something else.
    """
    if not path.is_file():
        raise InputError(f"{path} does not exist")
    try:
        facts = dict(json.loads(path.read_bytes()))
    except (RecursionError, TypeError, ValueError) as error:
        raise InputError(f"{path} holds no JSON object: {error}") from None
    return unsealed(facts, path) if is_sealed else facts


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Write a JSON object."""
    write_atomically(path, (json.dumps(facts, indent=1) + "\n").encode())


def sealed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with its own digest."""
    return {**facts, "digest": json_digest(facts)}


def unsealed(facts: Mapping[str, Any], where: Path) -> dict[str, Any]:
    """Return it without.

    Raises
    ------
    InputError
        If it is not what was sealed.
    """
    rest = {name: x for name, x in facts.items() if name != "digest"}
    if facts.get("digest") != json_digest(rest):
        raise InputError(f"{where} is damaged: it is not what was written")
    return rest


def made_of(kind: type[Kind], fields: Mapping[str, Any], where: Path | str) -> Kind:
    """Build a dataclass from its fields in JSON, whose lists it holds as tuples.

    Raises
    ------
    InputError
        If a field is missing, unknown or refused; ``where`` says where it is from.
    """
    try:
        return kind(**{name: tuple(x) if isinstance(x, list) else x for name, x in fields.items()})
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"{where}: {error}") from None
