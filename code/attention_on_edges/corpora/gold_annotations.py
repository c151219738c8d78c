"""Chapter 9: gold annotations: word alignments and dependency parses."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from attention_on_edges.corpora.files import File, fetch, github_file
from attention_on_edges.corpora.text import lines
from edgewise.validation import check_choice


def _hansards(name: str, sha256: str) -> File:
    return github_file(f"hansards/{name}", sha256, "neulab/awesome-align", "master", f"examples/{name}")


HANSARDS_TEXT = _hansards("enfr.src-tgt", "19d56c3de3634ab8420d553df4d9dfd849502b18225f1599382e98a6de9cfc72")
HANSARDS_GOLD = _hansards("enfr.gold", "0a11b51cba8a92a7608fb00884cb3cf50fe0fcc4e4aa92d70624fd11451c4ddd")


def _ewt(name: str, sha256: str) -> File:
    commit = "15d613d8447b3478787d4c278730a1e48a945efb"
    return github_file(f"ud_english_ewt/{name}", sha256, "UniversalDependencies/UD_English-EWT", commit, name)


EWT = {
    "train": _ewt(
        "en_ewt-ud-train.conllu", "3fb78e2b55482c8ee00caa653af436c88c9e5bc9a73ce26e4ae3ddc79d2b7e7b"
    ),
    "valid": _ewt("en_ewt-ud-dev.conllu", "531a54ff90d6ab12201c5a50c3e78e6ddac4de69abc4bce5d275d3cd29efe2b6"),
    "test": _ewt("en_ewt-ud-test.conllu", "e266e515a0a7547657ed3d90d9ba46487d6bd251f27ad4269d4e8a427c8555cd"),
}
"""Universal Dependencies English EWT, CC BY-SA 4.0."""

Link = tuple[int, int]
"""Places of a source word and of a target word, counted from 0."""


@dataclass(frozen=True)
class AlignedPair:
    """A sentence pair with a gold word alignment.

    Attributes
    ----------
    source, target : tuple of str
        Words.
    sure, possible : frozenset of Link
        Links that must be found and links that may be; the sure ones are possible too.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True)
class Parse:
    """A dependency parse.

    Attributes
    ----------
    words : tuple of str
        Its words.
    heads : tuple of int
        The place of each word's head, from 0; -1 for the root.
    relations : tuple of str
        Each word's relation to its head.
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]


def hansards() -> list[AlignedPair]:
    """Return 447 English-French sentence pairs of the Canadian parliament with gold word alignment.

    Source: the shared task of Mihalcea and Pedersen (2003), annotated by Och and Ney (2000).

    Raises
    ------
    CorpusError
        If a file cannot be had.
    """
    texts, gold = (lines(fetch(file)) for file in (HANSARDS_TEXT, HANSARDS_GOLD))
    return [aligned(*row) for row in zip(texts, gold, strict=True)]


def aligned(text: str, links: str) -> AlignedPair:
    """Read ``source ||| target`` and its links, counted from 1: ``2-3`` is sure, ``2p3`` is possible."""
    source, target = (tuple(side.split()) for side in text.split("|||"))
    kinds: dict[str, set[Link]] = {"-": set(), "p": set()}
    for link in links.split():
        kind = "-" if "-" in link else "p"
        i, j = link.split(kind)
        kinds[kind].add((int(i) - 1, int(j) - 1))
    return AlignedPair(source, target, frozenset(kinds["-"]), frozenset(kinds["-"] | kinds["p"]))


def treebank(split: str = "test") -> list[Parse]:
    """Return a split of English EWT: 12,544 sentences to train on, 2,001 to validate, 2,077 to test.

    Raises
    ------
    CorpusError
        If the file cannot be had.
    ValueError
        If there is no such split.
    """
    check_choice("split", split, EWT)
    return list(parses(lines(fetch(EWT[split]))))


def parses(lines: Iterable[str]) -> Iterator[Parse]:
    """Read sentences in the CoNLL-U format; words contracted in writing, and empty nodes, are left out."""
    rows: list[tuple[str, int, str]] = []
    for line in lines:
        fields = line.rstrip("\n").split("\t")
        if fields == [""]:
            yield Parse(*zip(*rows, strict=True))
            rows = []
        elif fields[0].isdigit():
            rows.append((fields[1], int(fields[6]) - 1, fields[7]))
