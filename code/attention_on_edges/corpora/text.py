"""Chapter 8: parallel text files and corpora."""

import gzip
import re
import tarfile
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from attention_on_edges.corpora.files import File
from edgewise.validation import InputError

Pair = tuple[str, str]
"""A sentence and its translation."""


def check_alphabet(text: str, name: str = "text") -> None:
    """Raise ``InputError`` for what no corpus has, as in ``front_answers.js``: other alphabets, pictures."""
    strange = {
        c
        for c in text
        if (kind := unicodedata.category(c))[0] not in "MNPZC" and kind != "Sc"
        if c not in "+=<>~^|`¨©¬®¯°±´¸×÷™ªº" and "LATIN" not in unicodedata.name(c, "")  # noqa: RUF001
    }
    if strange:
        raise InputError(f"{name} has signs that the translator never saw: {' '.join(sorted(strange))}")


def listed(name: str, values: object, of: type | tuple[type, ...] = str) -> list[Any]:
    """Return a list of texts, or of what ``of`` says; one text alone would pass for a list of its letters.

    Raises
    ------
    TypeError
        If it is a text or no list, or something else is in it.
    """
    what = "texts" if of is str else "sequences"
    if isinstance(values, (str, bytes, AbstractSet)) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list of {what}, got {type(values).__name__}: {values!r:.40}")
    found = list(values)
    for number, each in enumerate(found):
        if not isinstance(each, of):
            raise TypeError(f"{name} must be a list of {what}; {name}[{number}] is {type(each).__name__}")
    return found


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs of two languages in named splits.

    Attributes
    ----------
    name : str
        Its name.
    languages : tuple of str
        Of source and target.
    splits : mapping of str to list of Pair
        Sentence pairs by split; of the largest corpus, those to train on are read from disk one by one.
    files : tuple of File
        Its source files; none if it is rule-based.
    tokenised : mapping of str to list of Pair
        Lower-cased, tokenised versions of some splits, where published: references for BLEU.
    """

    name: str
    languages: tuple[str, str]
    splits: Mapping[str, list[Pair]]
    files: tuple[File, ...] = ()
    tokenised: Mapping[str, list[Pair]] = field(default_factory=dict)


def clean(line: str) -> str:
    """Normalise white space to single spaces, and strip the ends.

    Tabs, the no-break space U+00A0 and the narrow ones before French punctuation, U+202F and U+2009, are
    white space. Everything else is kept, soft hyphens and zero-width spaces included.
    """
    return " ".join(line.split())


_AS_TRAINED = str.maketrans(
    dict.fromkeys("`\u00b4\u02b9\u02bb\u02bc\u2018\u2019\u201a\u201b\u2032\u2035\u2039\u203a\uff07", "'")
    | dict.fromkeys("\u00ab\u00bb\u201c\u201d\u201e\u201f\u2033\uff02", '"')
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | {"\u2026": "..."}
)


_IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
"""Unicode's default-ignorable code points that are in none of the two categories below."""


def as_trained(text: str) -> str:
    """Write what somebody typed as training text is written.

    White space of any kind becomes single spaces, and characters that nobody sees (control, zero-width, soft
    hyphens, variation selectors) are removed; the rest is in NFC, with the quotes and dashes of ASCII. Every
    text enters a translator through this, here and in ``engine.js``; training text does not.
    """
    seen = _IGNORABLE.sub("", clean(text))
    kept = "".join(c for c in seen if unicodedata.category(c) not in ("Cc", "Cf"))
    return clean(unicodedata.normalize("NFC", kept).translate(_AS_TRAINED))


def lines(path: Path, member: str = "") -> Iterator[str]:
    r"""Iterate over the lines of a text file, which end in ``\n`` and nothing else.

    Parameters
    ----------
    path : Path
        Text, compressed by gzip if its name ends in ``.gz``; or a zip or tar archive.
    member : str
        The name of the text in an archive, which is not unpacked.
    """
    if not member:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            yield from map(bytes.decode, file)
    elif path.suffix == ".zip":
        with ZipFile(path) as archive, archive.open(member) as file:
            yield from map(bytes.decode, file)
    else:
        with tarfile.open(path) as tar:
            yield from map(bytes.decode, tar.extractfile(member))  # type: ignore[arg-type]  # no directory


def pairs(source: Path, target: Path, *, members: tuple[str, str] = ("", "")) -> Iterator[Pair]:
    """Iterate over the clean sentence pairs of two texts, one line in memory at a time; see :func:`lines`."""
    sides = [map(clean, lines(path, member)) for path, member in zip((source, target), members, strict=True)]
    return zip(*sides, strict=True)
