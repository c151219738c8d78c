"""Chapters 7 and 8: how decoded sequences are scored."""

from collections.abc import Hashable, Sequence

Sequences = Sequence[Sequence[Hashable]]
"""Tokens or ids, sequence by sequence, without start and end symbols."""


def exact_match(predictions: Sequences, references: Sequences) -> float:
    """Return the share of sequences that are right from the first token to the last, none missing or added.

    Raises
    ------
    ValueError
        If the two do not pair up or there is none.
    """
    pairs = _pairs(predictions, references)
    return sum(list(p) == list(r) for p, r in pairs) / len(pairs)


def token_accuracy(predictions: Sequences, references: Sequences) -> float:
    """Return the share of tokens that stand where they should.

    Predictions are the model's own, decoded without sight of the reference. A sequence counts as many places
    as the longer of the two is long, so what is missing or added is wrong.

    Raises
    ------
    ValueError
        If the two do not pair up or hold no token.
    """
    pairs = _pairs(predictions, references)
    places = sum(max(len(p), len(r)) for p, r in pairs)
    if places == 0:
        raise ValueError("predictions and references must hold at least one token, got none")
    return sum(a == b for p, r in pairs for a, b in zip(p, r, strict=False)) / places


def _pairs(predictions: Sequences, references: Sequences) -> list[tuple]:
    if not predictions or len(predictions) != len(references):
        raise ValueError(
            "predictions and references must pair up, one pair at least; "
            f"got {len(predictions)} and {len(references)}"
        )
    return list(zip(predictions, references, strict=True))
