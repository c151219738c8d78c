"""Targets that grow by a token a step; nothing is computed twice."""

from collections.abc import Sequence

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph, GraphPool
from edgewise.transformer import Transformer


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
        self._past = [{name: x.index_select(0, rows) for name, x in past.items()} for past in self._past]

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
