"""Around a command: one-line errors, Ctrl-C."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn
from unicodedata import category

import typer
from typer.core import TyperGroup

from attention_on_edges.training import DivergedError, Trainer
from attention_on_edges.training.checkpoint_files import CheckpointError
from edgewise.validation import InputError, MissingPackageError, UnknownNameError

EXPECTED = (CheckpointError, DivergedError, InputError, MissingPackageError, OSError)
"""Errors that are no faults of the program; any other keeps its traceback."""

shown = {"traceback": False}
"""Whether an error's traceback is shown."""

UsageError: Any = typer.BadParameter.__base__
"""Raised by click, or by the click that newer releases of typer vendor."""


class Commands(TyperGroup):
    """Commands whose usage errors are one line and exit code 2."""

    def main(self, *arguments: Any, **options: Any) -> NoReturn:
        """Run the command that the arguments name; end the program."""
        try:
            code = super().main(*arguments, **options | {"standalone_mode": False})
        except UsageError as error:
            # A group without a command has shown its help by now; that is the whole message.
            if type(error).__name__ != "NoArgsIsHelpError":
                where = f"; see {error.ctx.command_path} --help" if error.ctx else ""
                tell(f"error: {' '.join(error.format_message().split()).rstrip('.')}{where}")
            sys.exit(error.exit_code)
        except OSError as error:
            if shown["traceback"]:
                raise
            if not isinstance(error, BrokenPipeError):
                tell(f"error: {error}")
            sys.exit(1)
        except typer.Abort:
            sys.exit(1)
        sys.exit(code if isinstance(code, int) else 0)


def write(line: object, err: bool = False) -> None:
    """Write one line to standard output, now; what is no text, or would begin another line, as an escape.

    Terminals obey control characters, and readers of lines end them at U+2028.
    """
    hidden = "Cc", "Cf", "Cs", "Zl", "Zp"
    shown = (c.encode("unicode_escape").decode() if category(c) in hidden else c for c in str(line))
    typer.echo("".join(shown), err=err)


def tell(line: str) -> None:
    """Write one line to standard error."""
    write(line, err=True)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn an expected error into one line and exit code 1, or 2 for a name."""
    try:
        yield
    except BrokenPipeError:  # whoever read the output has enough
        sys.stdout = None
        raise typer.Exit(1) from None
    except EXPECTED as error:
        if shown["traceback"]:
            raise
        tell(f"error: {' '.join(str(error).split())}")
        raise typer.Exit(2 if isinstance(error, UnknownNameError) else 1) from None


@contextmanager
def stopping(trainer: Trainer) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM end the run after the current batch, and the second one the program.

    ``torchrun`` catches Ctrl-C itself and sends its processes SIGTERM, as schedulers and containers do.
    """
    kinds = signal.SIGINT, signal.SIGTERM

    def stop(number: int, frame: FrameType | None) -> None:
        trainer.stop_requested = True
        tell("stopping after the current batch; press Ctrl-C again to stop at once")
        restore()

    def restore() -> None:
        for kind, handler in before.items():
            signal.signal(kind, handler)

    before = {kind: signal.signal(kind, stop) for kind in kinds}
    try:
        yield
    finally:
        restore()
