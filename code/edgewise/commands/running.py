"""Around a command: errors of one line, one process a folder, Ctrl-C."""

import fcntl
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import typer

from edgewise.checkpoints import CheckpointError
from edgewise.trainer import DivergedError, Run

EXPECTED = (CheckpointError, DivergedError, OSError, ValueError)
"""What can go wrong without a fault in the code."""

shown = {"traceback": False}
"""Whether an error's traceback is shown."""


@contextmanager
def one_line_errors(speaks: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Turn an expected error into one line, if this process ``speaks``, and exit code 1."""
    try:
        yield
    except EXPECTED as error:
        if shown["traceback"]:
            raise
        if speaks():
            typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(1) from None


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep a second process out of a run's folder; the system lifts the lock with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"another process trains in {folder}; wait for it or name another folder"
            ) from None
        yield


@contextmanager
def stopping(run: Run) -> Iterator[None]:
    """Let the first Ctrl-C end the batch at hand, and the second one the program.

    ``torchrun`` catches Ctrl-C itself and sends its processes SIGTERM, which counts as one there.
    """
    kinds = [signal.SIGINT, *([signal.SIGTERM] if run.team.size > 1 else [])]

    def stop(number: int, frame: FrameType | None) -> None:
        run.stop_requested = True
        if number == signal.SIGINT:
            typer.echo("stopping after the work at hand; once more to stop at once", err=True)
        restore()

    def restore() -> None:
        for kind, handler in before.items():
            signal.signal(kind, handler)

    before = {kind: signal.signal(kind, stop) for kind in kinds}
    try:
        yield
    finally:
        restore()
