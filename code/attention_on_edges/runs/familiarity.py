"""Chapter 8: how unlike its training text a model's input is."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log

import numpy as np

PERCENTILES = 101


@dataclass(frozen=True)
class Familiarity:
    r"""How often pieces occur in training text, and how surprising its texts are.

    The surprisal of a text is the mean of :math:`-\\log p` over its pieces, in nats, where :math:`p` is a
    piece's share of the training text (one more for each, so that none is zero).

    Attributes
    ----------
    counts : list of int
        Of each piece, in the order of their numbers.
    surprisals : list of float
        Percentiles, 0 to 100, of the surprisals of the training texts.
    """

    counts: list[int]
    surprisals: list[float]

    @classmethod
    def of(cls, texts: Iterable[Sequence[int]], size: int) -> "Familiarity":
        """Count the pieces of training texts, given as numbers below ``size``."""
        texts = [text for text in texts if text]
        counts = np.bincount(np.concatenate(texts), minlength=size).tolist()
        counted = cls(counts, [])
        found = np.percentile([counted.surprisal(text) for text in texts], np.linspace(0, 100, PERCENTILES))
        return cls(counts, found.tolist())

    def surprisal(self, text: Sequence[int]) -> float:
        """Mean surprisal of a text's pieces, in nats; of an empty one, 0."""
        total = sum(self.counts) + len(self.counts)
        return sum(log(total / (1 + self.counts[piece])) for piece in text) / max(len(text), 1)

    def unlikeness(self, text: Sequence[int]) -> float:
        """Share of the training texts that are less surprising than this one, to a hundredth."""
        return bisect_left(self.surprisals, self.surprisal(text)) / PERCENTILES
