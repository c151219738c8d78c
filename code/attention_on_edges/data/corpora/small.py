"""Chapter 12: a few rule-based captions, for smoke tests."""

from attention_on_edges.data.corpora import captions
from attention_on_edges.data.corpora.text import Corpus


def load() -> Corpus:
    """Return 600 pairs to train on, 20 to validate and 20 to test."""
    return captions.load(train=600, valid=20, test=20)
