"""Beam search, of which greedy decoding is a beam of one: hypotheses, their scores and their end."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import torch
from torch import Tensor

from attention_on_edges.decoding.continuation import continuation_of
from attention_on_edges.layers import check_symbols, evaluating
from attention_on_edges.models.transformer import Transformer
from edgewise.validation import check_count, check_real


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
    """

    ids: tuple[int, ...]
    finished: bool
    log_prob: float
    score: float


@torch.no_grad()
def beam_search(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    sos_id: int,
    eos_id: int | Sequence[int],
    beam: int = 5,
    length_penalty: float = 0.6,
    max_len: int | None = None,
    max_repeats: int | None = None,
    length_offset: float = 5,
) -> list[Hypothesis]:
    r"""Decode sources together by beam search.

    Targets are ranked by their log-probability divided by :math:`((c + |Y|) / (c + 1))^\alpha`, where
    :math:`|Y|` counts the end symbol (Wu et al. 2016, eq. 14, with :math:`c = 5`). A search ends when
    ``beam`` hypotheses have ended, when no open one can still be the best, or at the limit. A beam of one is
    greedy decoding.

    Parameters
    ----------
    model : Transformer
        Runs without dropout in either mode.
    sources : sequence of sequences of int
        Ids, at least one each.
    sos_id : int
        Start symbol of the target's vocabulary.
    eos_id : int or sequence of int
        End symbol; any of several ends a target.
    beam : int
        Hypotheses kept per source.
    length_penalty : float
        :math:`\alpha`, zero or more: the larger, the longer the targets.
    max_len : int, optional
        Most tokens of a target without the end symbol; by default ten more than twice the source's.
    max_repeats : int, optional
        Most times that a token, or a run of several, may stand in a row in a target; any number by default.
    length_offset : float
        :math:`c`, zero or more; with 0 and :math:`\alpha = 1`, scores are log-probabilities per token.

    Returns
    -------
    list of Hypothesis
        The best one for each source, in their order; one that was cut at the limit only if none has ended.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be; the message says which.
    """
    ends = check_symbols(model.generator, sos_id, eos_id)
    check_count("beam", beam, 1)
    for name, value in (("length_penalty", length_penalty), ("length_offset", length_offset)):
        if check_real(name, value) < 0:
            raise ValueError(f"{name} must be a number, zero or more; got {value!r}")
    if max_repeats is not None:
        check_count("max_repeats", max_repeats, 1)
    settings = (ends, beam, length_penalty, length_offset)
    if max_len is not None:
        check_count("max_len", max_len, 1)
    searches = [_Search(max_len or 2 * len(source) + 10, *settings) for source in sources]
    with evaluating(model):
        continuation = continuation_of(model, sources)
        device = next(model.parameters()).device
        going, ids = searches, torch.full((len(sources),), sos_id, device=device)
        scores = torch.zeros(len(sources), 1, device=device)
        while going:
            log_probs = check_numbers(model.generator(continuation.step(ids))).unflatten(0, scores.shape)
            if max_repeats is not None:
                log_probs = _without_loops(log_probs, going, max_repeats)
            candidates = _best_candidates(scores, log_probs, (1 + len(ends)) * beam)
            going, rows, tokens, sums = _advance(going, candidates, scores.shape[1])
            if going:
                ids = torch.tensor(tokens, device=device)
                scores = torch.tensor(sums, device=device).view(len(going), -1)
                continuation.select(torch.tensor(rows, device=device))
    return [search.result() for search in searches]


def greedy(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    sos_id: int,
    eos_id: int | Sequence[int],
    max_len: int | None = None,
) -> list[Hypothesis]:
    """Decode sources together, taking the most probable token at each step.

    Parameters
    ----------
    model : Transformer
        Runs without dropout in either mode.
    sources : sequence of sequences of int
        Ids, at least one each.
    sos_id : int
        Start symbol of the target's vocabulary.
    eos_id : int or sequence of int
        End symbol; any of several ends a target.
    max_len : int, optional
        Most tokens of a target without the end symbol; by default ten more than twice the source's.

    Returns
    -------
    list of Hypothesis
        One for each source, in their order.

    Raises
    ------
    TypeError, ValueError
        If a source is empty or an id or a limit is not what it should be.
    """
    return beam_search(model, sources, sos_id, eos_id, 1, 0.0, max_len)


def check_numbers(log_probs: Tensor) -> Tensor:
    """Return log-probabilities; NaN is a ``ValueError``, since no token would be the most probable one."""
    if bool(log_probs.isnan().any()):
        raise ValueError("the model's probabilities are not numbers: are its weights?")
    return log_probs


def _without_loops(log_probs: Tensor, searches: list["_Search"], most: int) -> Tensor:
    forbidden = [
        (number, hypothesis, token)
        for number, search in enumerate(searches)
        for hypothesis, (ids, _) in enumerate(search.open)
        for token in loops(ids, most)
    ]
    if not forbidden:
        return log_probs
    places = torch.tensor(forbidden, device=log_probs.device).T
    return log_probs.index_put(tuple(places), log_probs.new_tensor(-inf))


def loops(ids: Sequence[int], most: int) -> set[int]:
    """Return the tokens that would make something stand more than ``most`` times in a row.

    Models fall into loops on input unlike their training data. Something is a token or a run of several:
    after ``a b a b a`` and with ``most`` 2, ``b`` is one too many.

    Parameters
    ----------
    ids : sequence of int
        The tokens so far.
    most : int
        Most times, at least 1.
    """
    found = set()
    for length in range(1, (len(ids) + 1) // (most + 1) + 1):
        tail = ids[len(ids) + 1 - (most + 1) * length :]
        if tail[length:] == tail[:-length]:
            found.add(ids[-length])
    return found


Candidate = tuple[float, int, int]
"""Log-probability of an extended hypothesis, the number of the hypothesis, the new token."""


OpenHypothesis = tuple[tuple[int, ...], float]
"""Tokens of a hypothesis, and their log-probability."""


def _best_candidates(scores: Tensor, log_probs: Tensor, count: int) -> list[list[Candidate]]:
    """Return each target's best candidates from scores of hypotheses [B, k] and next tokens [B, k, V].

    In greedy decoding, of equal candidates the first is the best.
    """
    total = (scores[..., None] + log_probs).flatten(1)
    best, place = total.topk(min(count, total.shape[1]))
    if scores.shape[1] == 1:
        first = log_probs.flatten(1).argmax(1, keepdim=True)
        place = torch.cat([first, torch.where(place == first, place[:, :1], place)[:, 1:]], 1)
        best = total.gather(1, place)
    size = log_probs.shape[-1]
    return [
        list(zip(*part, strict=True))
        for part in zip(best.tolist(), (place // size).tolist(), (place % size).tolist(), strict=True)
    ]


def _advance(
    searches: list["_Search"], candidates: list[list[Candidate]], width: int
) -> tuple[list["_Search"], list[int], list[int], list[float]]:
    """Advance each search; return the open ones, and rows, tokens and scores of their hypotheses."""
    going, rows, tokens, scores = [], [], [], []
    for number, (search, found) in enumerate(zip(searches, candidates, strict=True)):
        if chosen := search.choose(found):
            going.append(search)
            rows += [number * width + parent for _, parent, _ in chosen]
            tokens += [token for _, _, token in chosen]
            scores += [score for score, _, _ in chosen]
    return going, rows, tokens, scores


@dataclass
class _Search:
    """The search for one target: its open and its finished hypotheses."""

    limit: int
    ends: frozenset[int]
    beam: int
    length_penalty: float
    length_offset: float
    open: list[OpenHypothesis] = field(default_factory=lambda: [((), 0.0)])
    ended: list[Hypothesis] = field(default_factory=list)

    def choose(self, candidates: list[Candidate]) -> list[Candidate]:
        """Finish the hypotheses that end among the first ``beam``; return the open ones to keep, if any.

        Forbidden ones, at minus infinity, are only kept to fill up.
        """
        going: list[Candidate] = []
        for rank, (score, parent, token) in enumerate(candidates):
            if token not in self.ends:
                going.append((score, parent, token))
            elif rank < self.beam and score > -inf:
                self.ended.append(self._hypothesis(self.open[parent][0], True, score))
        going = going[: self.beam]
        over = not going or going[0][0] == -inf or len(self.open[0][0]) == self.limit
        if over or self._settled(going):
            return []
        self.open = [((*self.open[p][0], token), score) for score, p, token in going]
        return going

    def _settled(self, going: list[Candidate]) -> bool:
        """Whether open hypotheses can no longer change the result."""
        if len(self.ended) >= self.beam:
            return True
        if not self.ended:
            return False
        bound = going[0][0] / self._norm(self.limit + 1)
        return max(h.score for h in self.ended) >= bound

    def _norm(self, length: int) -> float:
        return ((self.length_offset + length) / (self.length_offset + 1)) ** self.length_penalty

    def _hypothesis(self, ids: tuple[int, ...], finished: bool, log_prob: float) -> Hypothesis:
        return Hypothesis(ids, finished, log_prob, log_prob / self._norm(len(ids) + finished))

    def result(self) -> Hypothesis:
        """Return the best hypothesis."""
        found = self.ended or [
            self._hypothesis(ids, False, score) for ids, score in self.open if score > -inf
        ]
        return max(found, key=lambda hypothesis: hypothesis.score)
