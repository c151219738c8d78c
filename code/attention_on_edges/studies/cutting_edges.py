"""Cuts edges of a translation, of one layer and head, until no more can go; other ways to leave them out."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property, partial

import torch
from torch import Tensor

from attention_on_edges.attention import MultiHeadAttention, attention_scores, masked_softmax
from attention_on_edges.decoding import greedy
from attention_on_edges.layers import Embeddings, evaluating
from attention_on_edges.models.dense import causal_mask, decoder_layer, encoder_layer
from attention_on_edges.models.transformer import Transformer
from attention_on_edges.pool import GraphPool

KINDS = ("e2e", "e2d", "d2d")
"""The three graphs, in the order in which edges are numbered."""

MARGIN = 1e-3
"""A piece counts as predicted if its log-probability exceeds all others' by this much."""


ABLATIONS = ("cut", "zero", "self", "mean")
"""What becomes of an edge: it is not there, and the receiver's other weights grow; its message is zero; it is
the receiver's own value, and zero from source to target, where there is none; it is the mean value."""


class CutTranslation:
    """A sentence's greedy translation, and what cutting edges does to it.

    An edge is one of one layer and one head. Edges are numbered by graph (``KINDS``), layer, head, receiver
    and sender. Receivers of the last two graphs are the pieces that the decoder reads, start symbol first.

    Parameters
    ----------
    model : Transformer
        With graphs of which every token attends to all that it may.
    source : sequence of int
        The source's ids.
    start, end : int
        Ids of the target's first and last symbol.

    Attributes
    ----------
    ids : tuple of int
        The translation, without start and end.
    edges : Tensor
        int64 [E, 5]: number of the graph in ``KINDS``, layer, head, receiver, sender.
    """

    _predicts = slice(None)

    def __init__(self, model: Transformer, source: Sequence[int], start: int = 0, end: int = 1):
        self.model, self.source = model, torch.tensor(source)
        found = greedy(model, [list(source)], start, end)[0]
        self.ids = found.ids
        self.read = torch.tensor([start, *found.ids])
        self.next = torch.tensor([*found.ids, end])
        if not found.finished:  # the last piece is predicted, and nothing is read after it
            self.read, self.next = self.read[:-1], self.next[:-1]
        self._number_edges()

    def _number_edges(self) -> None:
        n, m = len(self.source), len(self.read)
        layers, heads = self.model.encoder.N, self.model.encoder.layers[0].self_attn.h
        sides = ((n, n), (m, n), (m, m))
        exists = [torch.ones(layers, heads, *side, dtype=torch.bool) for side in sides]
        exists[2] = exists[2].tril()
        self._exists = dict(zip(KINDS, exists, strict=True))
        self.edges = torch.cat(
            [torch.nn.functional.pad(e.nonzero(), (1, 0), value=kind) for kind, e in enumerate(exists)]
        )

    def one_place(self, place: int, piece: int) -> "CutTranslation":
        """Ask for one piece alone, the model's own or another, after ``place`` pieces of the translation."""
        at_place = copy(self)
        at_place.__dict__.pop("weights", None)
        at_place.read, at_place.next = self.read[: place + 1], torch.tensor([piece])
        at_place._predicts = slice(-1, None)
        at_place._number_edges()
        return at_place

    @cached_property
    def weights(self) -> Tensor:
        """Attention on each edge, with no edge cut: [E]."""
        batch = GraphPool()([self.source.tolist()], [[*self.read.tolist(), int(self.next[-1])]])
        layers = [self.model.attention_of(batch, 0, i) for i in range(self.model.encoder.N)]
        stacked = (torch.stack(maps) for maps in zip(*layers, strict=True))  # e2e, e2d, d2d: [layer, h, ...]
        return torch.cat([w[e] for w, e in zip(stacked, self._exists.values(), strict=True)])

    def log_probs(self, kept: Tensor) -> Tensor:
        """Log-probabilities of every next piece while the target is held fixed.

        Parameters
        ----------
        kept : Tensor
            bool [B, E]: each row says which edges are left. In :func:`ablating` the others are not cut, but
            what they carry is another message.

        Returns
        -------
        Tensor
            [B, m, vocabulary], or of the one place that is asked for.
        """
        masks = {}
        for (kind, exists), part in zip(self._exists.items(), kept.split(self._counts, 1), strict=True):
            masks[kind] = exists.new_zeros(len(kept), *exists.shape)
            masks[kind][:, exists] = part
        with evaluating(self.model):
            x = self._embedded(self.model.src_embed, self.source, len(kept))
            for i, layer in enumerate(self.model.encoder.layers):
                x = encoder_layer(layer, x, masks["e2e"][:, i])
            memory = self.model.encoder.norm(x)
            y = self._embedded(self.model.tgt_embed, self.read, len(kept))
            for i, layer in enumerate(self.model.decoder.layers):
                y = decoder_layer(layer, y, memory, masks["d2d"][:, i], masks["e2d"][:, i])
            return self.model.generator(self.model.decoder.norm(y[:, self._predicts]))

    def unchanged(self, kept: Tensor) -> Tensor:
        """Tell which rows of ``kept``, bool [B, E], leave the greedy translation unchanged: bool [B]."""
        return self.predicted(kept).all(-1)

    def predicted(self, kept: Tensor) -> Tensor:
        """Tell which pieces are still predicted, by ``MARGIN``, from the right prefix: bool [B, m]."""
        return self.leads(kept) > MARGIN

    def leads(self, kept: Tensor) -> Tensor:
        """Return by how much each piece's log-probability exceeds all others': [B, m]."""
        log_probs = self.log_probs(kept)
        right = self.next.expand(len(kept), -1)[..., None]
        others = log_probs.scatter(-1, right, -torch.inf).amax(-1)
        return log_probs.gather(-1, right)[..., 0] - others

    def chosen(self, kept: Tensor) -> Tensor:
        """Return the log-probabilities of the translation's pieces: [B, m]."""
        return self.log_probs(kept).gather(-1, self.next.expand(len(kept), -1)[..., None])[..., 0]

    @property
    def _counts(self) -> list[int]:
        return [int(exists.sum()) for exists in self._exists.values()]

    def _embedded(self, embed: Embeddings, ids: Tensor, rows: int) -> Tensor:
        x = self.model.embed(embed, ids, torch.arange(len(ids)))
        return x.expand(rows, -1, -1)


@contextmanager
def ablating(model: Transformer, how: str, means: Sequence[Tensor]) -> Iterator[None]:
    """Let edges that are left out carry what one of ``ABLATIONS`` says, with :func:`mean_values`."""
    changed = [] if how == "cut" else _attentions(model)
    for (attention, causal), mean in zip(changed, means, strict=False):
        attention.forward = partial(_ablated, attention, how, causal, mean)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for attention, _ in changed:
            del attention.forward


def _ablated(
    attention: MultiHeadAttention,
    how: str,
    causal: bool,
    mean: Tensor,
    x: Tensor,
    memory: Tensor | None = None,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    q, k, v = _heads(attention, x, memory)
    weights = masked_softmax(attention_scores(q, k), causal_mask(x.shape[-2]) if causal else None)
    left = weights if mask is None else weights * mask
    lost = (weights - left).sum(-1, keepdim=True)
    found = left @ v
    if how == "mean":
        found = found + lost * mean[:, None]
    elif how == "self" and memory is None:
        found = found + lost * v
    return attention.get_o(found.transpose(-3, -2)), weights


def _heads(attention: MultiHeadAttention, x: Tensor, memory: Tensor | None) -> list[Tensor]:
    fields = attention.get(x) if memory is None else attention.get(x, "q") | attention.get(memory, "kv")
    return [fields[f].transpose(-3, -2) for f in "qkv"]  # [B, h, n or m, d_k]


def _attentions(model: Transformer) -> list[tuple[MultiHeadAttention, bool]]:
    """All attentions of a model, and whether each is causal."""
    found = [(layer.self_attn, False) for layer in model.encoder.layers]
    for layer in model.decoder.layers:
        found += [(layer.self_attn, True), (layer.src_attn, False)]
    return found


def mean_values(model: Transformer, sentences: Sequence["CutTranslation"]) -> list[Tensor]:
    """Return the mean value vector of each head of each attention, over the tokens of sentences: [h, d_k]."""
    seen: list[list[Tensor]] = [[] for _ in _attentions(model)]

    def hook(number: int, attention: MultiHeadAttention, inputs: tuple[Tensor, ...], found: object) -> None:
        memory = inputs[1] if len(inputs) > 1 else None
        seen[number].append(_heads(attention, inputs[0], memory)[2][0])  # [h, n, d_k]

    hooks = [a.register_forward_hook(partial(hook, i)) for i, (a, _) in enumerate(_attentions(model))]
    for sentence in sentences:
        sentence.log_probs(torch.ones(1, len(sentence.edges), dtype=torch.bool))
    for one in hooks:
        one.remove()
    return [torch.cat(values, 1).mean(1) for values in seen]


def longest_cut(sentence: CutTranslation, order: Tensor) -> Tensor:
    """Cut as many edges as possible from the front of ``order``, by bisection; what is kept: bool [E]."""
    least, most = 0, len(order)
    while least < most:
        middle = torch.linspace(least + 1, most, min(24, most - least)).long().unique()
        trials = torch.ones(len(middle), len(order), dtype=torch.bool)
        for row, count in zip(trials, middle.tolist(), strict=True):
            row[order[:count]] = False
        held = sentence.unchanged(trials)
        failed = (~held).nonzero()
        best = int(failed[0]) if len(failed) else len(middle)
        least = int(middle[best - 1]) if best else least
        most = int(middle[best]) - 1 if best < len(middle) else least
    kept = torch.ones(len(order), dtype=torch.bool)
    kept[order[:least]] = False
    return kept


def prune(sentence: CutTranslation, order: Tensor, kept: Tensor | None = None) -> Tensor:
    """Cut edges in chunks as long as the translation stays, until no single edge can be cut: bool [E].

    Chunks follow ``order``, int64 [E], and are halved from pass to pass. 32 chunks are tried at once;
    ``kept``, bool [E], is where it starts, with all edges if not given.
    """
    kept = torch.ones(len(order), dtype=torch.bool) if kept is None else kept.clone()
    size = max(1, int(kept.sum()) // 32)
    while True:
        before = int(kept.sum())
        chunks = order[kept[order]].split(size)
        for first in range(0, len(chunks), 32):
            kept = _cut(sentence, kept, chunks[first : first + 32])
        if size > 1:
            size = max(1, size // 2)
        elif int(kept.sum()) == before:
            return kept


def _cut(sentence: CutTranslation, kept: Tensor, chunks: Sequence[Tensor]) -> Tensor:
    """Cut the chunks that can be cut alone: together if that works, else half of them, then the rest."""
    if not chunks:
        return kept
    trials = kept.repeat(len(chunks), 1)
    for row, chunk in zip(trials, chunks, strict=True):
        row[chunk] = False
    possible = [c for c, held in zip(chunks, sentence.unchanged(trials).tolist(), strict=True) if held]
    if not possible:
        return kept
    together = kept.clone()
    together[torch.cat(possible)] = False
    if len(possible) == 1 or sentence.unchanged(together[None])[0]:
        return together
    half = len(possible) // 2
    return _cut(sentence, _cut(sentence, kept, possible[:half]), possible[half:])
