"""Baselines of the benchmarks: PyTorch's own Transformer, and decoding without a cache."""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from edgewise.decoding import Continuation
from edgewise.graphs import causal
from edgewise.layers import Embeddings, PositionalEncoding
from edgewise.models.transformer import Transformer


class PaddedTransformer(nn.Module):
    """``torch.nn.Transformer`` with the embeddings, norms, output layer and dropout of ``make_model``.

    Projections, masks and kernels are PyTorch's. Dropout inside attention and inside the feed-forward network
    is off, as in ``make_model``.
    """

    def __init__(self, vocab: int, N: int, dim_model: int, dim_ff: int, h: int, dropout: float):  # noqa: N803
        super().__init__()
        self.src_embed, self.tgt_embed = Embeddings(vocab, dim_model), Embeddings(vocab, dim_model)
        self.pos_enc = PositionalEncoding(dim_model, dropout)
        sizes = (dim_model, h, N, N, dim_ff, dropout)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "enable_nested_tensor")  # a fast path of evaluation mode
            self.body = nn.Transformer(*sizes, batch_first=True, norm_first=True)
        for layer in (*self.body.encoder.layers, *self.body.decoder.layers):
            layer.dropout = nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
        self.proj = nn.Linear(dim_model, vocab)

    def forward(self, sources: Sequence[Tensor], targets: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Ids of sentences, one tensor each, to logits [n_tokens, vocab] of real tokens, and their ids."""
        src, src_padding = _pad(sources)
        tgt, tgt_padding = _pad([ids[:-1] for ids in targets])
        causal = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1], dtype=torch.bool)
        states = self.body(
            self._embed(self.src_embed, src),
            self._embed(self.tgt_embed, tgt),
            tgt_mask=causal,
            src_key_padding_mask=src_padding,
            tgt_key_padding_mask=tgt_padding,
            memory_key_padding_mask=src_padding,
            tgt_is_causal=True,
        )
        return self.proj(states[~tgt_padding]), torch.cat([ids[1:] for ids in targets])

    def _embed(self, embed: Embeddings, ids: Tensor) -> Tensor:
        return self.pos_enc.dropout(embed(ids) + self.pos_enc(torch.arange(ids.shape[1])))


class Recomputation(Continuation):
    """Decoding without a cache: every target token is recomputed at each step; the source is encoded once."""

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]]):
        super().__init__(model, sources)
        self.ids = torch.empty(len(sources), 0, dtype=torch.int64, device=self._cross.device)

    def step(self, ids: Tensor) -> Tensor:
        """Add one token to each target, int64 [B]; return the final states of these, [B, dim_model]."""
        model, decoder = self.model, self.model.decoder
        self.ids = torch.cat([self.ids, ids[:, None]], 1)
        targets, length = self.ids.shape
        positions = torch.arange(length, device=ids.device).repeat(targets)
        own = causal([length] * targets).to(ids.device)
        cross = self._cross.select_receivers(
            torch.arange(targets, device=ids.device).repeat_interleave(length)
        )
        x = model.embed(model.tgt_embed, self.ids.flatten(), positions)
        for i in range(decoder.N):
            x = decoder.post_func(i)(x, model.propagate_attention(own, **decoder.pre_func(i)(x)))
            q = decoder.pre_func(i, "q", 1)(x)["q"]
            x = decoder.post_func(i, 1)(x, model.propagate_attention(cross, q, **self._source[i]))
        return x.unflatten(0, (targets, length))[:, -1]

    def keep(self, rows: Tensor) -> None:
        """Keep some of the targets, in the order of ``rows``."""
        super().keep(rows)
        self.ids = self.ids[rows]


def _pad(sentences: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Ids [B, longest], and where they are padding."""
    lengths = torch.tensor([len(ids) for ids in sentences])
    ids = pad_sequence(list(sentences), batch_first=True)
    return ids, torch.arange(ids.shape[1]) >= lengths[:, None]
