"""Chapter 8: sentence pairs to train and measure on, downloaded from their makers or made by rule.

Each corpus is a module; :func:`load` finds it by name. ``captions`` is part of the package.
``gold_annotations`` holds chapter 9's references: word alignments and parses.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from attention_on_edges.corpora import captions, multi30k, tatoeba, wmt14
from attention_on_edges.corpora.files import CorpusError, File, fetch
from attention_on_edges.corpora.text import Corpus, Pair
from edgewise.validation import check_choice

CORPORA: dict[str, Callable[..., Corpus]] = {
    "captions": captions.load,
    "small": partial(captions.load, train=600, valid=20, test=20),
    "multi30k": multi30k.load,
    "tatoeba": tatoeba.load,
    "wmt14-full": wmt14.load,
}


def load(name: str, **options: Any) -> Corpus:
    """Return a corpus by name; options are those of its own ``load``.

    Raises
    ------
    CorpusError
        If a file cannot be had.
    ValueError
        If there is no corpus of that name.
    """
    check_choice("name", name, CORPORA)
    return CORPORA[name](**options)
