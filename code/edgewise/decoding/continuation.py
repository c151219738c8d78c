"""Targets that grow by a token a step; nothing is computed twice."""

from collections.abc import Sequence

import torch
from torch import Tensor

from edgewise.adaptive import UTransformer
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
        self._past: list[dict[str, Tensor]] = [{} for _ in range(self._rounds())]
        self._cross = batch.cross
        self.length = 0

    def _rounds(self) -> int:
        """Return how many times a target token listens to those before it."""
        return self.model.decoder.N

    @property
    def steps(self) -> list[int] | None:
        """How many steps each token took that was added last; nothing where all take the same."""
        return None

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
        own = self._grow(ids)
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
        """Go on with some of the targets, in the order of ``rows``, int64 [B], in which one may recur.

        Sources are not copied: the receivers of two targets of one source hear the same senders.
        """
        self._cross = self._cross.into(rows)
        self._past = [{name: x.index_select(0, rows) for name, x in past.items()} for past in self._past]

    def _grow(self, ids: Tensor) -> AttentionGraph:
        """Make room for one token more a target; return the graph from its past, and itself, to each."""
        self.length += 1
        room = self._make_room(len(ids))
        first = torch.arange(len(ids), device=ids.device) * room
        stop = first + self.length
        return AttentionGraph.from_intervals(first, stop, len(ids) * room, self_attention=False)

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


Graphs = tuple[AttentionGraph, AttentionGraph]
"""Who hears which of the past, and which of the source."""


class AdaptiveContinuation(Continuation):
    """The same for a Universal Transformer: at each of its steps a token hears what its past was then.

    A token of the past that had halted by then is heard as it was left.
    """

    model: UTransformer

    def _rounds(self) -> int:
        return self.model.max_steps

    @property
    def steps(self) -> list[int]:
        """How many steps each token took that was added last."""
        return self._steps.tolist()

    def step(self, ids: Tensor) -> Tensor:
        """Add one token to each target; as in the parent."""
        model = self.model
        positions = torch.full_like(ids, self.length)
        self._graphs = self._grow(ids), self._cross
        self._active: Graphs | None = self._graphs
        found = model.until_halted("dec", self, model.tgt_embed(ids), positions)
        self._steps = found.steps
        return model.decoder.norm(found.output)

    def revise(self, n: int, rows: Tensor, y: Tensor) -> Tensor:
        """Revise the states of those tokens that have not halted."""
        model, decoder = self.model, self.model.decoder
        fields = decoder.pre_func(0)(y)
        self._write(n, rows, fields)
        k, v = (self._past[n][name].flatten(0, 1) for name in "kv")
        if self._active is None:
            own, cross = self._graphs
            self._active = own.into(rows), cross.into(rows)
        own, cross = self._active
        x = decoder.post_func(0)(y, model.propagate_attention(own, fields["q"], k, v))
        q = decoder.pre_func(0, "q", 1)(x)["q"]
        wv = model.propagate_attention(cross, q, **self._source[0])
        return decoder.post_func(0, 1, norm=False)(x, wv)

    def leave(self, n: int, rows: Tensor, x: Tensor) -> None:
        """Write what halted tokens are heard as at all later steps."""
        self._active = None
        if self.model.frozen == "state":
            fields = self.model.decoder.pre_func(0, "kv")(x)
        else:
            fields = {name: past[rows, self.length - 1] for name, past in self._past[n].items()}
        for later in range(n + 1, len(self._past)):
            self._write(later, rows, fields)

    def _write(self, n: int, rows: Tensor, fields: dict[str, Tensor]) -> None:
        for name in "kv":
            self._past[n][name][rows, self.length - 1] = fields[name]


def continuation_of(model: Transformer, sources: Sequence[Sequence[int]]) -> Continuation:
    """Return what targets of ``sources`` grow in, for either kind of model; as in :class:`Continuation`."""
    kind = AdaptiveContinuation if isinstance(model, UTransformer) else Continuation
    return kind(model, sources)
