"""``python -m attention_on_edges translate``: a line out for each line in."""

import sys
from collections.abc import Iterable
from itertools import islice
from typing import Annotated

import typer

from attention_on_edges import runs
from attention_on_edges.cli.one_line_errors import one_line_errors, tell, write
from attention_on_edges.corpora.text import check_alphabet
from attention_on_edges.runs import artifacts
from attention_on_edges.runs.translator import Translator
from edgewise.validation import InputError

TOGETHER = 100
"""Lines read before they are translated; one, where somebody types them."""

MOST_HYPOTHESES = 64
"""Largest beam."""


def translate(
    texts: Annotated[
        list[str] | None, typer.Argument(help="What to translate; lines of input if none.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="An experiment on text, or the path of an artifact's folder.")
    ] = "multi30k",
    beam: Annotated[int, typer.Option(min=1, max=MOST_HYPOTHESES, help="Hypotheses kept for each text.")] = 5,
) -> None:
    """Translate with a committed model; needs no corpus and no network.

    A text that cannot be translated gets an empty line and an error; the others are translated, and the exit
    code is 1.
    """
    with one_line_errors():
        translator = runs.load_translator(artifacts.load(model))
        if not texts and sys.stdin is None:
            raise InputError("standard input is closed: give texts as arguments")
        lines: Iterable[str | bytes] = texts or sys.stdin.buffer
        together = 1 if not texts and sys.stdin.isatty() else TOGETHER
        numbered = enumerate(lines, 1)
        failed = False
        while part := list(islice(numbered, together)):
            for found in _translated(translator, part, beam):
                failed |= found is None
                write("" if found is None else found)
        if failed:
            raise typer.Exit(1)


def _translated(
    translator: Translator, texts: Iterable[tuple[int, str | bytes]], beam: int
) -> list[str | None]:
    """Translate numbered texts; report those that cannot be, which get ``None``."""
    readable: dict[int, str] = {}
    numbers = []
    for number, line in texts:
        numbers.append(number)
        try:
            text = _decoded(line, number)
            check_alphabet(text, f"text {number}")
            translator.encode(text, f"text {number}")
            readable[number] = text
        except InputError as error:
            tell(f"error: {error}")
    found = (each.text for each in translator(list(readable.values()), beam=beam))
    translated = dict(zip(readable, found, strict=True))
    return [translated.get(number) for number in numbers]


def _decoded(line: str | bytes, number: int) -> str:
    if isinstance(line, str):
        return line
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"text {number} is not UTF-8 ({error})") from None
