"""Files of public corpora: addresses, checksums and local folders.

No corpus is part of this package. ``EDGEWISE_DATA`` names a read-only folder that is searched first; missing
files are downloaded into the cache, ``EDGEWISE_CACHE`` or ``edgewise`` in ``XDG_CACHE_HOME`` (``~/.cache`` if
that is not set). Both have the same layout.
"""

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath


class CorpusError(OSError):
    """A corpus cannot be had or cannot be used; the message says which file, why, and what to do."""


@dataclass(frozen=True)
class File:
    """A file of a corpus.

    Parameters
    ----------
    path : str
        Its path below ``EDGEWISE_DATA`` and the cache, with ``/`` between folders.
    sha256 : str
        Its checksum, 64 hexadecimal digits.
    addresses : tuple of str
        Download addresses, the best first.

    Raises
    ------
    ValueError
        If the path leads out of the folder, or checksum or addresses are malformed.
    """

    path: str
    sha256: str
    addresses: tuple[str, ...]

    def __post_init__(self):
        path = PurePosixPath(self.path)
        if not path.name or path.is_absolute() or ".." in path.parts:
            raise ValueError(f"path must stay below its folder, got {self.path!r}")
        if not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise ValueError(f"sha256 must be 64 hexadecimal digits, got {self.sha256!r}")
        if not self.addresses or not all(re.match("https?://", a) for a in self.addresses):
            raise ValueError(f"addresses must be one or more of http or https, got {self.addresses!r}")


def github_file(path: str, sha256: str, repository: str, commit: str, name: str) -> File:
    """Return a file of a GitHub repository, which two hosts serve."""
    return File(
        path,
        sha256,
        (
            f"https://raw.githubusercontent.com/{repository}/{commit}/{name}",
            f"https://github.com/{repository}/raw/{commit}/{name}",
        ),
    )


def data_folder() -> Path | None:
    """Return the folder that ``EDGEWISE_DATA`` names, if any.

    Raises
    ------
    CorpusError
        If it names something else.
    """
    name = os.environ.get("EDGEWISE_DATA")
    if not name:
        return None
    if not Path(name).is_dir():
        raise CorpusError(f"EDGEWISE_DATA must name a folder, got {name!r}")
    return Path(name)


def cache_folder() -> Path:
    """Return the folder for downloads, which need not exist yet."""
    if name := os.environ.get("EDGEWISE_CACHE"):
        return Path(name)
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "edgewise"


def sha256_of(path: Path) -> str:
    """Return a file's checksum; unchanged files are not read again."""
    facts = path.stat()
    return _sha256_of(path, facts.st_size, facts.st_mtime_ns, facts.st_ino)


@lru_cache
def _sha256_of(path: Path, *version: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def set_aside(wrong: Path, path: Path, digest: str) -> Path:
    """Rename a file with a wrong checksum, so that it is kept but never used."""
    aside = path.with_name(f"{path.name}.wrong-sha256-{digest[:12]}")
    os.replace(wrong, aside)
    return aside


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a file against other processes that would create it at the same time; create its folder.

    Raises
    ------
    CorpusError
        If the folder cannot be written to.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path.with_name(f".{path.name}.lock"), "w")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise CorpusError(f"cannot write to {path.parent} ({error}); set EDGEWISE_CACHE to another") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
