"""Files of public corpora: addresses, checksums and local folders.

No corpus is part of this package. ``EDGEWISE_DATA`` names a read-only folder that is searched first; missing
files are downloaded into the cache, ``EDGEWISE_CACHE`` or ``edgewise`` in ``XDG_CACHE_HOME`` (``~/.cache`` if
that is not set). Both have the same layout.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tqdm import tqdm


class CorpusError(OSError):
    """A corpus cannot be had; the message says which file, why, and what to do."""


@dataclass(frozen=True)
class File:
    """A file of a corpus.

    Attributes
    ----------
    path : str
        Its path below ``EDGEWISE_DATA`` and the cache, with ``/`` between folders.
    sha256 : str
        Its checksum, 64 hexadecimal digits.
    addresses : tuple of str
        Download addresses, the best first.
    """

    path: str
    sha256: str
    addresses: tuple[str, ...]


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


def fetch(file: File) -> Path:
    """Return the path of a file, its checksum verified; download it if it is missing.

    Raises
    ------
    CorpusError
        If the one in ``EDGEWISE_DATA`` has another checksum, or no address serves it.
    """
    folder = data_folder()
    if folder is not None and (local := folder / file.path).is_file():
        if sha256_of(local) != file.sha256:
            raise CorpusError(f"{local} is another version: its sha256 must be {file.sha256}")
        return local
    import pooch  # slow to import

    pooch.get_logger().setLevel("WARNING")  # it would print addresses and paths raw
    path = cache_folder() / file.path
    for address in file.addresses:
        try:
            bar = tqdm(total=1, unit="B", unit_scale=True, delay=1)  # pooch sets the true total
            downloader = pooch.HTTPDownloader(progressbar=bar)
            pooch.retrieve(address, file.sha256, path.name, path.parent, downloader=downloader)
            return path
        except (OSError, ValueError) as error:  # of the network or the disk; another checksum
            reason = error
    raise CorpusError(
        f"cannot download {file.path}: {reason}. By hand: save {file.addresses[0]} as {path}, "
        f"or as {file.path} in a folder that EDGEWISE_DATA names"
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
    """Return the folder for downloads, which need not exist yet.

    Raises
    ------
    CorpusError
        If no variable names one.
    """
    if name := os.environ.get("EDGEWISE_CACHE"):
        return Path(name)
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute() and (os.environ.get("HOME") == "" or os.path.expanduser("~") == "~"):
        raise CorpusError("there is no home folder: name one for downloads in EDGEWISE_CACHE")
    return (base if base.is_absolute() else Path.home() / ".cache") / "edgewise"


def sha256_of(path: Path) -> str:
    """Return a file's checksum; unchanged files are not read again."""
    facts = path.stat()
    return _sha256_of(path, facts.st_size, facts.st_mtime_ns, facts.st_ino)


@lru_cache
def _sha256_of(path: Path, *version: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_digest(facts: object) -> str:
    """Return the sha256 of facts as JSON."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
