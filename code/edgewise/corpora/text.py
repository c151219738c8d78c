"""Chapter 8: parallel text, line by line, and what a corpus made of it holds."""

import gzip
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgewise.corpora.archives import DAMAGE
from edgewise.corpora.files import CorpusError, File

Pair = tuple[str, str]
"""A sentence and its translation."""


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs of two languages in named splits.

    Attributes
    ----------
    name : str
        What it is called.
    languages : tuple of str
        Of source and target.
    splits : mapping of str to list of Pair
        Sentence pairs by split.
    terms : str
        What its makers allow, and how to cite it.
    files : tuple of File
        What it was read from; nothing if it was made by rule.
    tokenised : mapping of str to list of Pair
        Lower-cased, tokenised versions of some splits, where published: references for BLEU.
    """

    name: str
    languages: tuple[str, str]
    splits: Mapping[str, list[Pair]]
    terms: str
    files: tuple[File, ...] = ()
    tokenised: Mapping[str, list[Pair]] = field(default_factory=dict)

    @property
    def digests(self) -> dict[str, str]:
        """Checksums of its files by path, for the provenance of whatever is made from them."""
        return {file.path: file.sha256 for file in self.files}


def clean(line: str) -> str:
    """Turn white space of any kind and length into single spaces, and none at either end.

    Tabs, the no-break space U+00A0 and the narrow ones U+202F and U+2009, which stand before French
    punctuation, are white space. Everything else stays as it was published, soft hyphens and zero-width
    spaces included.
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
    """Decode lines; ``name`` says whose they are.

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
    """Iterate over the sentence pairs of two files of as many lines, a line in memory at a time.

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
