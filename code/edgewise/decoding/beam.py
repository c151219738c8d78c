"""At each step the likeliest beginnings, several of each target."""

from collections.abc import Callable, Sequence
from numbers import Real

import torch
from torch import Tensor

from edgewise.decoding.continuation import Continuation, continuation_of
from edgewise.decoding.hypothesis import Hypothesis, limits_of
from edgewise.layers import check_symbols, evaluating
from edgewise.transformer import Transformer
from edgewise.validation import check_count


@torch.no_grad()
def beam_search(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    sos_id: int,
    eos_id: int,
    beam: int = 5,
    length_penalty: float = 0.6,
    max_len: int | None = None,
    n_best: int = 1,
    grow: Callable[[Transformer, Sequence[Sequence[int]]], Continuation] = continuation_of,
) -> list[list[Hypothesis]]:
    r"""Decode sources together, each with its ``beam`` likeliest beginnings.

    Targets are ranked by their log-probability divided by :math:`((5 + |Y|) / 6)^\alpha` (Wu et al. 2016,
    eq. 14), where :math:`|Y|` counts the end symbol. A search ends when ``beam`` targets have ended, when
    none that goes on can still enter the ``n_best``, or at the limit. A beam of one is greedy decoding.

    Parameters
    ----------
    model : Transformer
        Runs without dropout, whatever mode it is in.
    sources : sequence of sequences of int
        Ids, at least one each.
    sos_id, eos_id : int
        Start and end symbol of the target's vocabulary.
    beam : int
        Beginnings kept of each target.
    length_penalty : float
        :math:`\alpha`, zero or more: the larger, the longer the targets.
    max_len : int, optional
        Most tokens of a target, end symbol not counted; twice the source's and ten more if not given.
    n_best : int
        Targets returned of each source, at most ``beam``.
    grow : callable
        Takes model and sources, returns what works out the states of their growing targets.

    Returns
    -------
    list of list of Hypothesis
        For each source the best targets found, best first; those that ended before those that the limit cut.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be; the message says which.
    """
    check_symbols(model.generator, sos_id, eos_id)
    check_count("beam", beam, 1)
    if check_count("n_best", n_best, 1) > beam:
        raise ValueError(f"n_best must be at most beam ({beam}), got {n_best}")
    if not isinstance(length_penalty, Real) or not 0 <= length_penalty < float("inf"):
        raise ValueError(f"length_penalty must be a number, zero or more; got {length_penalty!r}")
    searches = [_Search(limit, eos_id, beam, n_best, length_penalty) for limit in limits_of(sources, max_len)]
    with evaluating(model):
        continuation = grow(model, sources)
        device = next(model.parameters()).device
        going, ids = searches, torch.full((len(sources),), sos_id, device=device)
        scores = torch.zeros(len(sources), 1, device=device)
        while going:
            log_probs = model.generator(continuation.step(ids)).unflatten(0, scores.shape)
            candidates = _likeliest(scores, log_probs, 2 * beam)
            going, rows, ids, scores = _advance(going, candidates, scores.shape[1], continuation.steps)
            if going:
                ids, rows = (torch.tensor(x, device=device) for x in (ids, rows))
                scores = torch.tensor(scores, device=device).view(len(going), -1)
                continuation.keep(rows)
    return [search.result() for search in searches]


Candidate = tuple[float, int, int]
"""Log-probability of a beginning with one token more, the number of the beginning, the token."""


Beginning = tuple[tuple[int, ...], float, tuple[int, ...]]
"""Tokens of a target, their log-probability, and the steps that each took, if the model counts them."""


def _likeliest(scores: Tensor, log_probs: Tensor, count: int) -> list[list[Candidate]]:
    """Return each target's likeliest candidates: beginnings [B, k], next tokens [B, k, V]."""
    total = (scores[..., None] + log_probs).flatten(1)
    best, place = total.topk(min(count, total.shape[1]))
    size = log_probs.shape[-1]
    return [
        list(zip(*part, strict=True))
        for part in zip(best.tolist(), (place // size).tolist(), (place % size).tolist(), strict=True)
    ]


def _advance(
    searches: list["_Search"], candidates: list[list[Candidate]], width: int, steps: list[int] | None
) -> tuple[list["_Search"], list[int], list[int], list[float]]:
    """Let each search choose; return those that go on, and rows, tokens and scores of their beginnings.

    ``steps`` are those that each beginning's last token took.
    """
    going, rows, tokens, scores = [], [], [], []
    for number, (search, found) in enumerate(zip(searches, candidates, strict=True)):
        first = number * width
        kept = search.choose(found, steps and steps[first : first + width])
        if kept:
            going.append(search)
            rows += [first + parent for _, parent, _ in kept]
            tokens += [token for _, _, token in kept]
            scores += [score for score, _, _ in kept]
    return going, rows, tokens, scores


class _Search:
    """The search for one target: its beginnings, and the targets that have ended."""

    def __init__(self, limit: int, eos_id: int, beam: int, n_best: int, length_penalty: float):
        self.limit, self.eos_id, self.beam, self.n_best = limit, eos_id, beam, n_best
        self.length_penalty = length_penalty
        self.beginnings: list[Beginning] = [((), 0.0, ())]
        self.ended: list[Hypothesis] = []

    def choose(self, candidates: list[Candidate], steps: list[int] | None) -> list[Candidate]:
        """Take the end symbols among the first ``beam``; return the beginnings to go on with, if any."""
        kept: list[Candidate] = []
        taken = [(*b[2], steps[i]) if steps else () for i, b in enumerate(self.beginnings)]
        for rank, (score, parent, token) in enumerate(candidates):
            if token != self.eos_id:
                kept.append((score, parent, token))
            elif rank < self.beam:
                self.ended.append(self._hypothesis(self.beginnings[parent][0], True, score, taken[parent]))
        kept = kept[: self.beam]
        if len(self.beginnings[0][0]) == self.limit or self._settled(kept):
            return []
        self.beginnings = [((*self.beginnings[p][0], token), score, taken[p]) for score, p, token in kept]
        return kept

    def _settled(self, kept: list[Candidate]) -> bool:
        """Whether what goes on can no longer change the result."""
        if len(self.ended) >= self.beam:
            return True
        if len(self.ended) < self.n_best:
            return False
        bound = kept[0][0] / self._norm(self.limit + 1)
        return sorted(h.score for h in self.ended)[-self.n_best] >= bound

    def _norm(self, length: int) -> float:
        return ((5 + length) / 6) ** self.length_penalty

    def _hypothesis(
        self, ids: tuple[int, ...], finished: bool, log_prob: float, steps: tuple[int, ...]
    ) -> Hypothesis:
        score = log_prob / self._norm(len(ids) + finished)
        return Hypothesis(ids, finished, log_prob, score, steps or None)

    def result(self) -> list[Hypothesis]:
        """Return the best targets, best first."""
        found = sorted(self.ended, key=lambda h: -h.score)
        if len(found) < self.n_best:
            cut = [self._hypothesis(ids, False, score, steps) for ids, score, steps in self.beginnings]
            found += sorted(cut, key=lambda h: -h.score)
        return found[: self.n_best]
