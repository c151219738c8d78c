"""Word alignment from cross-attention."""

from collections.abc import Sequence

import numpy as np

from attention_on_edges.data.metrics import Links
from attention_on_edges.data.tokenization import BPE

Spans = list[range]
"""Places of each word's pieces."""


def split_words(splitter: BPE, words: Sequence[str]) -> tuple[list[str], Spans]:
    """Split a sentence of words; return its pieces and which of them belong to each word.

    A full stop or comma at a word's end belongs to no word: what attends to it says nothing of the word.
    """
    pieces: list[str] = []
    spans = []
    for word in words:
        found, own = splitter.split(word), splitter.split(word.rstrip(".,") or word)
        if found[: len(own)] != own:  # a piece holds the end of both
            own = found
        spans.append(range(len(pieces), len(pieces) + len(own)))
        pieces += found
    return pieces, spans


def pool_words(weights: np.ndarray, receivers: Spans, senders: Spans) -> np.ndarray:
    """Pool attention between pieces to attention between words.

    Summed over the pieces of the word attended to, averaged over those of the word that attends.

    Parameters
    ----------
    weights : array
        [..., receiving pieces, sending pieces]
    receivers, senders : list of range
        Places of each word's pieces, at least one each.

    Returns
    -------
    array
        [..., receiving words, sending words]
    """
    summed = np.stack([weights[..., list(span)].sum(-1) for span in senders], -1)
    return np.stack([summed[..., list(span), :].mean(-2) for span in receivers], -2)


def links_of(weights: np.ndarray) -> Links:
    """Link each target word to the source word that it attends to most: pairs (source, target).

    Parameters
    ----------
    weights : array
        [target words, source words]
    """
    return {(int(source), target) for target, source in enumerate(np.asarray(weights).argmax(-1))}


def diagonal_links(num_src: int, num_tgt: int) -> Links:
    """Link each target word to the source word at the same relative position: the baseline."""
    last = max(num_tgt - 1, 1)
    return {((2 * target * (num_src - 1) + last) // (2 * last), target) for target in range(num_tgt)}
