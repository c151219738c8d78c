"""Chapter 12: filtering sentence pairs."""

from collections.abc import Iterable, Iterator

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
