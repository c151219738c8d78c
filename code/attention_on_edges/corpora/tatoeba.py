"""Chapter 8: Tatoeba, short English sentences with their French translations, as the lab uses them.

CC BY 2.0 France; sentences from tatoeba.org, pairs from www.manythings.org/anki.
"""

import hashlib
from collections.abc import Iterable

from attention_on_edges.corpora.files import File, fetch
from attention_on_edges.corpora.text import Corpus, Pair, clean, lines

ARCHIVE = File(
    "tatoeba/fra-eng.zip",
    "161c93f18da3a7e6df611ed961426613260de8af06ccf8c79c977afe5135ac44",
    ("https://raw.githubusercontent.com/modelexlab/data/gh-pages/fra-eng.zip",),
)
"""The version of 2019. The one at https://www.manythings.org/anki/fra-eng.zip changes."""

MEMBER = "fra-eng/fra.txt"


def load() -> Corpus:
    """Return Tatoeba's pairs, split by English sentence and shuffled.

    All translations of an English sentence go into one split, together with those of sentences that differ
    only in capitals or punctuation, so that no source is in two splits. The split depends on the sentence,
    not on the order of the file. Of its 167,130 lines, 151 differ from others only in white space
    and count once.

    Raises
    ------
    CorpusError
        If the file cannot be had.
    """
    found = (map(clean, line.split("\t")) for line in lines(fetch(ARCHIVE), MEMBER))
    splits = split_by_source(((en, fr) for en, fr in found), {"valid": 2000, "test": 2000})
    return Corpus("tatoeba", ("en", "fr"), splits, (ARCHIVE,))


def split_by_source(pairs: Iterable[Pair], sizes: dict[str, int], seed: int = 0) -> dict[str, list[Pair]]:
    """Split pairs so that no source is in two splits, each in an order of its own.

    Parameters
    ----------
    pairs : iterable of Pair
        Pairs that occur twice count once.
    sizes : dict of str to int
        Distinct sources of each split but ``train``, which takes all others.
    seed : int
        For the split.

    Raises
    ------
    ValueError
        If no source is left to train on.
    """
    groups: dict[str, list[Pair]] = {}
    for pair in dict.fromkeys(pairs):
        groups.setdefault(source_key(pair[0]), []).append(pair)
    order = sorted(groups, key=lambda key: _lot(seed, key))
    if sum(sizes.values()) >= len(order):
        raise ValueError(f"{sizes} leave none of {len(order)} sources to train on")
    splits, first = dict[str, list[Pair]](train=[]), 0
    for name, size in sizes.items():
        splits[name] = [pair for key in order[first : first + size] for pair in groups[key]]
        first += size
    splits["train"] = [pair for key in order[first:] for pair in groups[key]]
    return {name: sorted(split, key=lambda p: _lot(seed, *p)) for name, split in splits.items()}


def source_key(sentence: str) -> str:
    """Return a key that ignores capitals, punctuation and white space."""
    kept = "".join(c if c.isalnum() else " " for c in sentence.casefold().replace("'", ""))
    return clean(kept) or sentence


def _lot(seed: int, *texts: str) -> bytes:
    """Hash a text to a random order that is the same on every machine."""
    return hashlib.sha256("\t".join((str(seed), *texts)).encode()).digest()
