"""Around a command: one-line errors, Ctrl-C."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from attention_on_edges.training import DivergedError, Trainer
from attention_on_edges.training.checkpoint_files import CheckpointError
from edgewise.validation import InputError, MissingPackageError, UnknownNameError

EXPECTED = (CheckpointError, DivergedError, InputError, MissingPackageError, OSError)
"""Errors that are no faults of the program; any other keeps its traceback."""


def write(line: object, err: bool = False) -> None:
    """Write one line to standard output, now."""
    typer.echo(" ".join(str(line).splitlines()), err=err)


def tell(line: str) -> None:
    """Write one line to standard error."""
    write(line, err=True)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn an expected error into one line and exit code 1, or 2 for a name."""
    try:
        yield
    except BrokenPipeError:  # whoever read the output has enough; typer ends the program
        raise
    except EOFError as error:  # which typer would take for the end of what somebody types
        raise RuntimeError("a file ends too early") from error
    except EXPECTED as error:
        tell(f"error: {' '.join(str(error).split())}")
        raise typer.Exit(2 if isinstance(error, UnknownNameError) else 1) from None


@contextmanager
def stopping(trainer: Trainer) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM end the run after the current batch, and the second one the program.

    ``torchrun`` catches Ctrl-C itself and sends its processes SIGTERM, as schedulers and containers do.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        trainer.stop_requested = True
        tell("stopping after the current batch; press Ctrl-C again to stop at once")
        restore()

    def restore() -> None:
        for kind, handler in before.items():
            signal.signal(kind, handler)

    before = {kind: signal.signal(kind, stop) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        restore()
