"""What becomes of text that strangers type: loops, names and numbers."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from statistics import median
from typing import Any

from attention_on_edges.experiments.translator import Translation, Translator

MOST_IN_A_ROW = 3


@dataclass(frozen=True)
class OddInputs:
    """Texts of one kind, and for each the names or numbers that a translation should keep, if any."""

    kind: str
    texts: list[str]
    keep: list[list[str]] | None = None


@dataclass(frozen=True)
class OddRow:
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
    unlikeness : float or None
        Median over the texts; None if the translator does not know its training text.
    """

    kind: str
    texts: int
    loops: int
    kept: int
    to_keep: int
    unlikeness: float | None


@cache
def odd_inputs() -> list[OddInputs]:
    """Return the committed set."""
    file = resources.files("attention_on_edges.data") / "odd_inputs.json"
    return [OddInputs(**kind) for kind in json.loads(file.read_text("utf-8"))]


def measure_odd_inputs(translator: Translator, beam: int = 5, **options: Any) -> list[OddRow]:
    """Translate the committed set, and count what goes wrong, by kind; options are the translator's."""
    rows = []
    for given in odd_inputs():
        found = [best for best, *_ in translator(given.texts, beam, **options)]
        keep = given.keep or [[] for _ in given.texts]
        pairs = list(zip(keep, found, strict=True))
        known = [one.unlikeness for one in found if one.unlikeness is not None]
        rows.append(
            OddRow(
                given.kind,
                len(found),
                sum(longest_run(one.pieces) > MOST_IN_A_ROW for one in found),
                sum(kept(words, one) for words, one in pairs),
                sum(map(len, keep)),
                median(known) if known else None,
            )
        )
    return rows


def kept(words: Sequence[str], translation: Translation) -> int:
    """Count the words that a translation has, in any case of letters."""
    there = re.findall(r"\w+", translation.text.lower())
    return sum(word.lower() in there for word in words)


def longest_run(pieces: Sequence[str]) -> int:
    """Return the most times that a piece stands in a row."""
    longest = run = 0
    for before, piece in zip([None, *pieces], pieces, strict=False):
        run = run + 1 if piece == before else 1
        longest = max(longest, run)
    return longest
