"""Safe extraction of zip and tar archives: nothing is written outside the folder, and sizes are limited.

An archive with absolute paths, ``..``, links, devices or a name that occurs twice is refused as a whole;
folders and macOS metadata are skipped.
"""

import gzip
import io
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from attention_on_edges.data.corpora.download import fetch
from attention_on_edges.data.corpora.files import CorpusError, File, cache_folder, locked
from edgewise.training.checkpoint_files import rename_durably

LIMIT = 1 << 28
"""Most bytes that an archive may unpack to, by default."""

CHUNK = 1 << 20

DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile, NotImplementedError)


class _Limited(io.RawIOBase):
    """A stream that raises an error past a size limit, before the disk is full."""

    def __init__(self, stream: IO[bytes], limit: int):
        self.stream, self.limit, self.left = stream, limit, limit

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(min(size, CHUNK) if size >= 0 else CHUNK)
        self.left -= len(data)
        if self.left < 0:
            raise CorpusError(f"unpacks to more than {self.limit:,} bytes")
        return data


def read_member(archive: Path, name: str, limit: int = LIMIT) -> bytes:
    """Return the contents of one member.

    Raises
    ------
    CorpusError
        If the archive is damaged or refused, or has no such member.
    """
    with _refusing(archive):
        contents, others = None, []
        for member, chunks in _members(archive, limit):
            others.append(member)
            if member == name:
                contents = b"".join(chunks)
        if contents is None:
            raise CorpusError(f"has no member {name!r}; it has {', '.join(others) or 'none'}")
    return contents


def unpack(archive: Path, folder: Path, names: Collection[str] | None = None, limit: int = LIMIT) -> None:
    """Unpack an archive, or some of its members, into a folder, atomically.

    Parameters
    ----------
    archive : Path
        A zip file or a tar file, compressed by gzip or not.
    folder : Path
        Created; an existing one is replaced.
    names : collection of str, optional
        Members to unpack; all if not given.
    limit : int
        Most bytes that the whole archive may unpack to.

    Raises
    ------
    CorpusError
        If the archive is damaged or refused, or lacks one of ``names``.
    """
    fresh = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        with _refusing(archive):
            found = set()
            for name, chunks in _members(archive, limit):
                if names is None or name in names:
                    found.add(name)
                    _write(fresh / name, chunks)
            if missing := sorted(set(names or ()) - found):
                raise CorpusError(f"has no member {', '.join(map(repr, missing))}")
        shutil.rmtree(folder, ignore_errors=True)
        rename_durably(fresh, folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def unpacked(file: File, names: Collection[str], limit: int = LIMIT) -> list[Path]:
    """Return where members of a corpus's archive lie in the cache, unpacked at the first call.

    Raises
    ------
    CorpusError
        If the archive cannot be had or is refused.
    """
    folder = cache_folder() / "unpacked" / file.sha256[:16]
    paths = [folder / name for name in names]
    if not all(path.is_file() for path in paths):
        archive = fetch(file)
        with locked(folder):
            if not all(path.is_file() for path in paths):
                unpack(archive, folder, names, limit)
    return paths


@contextmanager
def _refusing(archive: Path) -> Iterator[None]:
    """Add the archive's name to errors in its contents."""
    try:
        yield
    except CorpusError as error:
        raise CorpusError(f"{archive} {error}") from None
    except DAMAGE as error:
        raise CorpusError(f"{archive} is truncated or damaged ({error})") from None


def _members(archive: Path, limit: int) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Iterate over names and contents of regular files; each must be read before the next is requested."""
    seen: set[str] = set()
    walk = _zip_members if zipfile.is_zipfile(archive) else _tar_members
    for path, kind, stream in walk(archive, limit):
        name = _checked(path, kind)
        if kind == "folder" or _is_litter(name):
            continue
        if name in seen:
            raise CorpusError(f"is refused: it holds {name!r} twice")
        seen.add(name)
        yield name, iter(lambda stream=stream: stream.read(CHUNK), b"")


def _zip_members(archive: Path, limit: int) -> Iterator[tuple[str, str, IO[bytes] | None]]:
    with zipfile.ZipFile(archive) as zipped:
        kinds = [_zip_kind(info) for info in zipped.infolist()]
        for info, kind in zip(zipped.infolist(), kinds, strict=True):
            _checked(info.filename, kind)  # all of them before any is unpacked
        left = limit
        for info, kind in zip(zipped.infolist(), kinds, strict=True):
            if kind == "folder":
                yield info.filename, kind, None
                continue
            if info.flag_bits & 1:
                raise CorpusError(f"is refused: {info.filename!r} is encrypted")
            with zipped.open(info) as stream:
                limited = _Limited(stream, limit)
                limited.left = left
                yield info.filename, kind, limited
                left = limited.left


def _zip_kind(info: zipfile.ZipInfo) -> str:
    mode = info.external_attr >> 16
    if info.is_dir():
        return "folder"
    return "file" if stat.S_IFMT(mode) in (0, stat.S_IFREG) else "other"


def _tar_members(archive: Path, limit: int) -> Iterator[tuple[str, str, IO[bytes] | None]]:
    with open(archive, "rb") as raw:
        compressed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        plain = gzip.GzipFile(fileobj=raw) if compressed else raw
        limited = _Limited(plain, limit)
        with tarfile.open(fileobj=limited, mode="r|") as tar:
            for info in tar:
                kind = (
                    "folder" if info.isdir() else "file" if info.isreg() and not info.issparse() else "other"
                )
                yield info.name, kind, tar.extractfile(info) if kind == "file" else None
        while limited.read(CHUNK):
            pass  # gzip's own checksum is at the end


def _checked(path: str, kind: str) -> str:
    """Return a member's path without ``./``, if it is safe."""
    if kind == "other":
        raise CorpusError(f"is refused: its member {path!r} is no regular file")
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
    absolute = path.startswith(("/", "\\")) or path[1:2] == ":"
    if absolute or ".." in parts or not path.isprintable() or not (parts or kind == "folder"):
        raise CorpusError(f"is refused: its member {path!r} would not stay in its folder")
    return "/".join(parts)


def _is_litter(name: str) -> bool:
    parts = name.split("/")
    return "__MACOSX" in parts or parts[-1].startswith("._") or parts[-1] == ".DS_Store"


def _write(path: Path, chunks: Iterator[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "xb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
