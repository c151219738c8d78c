"""Chapter 8: pairs as strangers would type them, for training."""

import string

import numpy as np

from attention_on_edges.corpora import Pair

SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in ("a", "e", "i", "o", "u", "al", "en", "in", "or")]

MARKS = ".!?"


def varied(pair: Pair, generator: np.random.Generator) -> Pair:
    """Vary both sides of a pair alike, in one of four ways, with equal probability.

    In capitals; in small letters and without its last mark; without its last mark; or with an invented name
    or number, in place of one that both sides share, and otherwise before them: ``Tovin: A dog runs.``

    Parameters
    ----------
    pair : tuple of two str
        Source and target.
    generator : numpy.random.Generator
        Chooses.
    """
    kind = generator.integers(4)
    if kind == 0:
        return pair[0].upper(), pair[1].upper()
    if kind == 1:
        return pair[0].rstrip(MARKS).lower(), pair[1].rstrip(MARKS).lower()
    if kind == 2:
        return pair[0].rstrip(MARKS), pair[1].rstrip(MARKS)
    return _renamed(pair, invented(generator), generator)


def invented(generator: np.random.Generator) -> str:
    """Invent a name of two to four syllables or, one time in three, a number below 10,000."""
    if generator.random() < 1 / 3:
        return str(generator.integers(10 ** generator.integers(1, 5)))
    return "".join(generator.choice(SYLLABLES, generator.integers(2, 5))).capitalize()


def names(text: str) -> set[str]:
    """Return the words of a text that may be names or numbers: they begin with a capital or a digit."""
    words = (word.strip(string.punctuation) for word in text.split())
    return {word for word in words if word[:1].isupper() or word[:1].isdigit()}


def _renamed(pair: Pair, name: str, generator: np.random.Generator) -> Pair:
    shared = sorted(word for word in names(pair[0]) & names(pair[1]) if all(s.count(word) == 1 for s in pair))
    if shared:
        old = str(generator.choice(shared))
        return pair[0].replace(old, name), pair[1].replace(old, name)
    return f"{name}: {pair[0]}", f"{name}: {pair[1]}"
