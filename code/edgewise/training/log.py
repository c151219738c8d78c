"""The log of a training run: a line of JSON for each batch and each epoch."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

from edgewise.training.checkpoint_files import naming
from edgewise.validation import InputError


class Log:
    """A file of lines, which a resumed run cuts back to what its checkpoint knows.

    Parameters
    ----------
    path : Path
        The file.

    Attributes
    ----------
    end : int
        Its length in bytes.
    """

    def __init__(self, path: Path):
        self.path, self.end = path, 0

    def open(self, end: int) -> None:
        """Keep the whole lines of the first ``end`` bytes; warn if there were more lines.

        Raises
        ------
        InputError
            If there is something else than a file.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and not self.path.is_file():
            raise InputError(f"{self.path} is no regular file")
        with naming(self.path):
            written = b""
            if self.path.exists():
                with open(self.path, "rb") as file:
                    written = file.read(end)
            self.end = written.rfind(b"\n") + 1
            if self.end < end:
                lost = f"the last {end - self.end:,} bytes that were written to it"
                warnings.warn(f"{self.path} lacks {lost}", stacklevel=4)
            with open(self.path, "ab") as file:
                file.truncate(self.end)

    def write(self, **facts: Any) -> None:
        """Append a line."""
        with naming(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")
            file.flush()
            self.end = file.tell()

    def flush(self) -> None:
        """Flush what was written to the disk."""
        with naming(self.path), open(self.path, "ab") as file:
            os.fsync(file.fileno())
