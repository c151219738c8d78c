"""Chapter 8: sentence pairs to train and measure on, downloaded from their makers or made by rule.

Each corpus is a module with a function ``load``; :func:`load` here finds it by name. ``captions`` needs no
files. ``wmt14`` also streams the published training parts, and ``annotated`` holds chapter 9's references:
word alignments and parses.
"""

from typing import Any

from attention_on_edges.data.corpora import captions, multi30k, small, tatoeba, wmt14
from attention_on_edges.data.corpora.download import fetch
from attention_on_edges.data.corpora.files import CorpusError, File
from attention_on_edges.data.corpora.text import Corpus, Pair
from edgewise.validation import check_choice

CORPORA = {"captions": captions, "small": small, "multi30k": multi30k, "tatoeba": tatoeba, "wmt14": wmt14}


def load(name: str, **options: Any) -> Corpus:
    """Return a corpus by name; options are those of its module's ``load``.

    Raises
    ------
    CorpusError
        If a file cannot be had or used.
    ValueError
        If there is no corpus of that name.
    """
    check_choice("name", name, CORPORA)
    return CORPORA[name].load(**options)


__all__ = ["CORPORA", "Corpus", "CorpusError", "File", "Pair", "fetch", "load"]
