"""Members of a corpus's zip or tar archives.

:func:`~attention_on_edges.data.corpora.download.fetch` has compared an archive with its checksum, so that it
holds what its makers packed; only the members that are asked for are unpacked, under the names asked for.
"""

import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from gzip import BadGzipFile
from pathlib import Path
from typing import IO

from attention_on_edges.data.corpora.download import fetch
from attention_on_edges.data.corpora.files import CorpusError, File, cache_folder, locked
from edgewise.training.checkpoint_files import rename_durably

DAMAGE = (EOFError, zlib.error, BadGzipFile, tarfile.TarError, zipfile.BadZipFile)


def read_member(archive: Path, name: str) -> bytes:
    """Return the contents of one member.

    Raises
    ------
    CorpusError
        If the archive is damaged, or has no such member.
    """
    with _opened(archive) as member, member(name) as stream:
        return stream.read()


def unpacked(file: File, names: Collection[str]) -> list[Path]:
    """Return where members of a corpus's archive lie in the cache, unpacked at the first call.

    Raises
    ------
    CorpusError
        If the archive cannot be had, is damaged, or lacks one of ``names``.
    """
    folder = cache_folder() / "unpacked" / file.sha256[:16]
    paths = [folder / name for name in names]
    if not all(path.is_file() for path in paths):
        archive = fetch(file)
        with locked(folder):
            if not all(path.is_file() for path in paths):
                _unpack(archive, folder, names)
    return paths


def _unpack(archive: Path, folder: Path, names: Collection[str]) -> None:
    """Unpack members beside the folder, then rename: it never holds half a file."""
    fresh = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        with _opened(archive) as member:
            for name in names:
                (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                with member(name) as stream, open(fresh / name, "xb") as copy:
                    shutil.copyfileobj(stream, copy, 1 << 20)
                    os.fsync(copy.fileno())
        shutil.rmtree(folder, ignore_errors=True)
        rename_durably(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextmanager
def _opened(archive: Path) -> Iterator[Callable[[str], IO[bytes]]]:
    """Open an archive; yield a function that opens a member."""

    def member(name: str) -> IO[bytes]:
        if name not in names:
            raise CorpusError(f"{archive} has no member {name!r}; it has {', '.join(names) or 'none'}")
        return zipped.open(name) if zipped else packed.extractfile(name)

    zipped = packed = None
    try:
        if zipfile.is_zipfile(archive):
            zipped = zipfile.ZipFile(archive)
            names = [info.filename for info in zipped.infolist() if not info.is_dir()]
        else:
            packed = tarfile.open(archive)  # noqa: SIM115 (closed below)
            names = [info.name for info in packed if info.isreg()]
        yield member
    except DAMAGE as error:
        raise CorpusError(f"{archive} is truncated or damaged ({error})") from None
    finally:
        for opened in (zipped, packed):
            if opened is not None:
                opened.close()
