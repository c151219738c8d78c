"""A reader whose states decide its attention graphs, by hashing."""

from typing import Any

import torch

from attention_on_edges.analysis.long_context.reader import Reader, make_reader
from attention_on_edges.analysis.long_context.recall_tasks import LongBatch
from edgewise.graphs import AttentionGraph, even_chunks, lsh_labels, same_bucket
from edgewise.models.transformer import State
from edgewise.validation import check_count


class BucketReader(Reader):
    """A reader whose layers hash their tokens' states; a token attends to its chunk of similar tokens.

    After the Reformer (Kitaev et al. 2020, sec. 2): tokens are sorted by bucket and cut into chunks of one
    size. Unlike there, states are hashed, in one round, so that queries and keys stay separate; all tokens of
    a chunk attend to each other, whatever their buckets, and to no other chunk. The batch's own graph is not
    used. No gradient flows through the choice of a chunk.

    Attributes
    ----------
    chunk : int
        Tokens of a chunk; a text of n tokens has about ``n / chunk`` buckets.
    """

    chunk: int = 48

    def encode(self, batch: LongBatch) -> State:
        """Embed the texts and pass them through the encoder, each layer on its own graph.

        Raises
        ------
        ValueError
            If the texts of the batch are not all of one length.
        """
        return self._encode(batch)[0]

    def graphs(self, batch: LongBatch) -> list[AttentionGraph]:
        """Return the graph of each layer."""
        return self._encode(batch)[1]

    def _encode(self, batch: LongBatch) -> tuple[State, list[AttentionGraph]]:
        state, graphs = {"enc": self.embed(self.src_embed, *batch.src)}, []
        length = batch.every
        if length is None:
            raise ValueError("batch must hold texts that all have equally many tokens; every is None")
        texts = len(batch.src[0]) // length
        num_buckets = 2 * max(round(length / (2 * self.chunk)), 1)
        for i in range(self.encoder.N):
            labels = lsh_labels(state["enc"], num_buckets, seed=i).view(texts, length)
            chunks = torch.stack([even_chunks(of_text, self.chunk) for of_text in labels])
            text = torch.arange(texts, device=chunks.device)[:, None]
            graphs.append(same_bucket((text * length + chunks).flatten()).to(chunks.device))
            state = self.update_graph(
                graphs[i], state, [(self.encoder.pre_func(i), "enc")], [(self.encoder.post_func(i), "enc")]
            )
        return state, graphs


def make_bucket_reader(vocab_size: int, chunk: int = 48, **size: Any) -> BucketReader:
    """Build a reader on buckets; ``size`` is that of :func:`~.reader.make_reader`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be; the message says which.
    """
    check_count("chunk (tokens of a chunk)", chunk, 1)
    reader = make_reader(vocab_size, **size)
    model = BucketReader(reader.encoder, reader.src_embed, reader.pos_enc, reader.generator, reader.engine)
    model.chunk = chunk
    return model
