"""Chapter 12: filtering and sampling sentence pairs."""

from collections.abc import Iterable, Iterator

import numpy as np

from attention_on_edges.corpora.text import Pair


def cleaned(pairs: Iterable[Pair], longest: int = 100, ratio: float = 2.0) -> Iterator[Pair]:
    """Filter out pairs that are unlikely to be translations.

    Parameters
    ----------
    pairs : iterable of Pair
        Streamed.
    longest : int
        Words per side at most.
    ratio : float
        The longer side may have at most this many times the shorter side's words, plus two, since lengths of
        short phrases differ most.
    """
    for pair in pairs:
        short, long = sorted(len(side.split()) for side in pair)
        if short > 0 and long <= longest and long <= ratio * short + 2:
            yield pair


def sampled(pairs: Iterable[Pair], count: int, seed: int = 0) -> list[Pair]:
    """Draw a uniform sample from a stream in bounded memory (Vitter 1985, algorithm R).

    All of them, in their order, if there are no more than ``count``.
    """
    generator = np.random.default_rng([seed, count])
    drawn: list[Pair] = []
    for seen, pair in enumerate(pairs):
        if seen < count:
            drawn.append(pair)
        elif (place := int(generator.integers(seen + 1))) < count:
            drawn[place] = pair
    return drawn
