"""Chapters 7 and 8: how decoded sequences are scored."""

from collections.abc import Hashable, Sequence, Sized
from dataclasses import dataclass
from typing import Any

from attention_on_edges.corpora.text import listed

Sequences = Sequence[Sequence[Hashable]]
"""Tokens or ids, sequence by sequence, without start and end symbols."""


def exact_match(predictions: Sequences, references: Sequences) -> float:
    """Return the share of sequences that equal their reference exactly.

    Like all scores here, of nothing there is none: ``ValueError``.
    """
    pairs = paired(predictions, references, Sized)
    return sum(list(p) == list(r) for p, r in pairs) / len(pairs)


def token_accuracy(predictions: Sequences, references: Sequences) -> float:
    """Return the share of positions with the right token.

    Predictions are free-running, not teacher-forced. A pair counts as many positions as the longer sequence
    has, so missing and extra tokens are errors.
    """
    pairs = paired(predictions, references, Sized)
    places = some("tokens", sum(max(len(p), len(r)) for p, r in pairs))
    return sum(a == b for p, r in pairs for a, b in zip(p, r, strict=False)) / places


@dataclass(frozen=True)
class Score:
    """A score of a corpus, 0 to 100, and the signature that says how it was computed."""

    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.signature})"


def bleu(predictions: Sequence[str], references: Sequence[str], lowercase: bool = False) -> Score:
    """BLEU of plain text, one reference each, by sacreBLEU's own tokeniser 13a (Post 2018)."""
    from sacrebleu.metrics import BLEU  # slow to import, and most do not need it

    return _score(BLEU(lowercase=lowercase), predictions, references)


def tokenized_bleu(predictions: Sequence[str], references: Sequence[str]) -> Score:
    """BLEU of tokenised text, as in published figures on Multi30k; see ``preparation.moses``."""
    from sacrebleu.metrics import BLEU

    return _score(BLEU(tokenize="none", force=True), predictions, references)


def chrf(predictions: Sequence[str], references: Sequence[str]) -> Score:
    """Return chrF2, the F-score of character n-grams (Popović 2015)."""
    from sacrebleu.metrics import CHRF

    return _score(CHRF(), predictions, references)


Links = set[tuple[int, int]]
"""Pairs of source and target word that translate each other, counted from zero."""


def alignment_error_rate(found: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links]) -> float:
    """Return ``1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)`` over all sentences (Och and Ney 2003, eq. 34).

    Parameters
    ----------
    found : sequence of set of pairs
        A: predicted links.
    sure, possible : sequence of set of pairs
        S and P of the gold standard; a sure link counts as possible too.
    """
    gold = paired(sure, possible, set)
    links = [(a, s, s | p) for (a, s), (_, p) in zip(paired(found, sure, set), gold, strict=True)]
    total = some("links", sum(len(a) + len(s) for a, s, _ in links))
    hits = sum(len(a & s) + len(a & p) for a, s, p in links)
    return 1 - hits / total


def _score(metric: Any, predictions: Sequence[str], references: Sequence[str]) -> Score:
    found, published = zip(*paired(predictions, references, str), strict=True)
    value = metric.corpus_score(list(found), [list(published)]).score
    return Score(value, str(metric.get_signature()))


def paired(predictions: object, references: object, of: type) -> list[tuple[Any, Any]]:
    """Return what is predicted beside its reference; there must be as many of both, and at least one."""
    found, published = listed("predictions", predictions, of), listed("references", references, of)
    if not found or len(found) != len(published):
        raise ValueError(
            "predictions and references must pair up, one pair at least; "
            f"got {len(found)} and {len(published)}"
        )
    return list(zip(found, published, strict=True))


def some(what: str, count: float) -> float:
    """Return how many there are to divide by, unless there are none."""
    if count == 0:
        raise ValueError(f"there are no {what} to score")
    return count
