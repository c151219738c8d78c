"""Autoregressive decoding with cached keys and values."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from attention_on_edges.models.transformer import Transformer
from attention_on_edges.models.universal import UTransformer
from attention_on_edges.pool import GraphPool
from edgewise.graphs import AttentionGraph


class Continuation:
    """Target prefixes with the cached keys and values of their tokens, extended step by step.

    Parameters
    ----------
    model : Transformer
        Put it into evaluation mode, or dropout is active.
    sources : sequence of sequences of int
        Ids of the source sentences; encoded once, here.
    """

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]]):
        self.model = model
        device = next(model.parameters()).device
        batch = GraphPool()(sources, [[0, 0]] * len(sources), device)  # the encoder does not read the target
        states = model.encode(batch)["enc"]
        layers = range(model.decoder.N)
        self._source = [model.decoder.pre_func(i, "kv", 1)(states) for i in layers]
        empty = {name: x.new_zeros(len(sources), 0, *x.shape[1:]) for name, x in self._source[0].items()}
        rounds = model.max_steps if isinstance(model, UTransformer) else model.decoder.N
        self._past = [dict(empty) for _ in range(rounds)]  # [B, room, h, d_k]
        self._cross = batch.cross
        self.length = 0

    def step(self, ids: Tensor) -> Tensor:
        """Add one token to each target.

        Parameters
        ----------
        ids : Tensor
            int64 [B]: the start symbol first, then the latest decoded tokens.

        Returns
        -------
        Tensor
            [B, dim_model]: final states of these tokens, from which the next ones are predicted.
        """
        model, decoder = self.model, self.model.decoder
        x = model.embed(model.tgt_embed, ids, torch.full_like(ids, self.length))
        prefix = self._grow(ids)
        for i in range(decoder.N):
            fields = decoder.pre_func(i)(x)
            past = self._past[i]
            for name in "kv":
                past[name][:, self.length - 1] = fields[name]
            k, v = (past[name].flatten(0, 1) for name in "kv")
            x = decoder.post_func(i)(x, model.propagate_attention(prefix, fields["q"], k, v))
            q = decoder.pre_func(i, "q", 1)(x)["q"]
            x = decoder.post_func(i, 1)(x, model.propagate_attention(self._cross, q, **self._source[i]))
        return x

    def select(self, rows: Tensor) -> None:
        """Go on with some of the targets, in the order of ``rows``, int64 [B], with repetitions.

        Sources are not copied: receivers of two targets of one source attend to the same senders.
        """
        self._cross = self._cross.select_receivers(rows)
        self._past = [{name: x.index_select(0, rows) for name, x in past.items()} for past in self._past]

    def _grow(self, ids: Tensor) -> AttentionGraph:
        """Make room for one more token per target; return the graph from prefix and token to the token."""
        self.length += 1
        room = self._past[0]["k"].shape[1]
        if self.length > room:
            added = max(room, 16)
            for past in self._past:
                for name in "kv":
                    past[name] = nn.functional.pad(past[name], (0, 0, 0, 0, 0, added))
            room += added
        first = torch.arange(len(ids), device=ids.device) * room
        stop = first + self.length
        return AttentionGraph.from_intervals(
            first, stop, len(ids) * room, self_attention=False, blocks=len(ids)
        )


class AdaptiveContinuation(Continuation):
    """The same for a Universal Transformer: at each step a token attends to its prefix at the same step.

    Tokens of the prefix that had halted by then have frozen keys and values.
    """

    model: UTransformer

    def step(self, ids: Tensor) -> Tensor:
        """Add one token to each target; as in the parent."""
        model = self.model
        positions = torch.full_like(ids, self.length)
        self._graphs = self._grow(ids), self._cross
        self._active: tuple[AttentionGraph, ...] | None = self._graphs
        return model.decoder.norm(model.until_halted("dec", self, model.tgt_embed(ids), positions).output)

    def revise(self, n: int, rows: Tensor, y: Tensor) -> Tensor:
        """Revise the states of active tokens."""
        model, decoder = self.model, self.model.decoder
        fields = decoder.pre_func(0)(y)
        self._write(n, rows, fields)
        k, v = (self._past[n][name].flatten(0, 1) for name in "kv")
        if self._active is None:
            self._active = tuple(graph.select_receivers(rows) for graph in self._graphs)
        prefix, cross = self._active
        x = decoder.post_func(0)(y, model.propagate_attention(prefix, fields["q"], k, v))
        q = decoder.pre_func(0, "q", 1)(x)["q"]
        wv = model.propagate_attention(cross, q, **self._source[0])
        return decoder.post_func(0, 1, norm=False)(x, wv)

    def leave(self, n: int, rows: Tensor, x: Tensor) -> None:
        """Write the frozen keys and values of halted tokens to all later steps."""
        self._active = None
        fields = self.model.decoder.pre_func(0, "kv")(x)
        for later in range(n + 1, len(self._past)):
            self._write(later, rows, fields)

    def _write(self, n: int, rows: Tensor, fields: dict[str, Tensor]) -> None:
        for name in "kv":
            self._past[n][name][rows, self.length - 1] = fields[name]


def continuation_of(model: Transformer, sources: Sequence[Sequence[int]]) -> Continuation:
    """Return the continuation for either kind of model; arguments as in :class:`Continuation`."""
    kind = AdaptiveContinuation if isinstance(model, UTransformer) else Continuation
    return kind(model, sources)
