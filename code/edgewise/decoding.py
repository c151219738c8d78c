"""Chapters 7 and 8: from a source to a target, token by token.

In training the decoder reads the true tokens. Here it reads its own. Each step adds one receiver a sentence
and the edges into it, from its own past and from its source; keys and values of the past stay as they were,
so nothing else is computed again.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from edgewise.graphs import AttentionGraph, GraphPool
from edgewise.transformer import Transformer
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
    """

    ids: tuple[int, ...]
    finished: bool
    log_prob: float


class Continuation:
    """Targets that grow: the keys and values of all tokens so far, and one step more.

    Parameters
    ----------
    model : Transformer
        In evaluation mode, or its dropout is at work.
    sources : sequence of sequences of int
        Ids of the source sentences; encoded once, here.
    """

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]]):
        self.model = model
        device = next(model.parameters()).device
        batch = GraphPool()(sources, [[0, 0]] * len(sources), device)  # the encoder reads no target
        states = model.encode(batch)["enc"]
        layers = range(model.decoder.N)
        self._source = [model.decoder.pre_func(i, "kv", 1)(states) for i in layers]
        self._past: list[dict[str, Tensor]] = [{} for _ in layers]
        self._cross = batch.cross
        self.length = 0

    def step(self, ids: Tensor) -> Tensor:
        """Add one token to each target.

        Parameters
        ----------
        ids : Tensor
            int64 [B]: at first the start symbol, then what was decoded last.

        Returns
        -------
        Tensor
            [B, dim_model]: final states of these tokens, which predict the next ones.
        """
        model, decoder = self.model, self.model.decoder
        x = model.embed(model.tgt_embed, ids, torch.full_like(ids, self.length))
        self.length += 1
        room = self._make_room(len(ids))
        first = torch.arange(len(ids), device=ids.device) * room
        own = AttentionGraph.from_intervals(first, first + self.length, len(ids) * room, self_attention=False)
        for i in range(decoder.N):
            fields = decoder.pre_func(i)(x)
            past = self._past[i]
            for name in "kv":
                past[name][:, self.length - 1] = fields[name]
            k, v = (past[name].flatten(0, 1) for name in "kv")
            x = decoder.post_func(i)(x, model.propagate_attention(own, fields["q"], k, v))
            q = decoder.pre_func(i, "q", 1)(x)["q"]
            x = decoder.post_func(i, 1)(x, model.propagate_attention(self._cross, q, **self._source[i]))
        return x

    def keep(self, rows: Tensor) -> None:
        """Go on with some of the targets, in the order of ``rows``; one may stand there more than once.

        Sources are not copied: the receivers of two targets of one source hear the same senders.
        """
        start, stop = (x[rows] for x in self._cross.intervals)
        self._cross = AttentionGraph.from_intervals(start, stop, self._cross.num_src, self_attention=False)
        self._past = [{name: x[rows] for name, x in past.items()} for past in self._past]

    def _make_room(self, targets: int) -> int:
        """Make room for the token to come; return how many tokens a target has room for."""
        attention = self.model.decoder.layers[0].self_attn
        room = self._past[0]["k"].shape[1] if self._past[0] else 0
        if self.length > room:
            fresh = (targets, max(2 * room, 16), attention.h, attention.d_k)
            like = self._source[0]["k"]
            for past in self._past:
                for name in "kv":
                    grown = like.new_zeros(fresh)
                    if room:
                        grown[:, :room] = past[name]
                    past[name] = grown
            room = fresh[1]
        return room


@torch.no_grad()
def greedy(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    sos_id: int,
    eos_id: int,
    max_len: int | None = None,
) -> list[Hypothesis]:
    """Decode sources together, at each step the likeliest token.

    Parameters
    ----------
    model : Transformer
        Runs without dropout, whatever mode it is in.
    sources : sequence of sequences of int
        Ids, at least one each.
    sos_id, eos_id : int
        Start and end symbol of the target's vocabulary.
    max_len : int, optional
        Most tokens of a target, end symbol not counted; twice the source's and ten more if not given.

    Returns
    -------
    list of Hypothesis
        One for each source, in their order.

    Raises
    ------
    TypeError, ValueError
        If a source is empty or an id or a limit is not what it should be.
    """
    check_symbols(model, sos_id, eos_id)
    limits = limits_of(sources, max_len)
    with evaluating(model):
        continuation = Continuation(model, sources)
        device = next(model.parameters()).device
        ids = torch.full((len(sources),), sos_id, device=device)
        alive = list(range(len(sources)))
        decoded: list[list[int]] = [[] for _ in sources]
        scores, finished = [0.0] * len(sources), [False] * len(sources)
        while alive:
            log_probs = model.generator(continuation.step(ids))
            best, ids = log_probs.max(1)
            going = []
            for row, (sentence, token, score) in enumerate(
                zip(alive, ids.tolist(), best.tolist(), strict=True)
            ):
                if token == eos_id:
                    finished[sentence] = True
                    scores[sentence] += score
                elif len(decoded[sentence]) < limits[sentence]:
                    decoded[sentence].append(token)
                    scores[sentence] += score
                    going.append(row)
            if len(going) < len(alive):
                alive = [alive[row] for row in going]
                rows = torch.tensor(going, dtype=torch.int64, device=device)
                ids = ids[rows]
                continuation.keep(rows)
    return [Hypothesis(tuple(d), f, s) for d, f, s in zip(decoded, finished, scores, strict=True)]


def limits_of(sources: Sequence[Sequence[int]], max_len: int | None) -> list[int]:
    """Return the most tokens that each target may have."""
    if max_len is not None:
        return [check_count("max_len", max_len, 1)] * len(sources)
    return [2 * len(source) + 10 for source in sources]


def check_symbols(model: Transformer, sos_id: int, eos_id: int) -> None:
    """Refuse start and end symbols outside the target's vocabulary."""
    size = model.generator.proj.out_features
    for name, value in (("sos_id", sos_id), ("eos_id", eos_id)):
        if check_count(name, value) >= size:
            raise ValueError(f"{name} must lie in 0..{size - 1}, got {value}")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and back into the mode that it was in."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
