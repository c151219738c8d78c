"""From pairs of sentences to the three graphs of a batch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.constructors import bipartite, causal, complete
from edgewise.graphs.dgl_import import load_dgl

Sentence = Sequence[int] | Tensor

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of sentence pairs as three graphs over packed tokens, without any padding.

    Source tokens are packed in one list, target tokens in another, each numbered from zero. The single
    ``DGLGraph`` of the DGL tutorial, in which both sides share one numbering, is built on demand by ``g``;
    ``nids`` and ``eids`` number its nodes and edges.

    Attributes
    ----------
    enc, dec, cross : AttentionGraph
        Source to source (complete), target to target (causal), source to target (bipartite).
    src, tgt : tuple of Tensor
        Ids and positions, each int64 [N]: inputs of the encoder and the decoder.
    tgt_y : Tensor
        int64 [n_tokens]: what the decoder should predict, ``tgt`` shifted by one.
    src_lengths, tgt_lengths : list of int
        Tokens per sentence.
    stand_in : bool
        Whether it replaces an empty share of a process, and counts as nothing.
    """

    enc: AttentionGraph
    dec: AttentionGraph
    cross: AttentionGraph
    src: tuple[Tensor, Tensor]
    tgt: tuple[Tensor, Tensor]
    tgt_y: Tensor
    src_lengths: list[int]
    tgt_lengths: list[int]
    stand_in: bool = False

    @property
    def n_nodes(self) -> int:
        """Source and target tokens together."""
        return self.enc.num_src + self.dec.num_src

    @property
    def n_edges(self) -> int:
        """Edges of the three graphs together."""
        return self.enc.num_edges + self.cross.num_edges + self.dec.num_edges

    @property
    def n_tokens(self) -> int:
        """Target tokens to predict."""
        return len(self.tgt_y)

    @property
    def n_sentences(self) -> int:
        """Sentence pairs."""
        return len(self.src_lengths)

    @property
    def device(self) -> torch.device:
        """Device of the batch."""
        return self.tgt_y.device

    def to(self, device: torch.device | str) -> "Batch":
        """Return the same batch on another device."""
        parts: dict[str, Any]
        parts = {name: getattr(self, name).to(device) for name in ("enc", "dec", "cross", "tgt_y")}
        parts |= {name: tuple(x.to(device) for x in getattr(self, name)) for name in ("src", "tgt")}
        return replace(self, **parts)

    def sentence(self, index: int) -> tuple[slice, slice]:
        """Return the slices of sentence ``index`` in the packed source and target tokens.

        Raises
        ------
        IndexError
            If there is no such sentence.
        """
        if not 0 <= index < self.n_sentences:
            raise IndexError(f"sentence must lie in 0..{self.n_sentences - 1}, got {index}")
        first_src, first_tgt = sum(self.src_lengths[:index]), sum(self.tgt_lengths[:index])
        return (
            slice(first_src, first_src + self.src_lengths[index]),
            slice(first_tgt, first_tgt + self.tgt_lengths[index]),
        )

    @cached_property
    def g(self) -> Any:
        """One ``DGLGraph`` of the three graphs, as the DGL tutorial builds it, pair by pair.

        Raises
        ------
        MissingPackageError
            If DGL cannot be imported.
        """
        ends = torch.empty(2, self.n_edges, dtype=torch.int64, device=self.device)
        source, target = self.nids.values()
        graphs = ((self.enc, source, source), (self.cross, source, target), (self.dec, target, target))
        for edges, (graph, senders, receivers) in zip(self.eids.values(), graphs, strict=True):
            ends[:, edges] = torch.stack([senders[graph.src], receivers[graph.dst]])
        made = load_dgl().graph(tuple(ends), num_nodes=self.n_nodes)
        count = partial(torch.bincount, minlength=self.n_sentences)
        made.set_batch_num_nodes(sum(map(count, self._sentences)))
        made.set_batch_num_edges(sum(map(count, self._sentences_of_edges)))
        return made

    @cached_property
    def nids(self) -> dict[str, Tensor]:
        """Ids of the nodes of ``g``: ``enc`` for source tokens, ``dec`` for target tokens."""
        return _numbering(("enc", "dec"), self._sentences)

    @cached_property
    def eids(self) -> dict[str, Tensor]:
        """Ids of the edges of ``g``: ``ee`` within the source, ``ed`` across, ``dd`` within the target."""
        return _numbering(("ee", "ed", "dd"), self._sentences_of_edges)

    @property
    def _sentences(self) -> list[Tensor]:
        """The sentence of each source token, and of each target token."""
        lengths = (torch.tensor(x, device=self.device) for x in (self.src_lengths, self.tgt_lengths))
        return [torch.arange(self.n_sentences, device=self.device).repeat_interleave(x) for x in lengths]

    @property
    def _sentences_of_edges(self) -> list[Tensor]:
        """Of each edge of ``enc``, ``cross`` and ``dec``."""
        source, target = self._sentences
        return [source[self.enc.dst], target[self.cross.dst], target[self.dec.dst]]


def _numbering(kinds: Sequence[str], sentences: list[Tensor]) -> dict[str, Tensor]:
    """Number things sentence by sentence and, within one, kind by kind."""
    order = torch.cat([len(kinds) * x + i for i, x in enumerate(sentences)]).argsort(stable=True)
    return dict(zip(kinds, order.argsort().split([len(x) for x in sentences]), strict=True))


class GraphPool:
    """Turns lists of sentences into batches."""

    def __call__(
        self, src_buf: Iterable[Sentence], tgt_buf: Iterable[Sentence], device: torch.device | str = "cpu"
    ) -> Batch:
        """Batch sentence pairs.

        Parameters
        ----------
        src_buf : iterable of sequences of int
            Source sentences, at least one id each.
        tgt_buf : iterable of sequences of int
            Target sentences from start to end symbol: the decoder reads all ids but the last and predicts
            all but the first.
        device : torch.device or str
            Device of the batch.

        Raises
        ------
        TypeError
            If an id is not an integer.
        ValueError
            If there is no sentence, the two lists differ in length, or a sentence is too short.
        """
        sources, targets = (
            [_ids(name, i, s) for i, s in enumerate(buffer)]
            for name, buffer in (("src_buf", src_buf), ("tgt_buf", tgt_buf))
        )
        if not sources or len(sources) != len(targets):
            raise ValueError(
                f"src_buf and tgt_buf must pair up, one pair at least; got {len(sources)} and {len(targets)}"
            )
        for name, buffer, fewest in (("src_buf", sources, 1), ("tgt_buf", targets, 2)):
            for i, ids in enumerate(buffer):
                if len(ids) < fewest:
                    what = "one id" if fewest == 1 else "two ids, the start and the end symbol"
                    raise ValueError(f"{name}[{i}] must hold at least {what}; got {len(ids)}")
        src_lengths, tgt_lengths = [len(s) for s in sources], [len(t) - 1 for t in targets]
        batch = Batch(
            enc=complete(src_lengths),
            dec=causal(tgt_lengths),
            cross=bipartite(src_lengths, tgt_lengths),
            src=(torch.cat(sources), _positions(src_lengths)),
            tgt=(torch.cat([ids[:-1] for ids in targets]), _positions(tgt_lengths)),
            tgt_y=torch.cat([ids[1:] for ids in targets]),
            src_lengths=src_lengths,
            tgt_lengths=tgt_lengths,
        )
        return batch.to(device)


def _ids(name: str, index: int, sentence: Sentence) -> Tensor:
    ids = torch.as_tensor(sentence)
    if ids.dim() != 1 or (ids.numel() and ids.dtype not in INTEGERS):
        raise TypeError(f"{name}[{index}] must be a list of integers, got {sentence!r}")
    return ids.long()


def _positions(lengths: list[int]) -> Tensor:
    counts = torch.tensor(lengths)
    return torch.arange(int(counts.sum())) - (counts.cumsum(0) - counts).repeat_interleave(counts)
