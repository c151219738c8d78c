"""The result of decoding, and limits."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from edgewise.validation import check_count


@dataclass(frozen=True)
class Hypothesis:
    """A decoded target.

    Attributes
    ----------
    ids : tuple of int
        Without start and end symbol.
    finished : bool
        Whether the end symbol came before the limit.
    log_prob : float
        Sum of the log-probabilities of its tokens, the end symbol's included, in nats.
    score : float
        The ranking score: ``log_prob``, in beam search divided by a power of its length.
    steps : tuple of int or None
        Decoder steps taken to predict each token, the end symbol included; only with adaptive computation
        time.
    """

    ids: tuple[int, ...]
    finished: bool
    log_prob: float
    score: float
    steps: tuple[int, ...] | None = None


def limits_of(sources: Sequence[Sequence[int]], max_len: int | None) -> list[int]:
    """Return the most tokens that each target may have."""
    if max_len is not None:
        return [check_count("max_len", max_len, 1)] * len(sources)
    return [2 * len(source) + 10 for source in sources]


def check_numbers(log_probs: Tensor) -> Tensor:
    """Return log-probabilities; NaN is a ``ValueError``, since no token would be the most probable one."""
    if bool(log_probs.isnan().any()):
        raise ValueError("the model's probabilities are not numbers: are its weights?")
    return log_probs
