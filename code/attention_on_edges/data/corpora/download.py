"""Local copies of a corpus's files: found, or downloaded from the first address that serves them.

Our own, because pooch resumes no download that broke off and keeps no second process from the same file, and
huggingface_hub knows one host.
"""

import http.client
import os
import re
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from attention_on_edges.data.corpora.files import (
    CorpusError,
    File,
    cache_folder,
    data_folder,
    locked,
    set_aside,
    sha256_of,
)
from edgewise.training.checkpoint_files import rename_durably

TRIES = 3
"""Tries without new bytes at one address before the next address is tried."""

PAUSE = 1.0
"""Seconds between tries at one address."""

TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as cut off."""

SLOWEST, PATIENCE = 1024.0, 60.0
"""An address that sends fewer bytes a second than this, over so many seconds, is given up."""

CHUNK = 1 << 16


class _CutOffError(Exception):
    """The connection ended early; another try can resume from there."""


class _RefusedError(Exception):
    """The address does not serve the file."""


def fetch(file: File) -> Path:
    """Return the path of a file, its checksum verified; download it if it is missing.

    A cached file with another checksum is set aside with a warning and downloaded again.

    Raises
    ------
    CorpusError
        If it cannot be downloaded (the message says how to provide it by hand), or the one in
        ``EDGEWISE_DATA`` has another checksum; that file is not changed.
    """
    folder = data_folder()
    if folder is not None and (given := folder / file.path).is_file():
        if (digest := sha256_of(given)) != file.sha256:
            raise CorpusError(
                f"{given} has sha256 {digest}, expected {file.sha256}; it is left as it is: "
                "replace it, or unset EDGEWISE_DATA"
            )
        return given
    path = cache_folder() / file.path
    if not _is_cached(file, path):
        with locked(path):
            if not _is_cached(file, path):  # another process may have downloaded it meanwhile
                if path.is_file():
                    aside = set_aside(path, path, sha256_of(path))
                    warnings.warn(f"{path} had another sha256: set aside as {aside.name}", stacklevel=2)
                download(file, path)
    return path


def _is_cached(file: File, path: Path) -> bool:
    return path.is_file() and sha256_of(path) == file.sha256


def download(file: File, path: Path) -> None:
    """Download a file, verify it and rename it.

    Until it is complete, the data are in ``path`` with ``.part`` appended, where a later call resumes. A file
    with another checksum is set aside.

    Parameters
    ----------
    file : File
        What to download.
    path : Path
        Its path, in an existing folder.

    Raises
    ------
    CorpusError
        If no address serves it, or the disk is full.
    """
    part = path.with_name(f"{path.name}.part")
    failures: list[str] = []
    if _is_cached(file, part):  # stopped between the last byte and the name
        return rename_durably(part, path)
    for address in file.addresses:
        try:
            if _download_from(address, file, path, part, failures):
                for failure in failures:
                    if "set aside" in failure:
                        warnings.warn(failure, stacklevel=3)
                return
        except OSError as error:
            raise CorpusError(f"cannot write {part}: {error}") from None
    kept = f"; {_size(part):,} bytes are kept, the next try goes on from there" if _size(part) else ""
    raise CorpusError(
        f"cannot download {file.path}: {'; '.join(failures)}{kept}. "
        f"By hand: save {file.addresses[0]} as {path}, or as {file.path} in a folder that EDGEWISE_DATA names"
    )


def _download_from(address: str, file: File, path: Path, part: Path, failures: list[str]) -> bool:
    """Try one address; record what goes wrong."""
    most = _size(part)
    fruitless = 0
    while fruitless < TRIES:
        resumed = _size(part) > 0
        try:
            _receive(address, file.path, part)
        except _RefusedError as error:
            failures.append(f"{address}: {error}")
            return False
        except _CutOffError as error:
            fruitless = 0 if _size(part) > most else fruitless + 1
            most = max(most, _size(part))
            reason = f"{address}: {error}"
            if fruitless:
                time.sleep(PAUSE)
            continue
        digest = sha256_of(part)
        if digest == file.sha256:
            rename_durably(part, path)
            return True
        aside = set_aside(part, path, digest)
        failures.append(f"{address}: sha256 is {digest}, expected {file.sha256}, set aside as {aside}")
        if not resumed:
            return False
        most = 0  # the partial file may be of another file: start over once
    failures.append(reason)
    return False


def _receive(address: str, name: str, part: Path) -> None:
    """Append the missing bytes to ``part``, or rewrite it if the server sends the whole file."""
    start = _size(part)
    headers = {"User-Agent": "edgewise", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with _open(urllib.request.Request(address, headers=headers), part) as response:
        start, total = _extent(response, start, part)
        bar = tqdm(total=total, initial=start, unit="B", unit_scale=True, desc=name, disable=None)
        with open(part, "r+b" if start else "wb") as sink, bar:
            sink.seek(start)
            for chunk in _chunks(response):
                sink.write(chunk)
                bar.update(len(chunk))
            sink.flush()
            os.fsync(sink.fileno())
    if total is not None and _size(part) < total:
        raise _CutOffError(f"cut off after {_size(part):,} of {total:,} bytes")


def _open(request: urllib.request.Request, part: Path) -> http.client.HTTPResponse:
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        reason = f"answered {error.code} {error.reason}"
        if error.code == 416:
            part.unlink(missing_ok=True)  # longer than the file, so not a prefix of it
        elif error.code < 500 and error.code != 429:
            raise _RefusedError(reason) from None
        raise _CutOffError(reason) from None
    except (OSError, http.client.HTTPException) as error:
        raise _CutOffError(f"no answer ({getattr(error, 'reason', error)})") from None


def _extent(response: http.client.HTTPResponse, start: int, part: Path) -> tuple[int, int | None]:
    """Return the first byte that the server sends, and the whole file's length if it says so."""
    length = response.headers.get("Content-Length")
    if response.status != 206:
        if length is not None and not re.fullmatch("[0-9]+", length):
            raise _RefusedError(f"sent the Content-Length {length[:40]!r}")
        return 0, int(length) if length else None
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if found is None or int(found[1]) != start:
        part.unlink(missing_ok=True)
        raise _CutOffError("sent another range than was asked for")
    return start, None if found[2] == "*" else int(found[2])


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Iterate over received bytes; network errors, unlike disk errors, count as a lost connection."""
    received, since = 0, time.monotonic()
    while True:
        try:
            chunk = response.read1(CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise _CutOffError(f"cut off ({error})") from None
        if not chunk:
            return
        yield chunk
        received += len(chunk)
        if (passed := time.monotonic() - since) > PATIENCE:
            if received < SLOWEST * passed:
                raise _RefusedError(f"sent only {received / passed:.0f} bytes a second")
            received, since = 0, time.monotonic()


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
