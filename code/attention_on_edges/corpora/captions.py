"""Chapters 8, 9, 12 and 13: the book's own English captions with their German translations.

A grammar of nouns, verbs and clauses wrote ``captions.jsonl.gz`` at commit 298f687 of this repository, from
seed 0: 10,000 distinct pairs, whose word links and parses it knew. They are under this book's licence.
"""

import gzip
import json
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from attention_on_edges.corpora.gold_annotations import AlignedPair, Link, Parse, aligned
from attention_on_edges.corpora.text import Corpus, Pair
from edgewise.validation import check_count

FILE = Path(__file__).with_name("captions.jsonl.gz")


@cache
def _rows() -> list[dict[str, Any]]:
    with gzip.open(FILE, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _first(count: int) -> list[dict[str, Any]]:
    if check_count("count", count) > len(_rows()):
        raise ValueError(f"count must be at most {len(_rows())}, got {count}")
    return _rows()[:count]


def captions(count: int = 5000) -> list[Pair]:
    """Return the first ``count`` pairs, at most 10,000; no English or German sentence occurs twice."""
    return [(row["en"], row["de"]) for row in _first(count)]


def load(train: int = 9000, valid: int = 500, test: int = 500) -> Corpus:
    """Return the first pairs in three splits, at most 10,000 together."""
    sizes = {"train": train, "valid": valid, "test": test}
    left = iter(captions(sum(sizes.values())))
    splits = {name: list(islice(left, size)) for name, size in sizes.items()}
    return Corpus("captions", ("en", "de"), splits)


def gold_captions(count: int) -> list[tuple[AlignedPair, Parse]]:
    """Return the first captions with their word alignment and the parse of the English side.

    Words are what spaces separate, with the punctuation that follows them. The parse is in the style of
    Universal Dependencies: prepositions, articles, auxiliaries and conjunctions depend on content words, a
    verb's particle on the verb. Words of one meaning are linked for sure; what a phrase of several words
    shares with one of another length, an auxiliary with the finite verb, and an article with the preposition
    that contains it, is possible.
    """
    return [
        (
            aligned(f"{row['en']} ||| {row['de']}", row["links"]),
            Parse(tuple(row["en"].split()), tuple(row["heads"]), tuple(row["relations"].split())),
        )
        for row in _first(count)
    ]


def noun_links(pair: Pair) -> list[Link]:
    """Return the places of a caption's nouns and of their translations, in words from 0."""
    row = next(row for row in _rows() if (row["en"], row["de"]) == pair)
    gold = aligned(" ||| ".join(pair), row["links"])
    return sorted((i, j) for i, j in gold.sure if i in row["nouns"])
