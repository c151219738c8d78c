"""Chapter 8: parallel text files and corpora."""

import gzip
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from attention_on_edges.data.corpora.archives import DAMAGE
from attention_on_edges.data.corpora.files import CorpusError, File

Pair = tuple[str, str]
"""A sentence and its translation."""


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
        Sentence pairs by split.
    terms : str
        Its licence and citation.
    files : tuple of File
        Its source files; none if it is rule-based.
    tokenised : mapping of str to list of Pair
        Lower-cased, tokenised versions of some splits, where published: references for BLEU.
    """

    name: str
    languages: tuple[str, str]
    splits: Mapping[str, list[Pair]]
    terms: str
    files: tuple[File, ...] = ()
    tokenised: Mapping[str, list[Pair]] = field(default_factory=dict)


def clean(line: str) -> str:
    """Normalise white space to single spaces, and strip the ends.

    Tabs, the no-break space U+00A0 and the narrow ones before French punctuation, U+202F and U+2009, are
    white space. Everything else is kept, soft hyphens and zero-width spaces included.
    """
    return " ".join(line.split())


def sentences(path: Path) -> Iterator[str]:
    r"""Iterate over the clean lines of a text file, compressed by gzip if its name ends in ``.gz``.

    Lines end in ``\n`` and nothing else.

    Raises
    ------
    CorpusError
        If a line is not UTF-8, or the file is truncated.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
            yield from map(clean, decoded(file, path))
    except DAMAGE as error:
        raise CorpusError(f"{path} is truncated or damaged ({error})") from None


def decoded(lines: Iterable[bytes], name: Path | str) -> Iterator[str]:
    """Decode lines; ``name`` is for error messages.

    Raises
    ------
    CorpusError
        If one is not UTF-8.
    """
    for number, line in enumerate(lines, 1):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorpusError(f"{name} is not UTF-8 in line {number} ({error})") from None


def pairs(source: Path, target: Path) -> Iterator[Pair]:
    """Iterate over the sentence pairs of two files of equally many lines, one line in memory at a time.

    Both are read to their ends once before the first pair comes.

    Raises
    ------
    CorpusError
        If they do not pair up or one cannot be read.
    """
    counts = [sum(1 for _ in sentences(path)) for path in (source, target)]
    if counts[0] != counts[1]:
        raise CorpusError(
            f"{source} and {target} do not pair up: they have {counts[0]:,} and {counts[1]:,} lines"
        )
    yield from zip(sentences(source), sentences(target), strict=True)
