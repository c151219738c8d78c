"""A Transformer with other aggregators than attention."""

from typing import Any

import torch
from torch import Tensor

from attention_on_edges.layers import Embeddings
from attention_on_edges.models.gnn import AGGREGATORS, aggregate
from attention_on_edges.models.transformer import Transformer, make_model
from edgewise.graphs import AttentionGraph
from edgewise.validation import check_choice

MIXERS = (*AGGREGATORS, "convolution")
"""Ways to aggregate the senders' values."""


class MixingTransformer(Transformer):
    """A Transformer that aggregates values by ``how`` instead of attention.

    By sum, mean or maximum; or by a convolution: each head takes the value at one fixed offset, and the
    output projection is the kernel. Queries and keys are still projected but not used: the number of weights
    stays the same.

    Attributes
    ----------
    how : str
        One of ``MIXERS``; ``"attention"`` is the ordinary Transformer.
    """

    how: str = "attention"
    _places: Tensor

    def embed(self, embed: Embeddings, ids: Tensor, positions: Tensor) -> Tensor:
        """Ids and positions to states; the positions are kept for :func:`convolve`."""
        self._places = positions
        return super().embed(embed, ids, positions)

    def propagate_attention(self, graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Aggregate values on the edges of ``graph``: [num_dst, h, d_k]."""
        if self.how == "attention":
            return super().propagate_attention(graph, q, k, v)
        if self.how == "convolution":
            return convolve(graph, v, self._places)
        return aggregate(graph, v, self.how)


def convolve(graph: AttentionGraph, v: Tensor, places: Tensor) -> Tensor:
    """Give heads 0, 1, 2, 3, ... the values at offsets 0, -1, 1, -2, ... from the receiver.

    Parameters
    ----------
    graph : AttentionGraph
        Of intervals, each from the first token of a sentence to the last one that may be attended to.
    v : Tensor
        [num_src, h, d_k]
    places : Tensor
        int64 [num_dst]: the position of each receiver in its sentence.

    Returns
    -------
    Tensor
        [num_dst, h, d_k]; zeros outside the sentence or the receiver's interval.
    """
    start, stop = graph.intervals  # type: ignore[misc]  # see above: it has intervals
    heads = torch.arange(v.shape[1], device=v.device)
    offsets = (heads + 1) // 2 * torch.where(heads % 2 == 0, 1, -1)
    place = places[:, None] + offsets  # [num_dst, h]
    sender = start[:, None] + place
    inside = (place >= 0) & (sender < stop[:, None])
    found = v[sender.clamp(0, len(v) - 1), heads]
    return torch.where(inside[..., None], found, 0.0)


def make_mixing_model(
    src_vocab: int, tgt_vocab: int, how: str = "attention", **size: Any
) -> MixingTransformer:
    """Build one with the same initial weights as :func:`make_model`; ``size`` is that function's.

    Raises
    ------
    ValueError
        If ``how`` is not one of ``MIXERS``.
    """
    check_choice("how", how, MIXERS)
    plain = make_model(src_vocab, tgt_vocab, **size)
    parts = (plain.encoder, plain.decoder, plain.src_embed, plain.tgt_embed, plain.pos_enc, plain.generator)
    model = MixingTransformer(*parts, plain.engine)
    model.how = how
    return model
