"""Chapter 12: WMT14 English-German, from the published parts.

For research. Bojar et al.: Findings of the 2014 Workshop on Statistical Machine Translation (2014).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from attention_on_edges.corpora.files import File, fetch, github_file
from attention_on_edges.corpora.text import Corpus, Pair, pairs

SIDES = ("en", "de")


@dataclass(frozen=True)
class Part:
    """A pair of files in one archive.

    Attributes
    ----------
    archive : File
        What to download.
    members : tuple of str
        English and German text in it.
    """

    archive: File
    members: tuple[str, str]

    def __iter__(self) -> Iterator[Pair]:
        """Iterate over its pairs, one line in memory at a time."""
        archive = fetch(self.archive)
        return pairs(archive, archive, members=self.members)


def _part(address: str, sha256: str, member: str) -> Part:
    addresses = tuple(f"{scheme}://{address}" for scheme in ("https", "http"))
    archive = File(f"wmt14/{address.rsplit('/', 1)[-1]}", sha256, addresses)
    return Part(archive, (member + SIDES[0], member + SIDES[1]))


TRAINING = (
    _part(
        "www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
        "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
        "training/europarl-v7.de-en.",
    ),
    _part(
        "www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
        "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
        "commoncrawl.de-en.",
    ),
    _part(
        "www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
        "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
        "training/news-commentary-v9.de-en.",
    ),
)
"""All 4.5 million pairs: cased, not tokenised. Checksums are those that TensorFlow Datasets records."""

NEWSTEST2013 = _part(
    "data.statmt.org/wmt19/translation-task/dev.tgz",
    "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7",
    "dev/newstest2013.",
)
"""The usual validation set: cased, not tokenised."""

NEWSTEST2014 = Part(
    github_file(
        "wmt14/newstest2014.tar.gz",
        "eeb5a5fd3ec96c325f8e6c92d29ee57a77f16857a4406f34036c3fa6f631942a",
        "A11MiND/pytorch-wmt14",
        "be285de18670fc3f0136bf29677c30b3013006b7",
        "test.tar.gz",
    ),
    ("test.en", "test.de"),
)
"""The test set: cased, not tokenised."""


def load() -> Corpus:
    """Return all 4.5 million pairs, newstest2013 to validate and newstest2014 to test.

    Raises
    ------
    CorpusError
        If a file cannot be had.
    """
    splits: dict[str, Any] = {"train": Published(), "valid": list(NEWSTEST2013), "test": list(NEWSTEST2014)}
    parts = (*TRAINING, NEWSTEST2013, NEWSTEST2014)
    return Corpus("wmt14-full", SIDES, splits, tuple(part.archive for part in parts))


class Published:
    """All published training pairs, read from their archives at each iteration."""

    def __iter__(self) -> Iterator[Pair]:
        return chain.from_iterable(TRAINING)
