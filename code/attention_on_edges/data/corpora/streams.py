"""Chapter 12: corpora streamed from disk."""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from attention_on_edges.data.corpora import small, wmt14
from attention_on_edges.data.corpora.cleaning import detokenised
from attention_on_edges.data.corpora.files import CorpusError
from attention_on_edges.data.corpora.text import Corpus, Pair
from edgewise.validation import check_choice


@dataclass(frozen=True)
class Stream:
    """A streamed training split, with the other splits in memory.

    Attributes
    ----------
    corpus : Corpus
        Everything but the training split.
    train : callable
        Each call iterates over all training pairs.
    digest : str
        sha256 of their source files.
    """

    corpus: Corpus
    train: Callable[[], Iterator[Pair]]
    digest: str


def _sample() -> Stream:
    """10,000 pairs, newstest2012 and newstest2014, all as plain text."""
    corpus = wmt14.load()
    train, valid = (corpus.splits[mode] for mode in ("train", "valid"))
    splits = {"valid": list(detokenised(valid, corpus.languages)), "test": corpus.splits["test"]}
    sums = [file.sha256 for file in wmt14.SAMPLE["train"]]
    return Stream(
        replace(corpus, splits=splits), lambda: detokenised(train, corpus.languages), json_digest(sums)
    )


def _small() -> Stream:
    """Read the few captions made by rule, for examples and tests."""
    corpus = small.load()
    train = corpus.splits["train"]
    splits = {mode: pairs for mode, pairs in corpus.splits.items() if mode != "train"}
    return Stream(replace(corpus, splits=splits), lambda: iter(train), json_digest(train))


def _full() -> Stream:
    """All 4.5 million pairs, newstest2013 (newstest2012 if it cannot be had) and newstest2014."""
    try:
        valid = list(wmt14.read_part(wmt14.NEWSTEST2013))
        files = (wmt14.NEWSTEST2013.archive,)
    except CorpusError as error:
        warnings.warn(f"validating on newstest2012: {error}", stacklevel=2)
        sample = wmt14.load()
        valid = list(detokenised(sample.splits["valid"], sample.languages))
        files = wmt14.SAMPLE["valid"]
    splits = {"valid": valid, "test": list(wmt14.read_part(wmt14.NEWSTEST2014))}
    archives = tuple(part.archive for part in wmt14.TRAINING)
    files = (*archives, *files, wmt14.NEWSTEST2014.archive)
    corpus = Corpus("wmt14-full", wmt14.SIDES, splits, wmt14.TERMS, files)
    return Stream(corpus, wmt14.stream, json_digest([archive.sha256 for archive in archives]))


def json_digest(facts: object) -> str:
    """Return the sha256 of facts as JSON."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


STREAMS = {"wmt14": _sample, "wmt14-full": _full, "small": _small}


@lru_cache(maxsize=1)
def _opened(name: str) -> Stream:
    return STREAMS[name]()


def open_stream(name: str) -> Stream:
    """Return a streamed corpus: ``"wmt14"`` (a sample), ``"wmt14-full"`` or ``"small"``.

    Raises
    ------
    CorpusError
        If a file cannot be had or used.
    ValueError
        If there is none of that name.
    """
    check_choice("stream", name, STREAMS)
    return _opened(name)
