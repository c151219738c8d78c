"""From pairs of sentences to the three graphs of a batch."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.constructors import bipartite, causal, complete
from edgewise.graphs.dgl import load_dgl

Sentence = Sequence[int] | Tensor

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of sentence pairs as three graphs over packed tokens, without any padding.

    Source tokens are packed in one list, target tokens in another, each numbered from zero. The single
    ``DGLGraph`` of the DGL tutorial, in which both sides share one numbering, is built on demand by ``g``,
    ``nids`` or ``eids``.

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
    pool: "GraphPool" = field(repr=False)
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

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        """Return the same batch on another device."""
        return self._with_parts(lambda x: x.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Batch":
        """Return the same batch in pinned memory, as PyTorch's ``DataLoader`` asks of it."""
        return self._with_parts(lambda x: x.pin_memory())

    def _with_parts(self, change: Callable[[Any], Any]) -> "Batch":
        """Change graphs and tensors."""
        parts: dict[str, Any]
        parts = {name: change(getattr(self, name)) for name in ("enc", "dec", "cross", "tgt_y")}
        parts |= {name: tuple(map(change, getattr(self, name))) for name in ("src", "tgt")}
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
        """One ``DGLGraph`` of the whole batch, as the DGL tutorial builds it.

        Raises
        ------
        MissingPackageError
            If DGL cannot be imported.
        ValueError
            If the batch's graphs are no longer the complete, causal and bipartite ones of its lengths.
        """
        self._check_graphs()
        pairs = zip(self.src_lengths, self.tgt_lengths, strict=True)
        return load_dgl().batch([self.pool.pair_graph(n, m) for n, m in pairs]).to(self.device)

    @cached_property
    def nids(self) -> dict[str, Tensor]:
        """Ids of the nodes of ``g``: ``enc`` for source tokens, ``dec`` for target tokens."""
        return self._numbering(enc=self.src_lengths, dec=self.tgt_lengths)

    @cached_property
    def eids(self) -> dict[str, Tensor]:
        """Ids of the edges of ``g``: ``ee`` within the source, ``ed`` across, ``dd`` within the target."""
        self._check_graphs()
        return self._numbering(**self._edges_a_pair())

    def _edges_a_pair(self) -> dict[str, list[int]]:
        return {
            "ee": [n * n for n in self.src_lengths],
            "ed": [n * m for n, m in zip(self.src_lengths, self.tgt_lengths, strict=True)],
            "dd": [m * (m + 1) // 2 for m in self.tgt_lengths],
        }

    def _check_graphs(self) -> None:
        held = {"ee": self.enc.num_edges, "ed": self.cross.num_edges, "dd": self.dec.num_edges}
        made = {kind: sum(counts) for kind, counts in self._edges_a_pair().items()}
        if held != made:
            raise ValueError(f"g and eids describe a batch as the pool made it, {made}; this one has {held}")

    def _numbering(self, **counts: list[int]) -> dict[str, Tensor]:
        """Number things sentence by sentence and, within one, kind by kind."""
        sizes = torch.tensor(list(counts.values())).T.flatten()
        ids = torch.arange(int(sizes.sum())).split(sizes.tolist())
        return {kind: torch.cat(ids[i :: len(counts)]).to(self.device) for i, kind in enumerate(counts)}


class GraphPool:
    """Turns lists of sentences into batches; caches one ``DGLGraph`` for each pair of lengths."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[int, int], Any] = {}

    def __call__(
        self,
        src_buf: Iterable[Sentence],
        tgt_buf: Iterable[Sentence],
        device: torch.device | str = "cpu",
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
            pool=self,
        )
        return batch.to(device)

    def pair_graph(self, num_src: int, num_tgt: int) -> Any:
        """Return the ``DGLGraph`` of one pair: nodes source then target, edges ``ee``, ``ed``, ``dd``.

        Raises
        ------
        MissingPackageError
            If DGL cannot be imported.
        """
        if (num_src, num_tgt) not in self._pairs:
            ee, ed, dd = complete(num_src), bipartite(num_src, num_tgt), causal(num_tgt)
            src = torch.cat([ee.src, ed.src, dd.src + num_src])
            dst = torch.cat([ee.dst, ed.dst + num_src, dd.dst + num_src])
            self._pairs[num_src, num_tgt] = load_dgl().graph((src, dst), num_nodes=num_src + num_tgt)
        return self._pairs[num_src, num_tgt]


def _ids(name: str, index: int, sentence: Sentence) -> Tensor:
    ids = torch.as_tensor(sentence)
    if ids.dim() != 1 or (ids.numel() and ids.dtype not in INTEGERS):
        raise TypeError(f"{name}[{index}] must be a list of integers, got {sentence!r}")
    return ids.long()


def _positions(lengths: list[int]) -> Tensor:
    counts = torch.tensor(lengths)
    return torch.arange(int(counts.sum())) - (counts.cumsum(0) - counts).repeat_interleave(counts)
