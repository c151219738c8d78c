"""Pairs of token ids on disk, read on demand.

A cache is a folder of ``ids.bin`` (all sentences packed, source and target in turn), ``starts.bin`` (int64:
the start of each, and the end of the last) and ``facts.json``: the ids' provenance and the checksums of both
files. The two are plain arrays that ``numpy.memmap`` could open; but mapped pages count as the process's
memory, and the system may map far more than is touched: a hundred random pairs could take hundreds of
megabytes.
"""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from struct import unpack
from typing import Any, BinaryIO

import numpy as np

from attention_on_edges.data.corpora.files import locked
from edgewise.training.checkpoint_files import difference, rename_durably, write_atomically

FORMAT = 1

FILES = ("ids.bin", "starts.bin")

IdPair = tuple[Sequence[int], Sequence[int]]


class CacheError(Exception):
    """A cache is missing, damaged or has another provenance; the message says which."""


class TokenCache:
    """Pairs of id sequences in a folder.

    Parameters
    ----------
    folder : Path
        Written by :func:`write_cache`.
    facts : mapping
        Its expected provenance.

    Raises
    ------
    CacheError
        If it cannot be used; the message says why.
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any]):
        self.folder = folder
        try:
            found = json.loads((folder / "facts.json").read_text("utf-8"))
            recorded, sums, kind = found["made"], dict(found["sha256"]), np.dtype(found["dtype"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CacheError(f"{folder} holds no cache ({type(error).__name__})") from None
        if recorded != (ours := _made(facts)):
            raise CacheError(f"{folder} is another cache: {difference(recorded, ours)}")
        self.facts, self._kind = dict(facts), kind
        self._ids, self._starts = (_opened(folder / name, sums.get(name)) for name in FILES)
        self._pairs = os.fstat(self._starts.fileno()).st_size // 16

    def __reduce__(self) -> tuple[Any, ...]:
        """Open the same files again in another process."""
        return TokenCache, (self.folder, self.facts)

    def __len__(self) -> int:
        """Pairs."""
        return self._pairs

    def lengths(self) -> np.ndarray:
        """Return the number of ids of each target, int32 [pairs]."""
        found = np.empty(len(self), np.int32)
        for first in range(0, len(self), step := 1 << 20):
            part = np.frombuffer(os.pread(self._starts.fileno(), 16 * step + 8, 16 * first), "<i8")
            found[first : first + step] = part[2::2] - part[1::2]
        return found

    def target_lengths(self, numbers: np.ndarray) -> list[int]:
        """Return the number of ids of some pairs' targets without reading them."""
        places = (unpack("<2q", os.pread(self._starts.fileno(), 16, 16 * n + 8)) for n in numbers.tolist())
        return [end - middle for middle, end in places]

    def take(self, numbers: np.ndarray) -> tuple[np.ndarray, list[int], np.ndarray, list[int]]:
        """Return the packed sources of some pairs, int64, and their lengths; then the same of the targets."""
        sources, targets, src_lengths, tgt_lengths = [], [], [], []
        ids, starts, size = self._ids.fileno(), self._starts.fileno(), self._kind.itemsize
        for number in numbers.tolist():
            start, middle, end = unpack("<3q", os.pread(starts, 24, 16 * number))
            both = os.pread(ids, (end - start) * size, start * size)
            sources.append(both[: (middle - start) * size])
            targets.append(both[(middle - start) * size :])
            src_lengths.append(middle - start)
            tgt_lengths.append(end - middle)
        source, target = (
            np.frombuffer(b"".join(side), self._kind).astype(np.int64) for side in (sources, targets)
        )
        return source, src_lengths, target, tgt_lengths


def write_cache(folder: Path, pairs: Iterable[IdPair], facts: Mapping[str, Any], vocab_size: int) -> None:
    """Write pairs into a temporary folder, in bounded memory, then rename it.

    Parameters
    ----------
    folder : Path
        Replaced if it exists.
    pairs : iterable of pairs of sequences of int
        Consumed once.
    facts : mapping
        Their provenance, JSON.
    vocab_size : int
        Ids are below it.
    """
    fresh = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    kind = np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)
    end = 0
    with open(fresh / FILES[0], "wb") as ids, open(fresh / FILES[1], "wb") as starts:
        for pair in pairs:
            for side in pair:
                starts.write(end.to_bytes(8, "little"))
                ids.write(np.asarray(side, kind).tobytes())
                end += len(side)
        starts.write(end.to_bytes(8, "little"))
        for file in (ids, starts):
            file.flush()
            os.fsync(file.fileno())
    seal_cache(fresh, facts, kind)
    shutil.rmtree(folder, ignore_errors=True)
    rename_durably(fresh, folder)


def seal_cache(folder: Path, facts: Mapping[str, Any], kind: np.dtype) -> None:
    """Record a cache's provenance and the checksums of its files."""
    sums = {name: _sha256(folder / name) for name in FILES}
    found = {"made": _made(facts), "dtype": np.dtype(kind).name, "sha256": sums}
    write_atomically(folder / "facts.json", (json.dumps(found, indent=1) + "\n").encode())


def cached(
    folder: Path,
    facts: Mapping[str, Any],
    make: Callable[[], Iterable[IdPair]],
    vocab_size: int,
    say: Callable[[str], None] = lambda line: None,
) -> TokenCache:
    """Return the cache in a folder; build it if there is none, or if it cannot be used.

    One of several processes builds it while the others wait; each announces this through ``say`` beforehand.
    An intact cache is only read, so that its folder may be read-only.
    """
    try:
        return TokenCache(folder, facts)
    except CacheError:
        say(f"splitting the training text, once; its ids are kept in {folder}")
    with locked(folder):
        try:
            return TokenCache(folder, facts)
        except CacheError as error:
            if folder.exists():
                warnings.warn(f"{error}; it is made anew", stacklevel=2)
        write_cache(folder, make(), facts, vocab_size)
        return TokenCache(folder, facts)


def _opened(path: Path, sha256: str | None) -> BinaryIO:
    """Open a file and verify its checksum; the open file is what is read, even if it is replaced later."""
    file = open(path, "rb") if path.is_file() else None  # noqa: SIM115 (the cache keeps it open)
    if file is None or hashlib.file_digest(file, "sha256").hexdigest() != sha256:
        if file is not None:
            file.close()
        raise CacheError(f"{path} is missing or damaged: its checksum is not that recorded")
    return file


def _made(facts: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps({"format": FORMAT, **facts}))


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
