"""Recording the attention of a pass, for those who want to see it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor

from attention_on_edges.pool import Batch
from edgewise.graphs import AttentionGraph
from edgewise.propagation import attention_weights


class Round(NamedTuple):
    """One round of attention.

    Attributes
    ----------
    whole : AttentionGraph
        A graph of the batch.
    ran_on : AttentionGraph
        Its edges that were used, or the graph that took its place.
    q, k : Tensor
        Queries and keys of all tokens, [N, h, d_k].
    """

    whole: AttentionGraph
    ran_on: AttentionGraph
    q: Tensor
    k: Tensor


class Recording:
    """Rounds of attention, in the order in which they happen."""

    def __init__(self) -> None:
        self.rounds: list[Round] = []
        self._wholes: dict[AttentionGraph, tuple[AttentionGraph, Tensor | None]] = {}

    def replace(self, whole: AttentionGraph, graph: AttentionGraph, rows: Tensor | None = None) -> None:
        """Record rounds on ``graph`` as rounds on ``whole``; with ``rows``, it is the part into those."""
        self._wholes[graph] = whole, rows

    def add(self, graph: AttentionGraph, q: Tensor, k: Tensor) -> None:
        """Record a round of attention with queries and keys of its graph, [N, h, d_k]."""
        whole, rows = self._wholes.get(graph, (graph, None))
        if rows is not None:
            active = torch.zeros(whole.num_dst, dtype=torch.bool, device=whole.device)
            graph = whole.restrict(active.index_fill(0, rows, True))
            q = q.new_zeros(whole.num_dst, *q.shape[1:]).index_copy(0, rows, q)
        self.rounds.append(Round(whole, graph, q, k))

    def maps(self, batch: Batch, sentence: int, layer: int) -> list[Tensor]:
        """Return a layer's attention on one sentence, ``[e2e, e2d, d2d]``, each [h, receivers, senders].

        Raises
        ------
        IndexError
            If there is no such sentence or layer.
        """
        src, tgt = batch.sentence(sentence)
        maps = []
        for whole, senders, receivers in (
            (batch.enc, src, src),
            (batch.cross, src, tgt),
            (batch.dec, tgt, tgt),
        ):
            rounds = [each for each in self.rounds if each.whole is whole]
            if not -len(rounds) <= layer < len(rounds):
                raise IndexError(f"layer must lie in {-len(rounds)}..{len(rounds) - 1}, got {layer}")
            _, ran_on, q, k = rounds[layer]
            part = ran_on.subgraph(senders, receivers)
            weights = attention_weights(part, q[receivers].detach(), k[senders].detach())
            maps.append(part.to_matrix(weights).cpu())
        return maps


_current: ContextVar[Recording | None] = ContextVar("recording", default=None)


def current_recording() -> Recording | None:
    """Return what this thread's passes are recorded in, if they are."""
    return _current.get()


@contextmanager
def recorded() -> Iterator[Recording]:
    """Record the passes of this package's models that this thread makes meanwhile.

    Layers are not recorded: ask a :class:`~edgewise.GraphAttention` for its weights.
    """
    recording = Recording()
    before = _current.set(recording)
    try:
        yield recording
    finally:
        _current.reset(before)
