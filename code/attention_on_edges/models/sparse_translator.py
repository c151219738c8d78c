"""A translator with sparse attention over the source."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from attention_on_edges.models.recording import current_recording
from attention_on_edges.models.transformer import State, Transformer
from attention_on_edges.pool import Batch
from attention_on_edges.sparse_graphs import binary_partition, partition_spans
from edgewise.graphs import AttentionGraph, complete, window
from edgewise.validation import check_choice


def partitions(sizes: Sequence[int], k: int) -> AttentionGraph:
    """Return the binary partition of each sentence: the tokens of all sentences, then the spans of all."""
    parts = {n: binary_partition(n, k) for n in set(sizes)}
    tokens, spans = 0, sum(sizes)
    edges: list[list[Tensor]] = [[], []]
    for n in sizes:
        part = parts[n]
        for side, local in zip(edges, (part.src, part.dst), strict=True):
            side.append(torch.where(local < n, local + tokens, local - n + spans))
        tokens, spans = tokens + n, spans + part.num_src - n
    return AttentionGraph(torch.cat(edges[0]), torch.cat(edges[1]), spans)


SOURCE_GRAPHS: dict[str, Callable[[Sequence[int], int], AttentionGraph]] = {
    "complete": lambda sizes, reach: complete(sizes),
    "window": lambda sizes, reach: window(sizes, reach, reach),
    "binary partition": partitions,
}
"""Constructors; they take the sentences' sizes and the reach: tokens on either side, or the partition's k."""


class SparseTransformer(Transformer):
    """The model of chapter 6, its encoder on another graph over each source sentence.

    The graph's spans start as one learned vector, at the position of their middle token; only the encoder
    attends to them. The decoder attends to the target prefix and to all source tokens, as usual.

    Attributes
    ----------
    source_graph : str
        One of ``SOURCE_GRAPHS``.
    reach : int
        Its second argument.
    span : Parameter
        [dim_model]: the initial state of a span.
    """

    source_graph: str = "complete"
    reach: int = 0
    span: nn.Parameter

    def encode(self, batch: Batch) -> State:
        """Embed the source, and spans if its graph has some, and pass both through the encoder."""
        graph = SOURCE_GRAPHS[self.source_graph](batch.src_lengths, self.reach).to(batch.device)
        ids, positions = batch.src
        x, tokens = self.src_embed(ids), len(ids)
        if graph.num_src > tokens:
            ends = [partition_spans(n) for n in batch.src_lengths]
            middle = torch.cat([(start + stop - 1) // 2 for start, stop in ends]).to(positions)
            x = torch.cat([x, self.span.expand(len(middle), -1).to(x.dtype)])
            positions = torch.cat([positions, middle])
        state = {"enc": self.pos_enc.dropout(x + self.pos_enc(positions).to(x.dtype))}
        if (recording := current_recording()) is not None:
            recording.replace(batch.enc, graph)
        for i in range(self.encoder.N):
            state = self.update_graph(
                graph, state, [(self.encoder.pre_func(i), "enc")], [(self.encoder.post_func(i), "enc")]
            )
        return {"enc": state["enc"][:tokens]}


def on_source_graph(model: Transformer, source_graph: str = "complete", reach: int = 0) -> SparseTransformer:
    """Put the encoder of a model on another graph; both models share their weights.

    Raises
    ------
    ValueError
        If ``source_graph`` is not one of ``SOURCE_GRAPHS``.
    """
    check_choice("source_graph", source_graph, SOURCE_GRAPHS)
    parts = (model.encoder, model.decoder, model.src_embed, model.tgt_embed, model.pos_enc, model.generator)
    sparse = SparseTransformer(*parts, model.engine).train(model.training)
    sparse.source_graph, sparse.reach = source_graph, reach
    weight = model.generator.proj.weight
    sparse.span = nn.Parameter(torch.zeros(model.pos_enc.dim_model, dtype=weight.dtype, device=weight.device))
    return sparse


def source_edges(source_graph: str, reach: int, sizes: Iterable[int]) -> float:
    """Return the encoder's edges per token on such a graph; spans do not count as tokens."""
    sizes = list(sizes)
    return SOURCE_GRAPHS[source_graph](sizes, reach).num_edges / sum(sizes)
