"""What becomes of text that strangers type: loops, names and numbers."""

import json
import re
from collections.abc import Sequence
from importlib import resources
from itertools import groupby
from typing import Any, NamedTuple

from attention_on_edges.runs.translator import Translation, Translator

MOST_IN_A_ROW = 3


class OddInputs(NamedTuple):
    """Texts of one kind, and for each the names or numbers that a translation should keep, if any."""

    kind: str
    texts: list[str]
    keep: list[list[str]] | None = None


class OddRow(NamedTuple):
    """What became of one kind of odd inputs.

    Attributes
    ----------
    kind : str
        Which.
    texts : int
        How many.
    loops : int
        Translations in which a piece stands four times in a row, or more often.
    kept, to_keep : int
        Names and numbers in the translations, and in the texts.
    """

    kind: str
    texts: int
    loops: int
    kept: int
    to_keep: int


def odd_inputs() -> list[OddInputs]:
    """Return the committed set."""
    file = resources.files("attention_on_edges.studies") / "odd_inputs.json"
    return [OddInputs(**one) for one in json.loads(file.read_text("utf-8"))]


def measure_odd_inputs(translator: Translator, beam: int = 5, **options: Any) -> list[OddRow]:
    """Translate the committed set, and count what goes wrong, by kind; options are the translator's."""
    rows = []
    for given in odd_inputs():
        found = [best for best, *_ in translator(given.texts, beam, **options)]
        keep = given.keep or []
        loops = sum(longest_run(one.pieces) > MOST_IN_A_ROW for one in found)
        there = sum(map(kept, keep, found))
        rows.append(OddRow(given.kind, len(found), loops, there, sum(map(len, keep))))
    return rows


def kept(words: Sequence[str], translation: Translation) -> int:
    """Count the words that a translation has, in any case of letters."""
    there = re.findall(r"\w+", translation.text.lower())
    return sum(word.lower() in there for word in words)


def longest_run(pieces: Sequence[str]) -> int:
    """Return the most times that a piece stands in a row."""
    return max((len(list(run)) for _, run in groupby(pieces)), default=0)
