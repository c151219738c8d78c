"""PyTorch's Transformer on padded sentences: what the graph's is compared with."""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from attention_on_edges.layers import Dropout, Embeddings, Generator, PositionalEncoding


class PaddedTransformer(nn.Module):
    """``torch.nn.Transformer`` with the embeddings, norms, output layer and dropout of ``make_model``.

    Projections, masks and kernels are PyTorch's. Dropout inside attention and inside the feed-forward network
    is off, as in ``make_model``; elsewhere it is PyTorch's, or with ``fast_dropout`` this library's.
    """

    def __init__(
        self,
        vocab: int,
        N: int,  # noqa: N803
        dim_model: int,
        dim_ff: int,
        h: int,
        dropout: float,
        fast_dropout: bool = False,
    ):
        super().__init__()
        self.src_embed, self.tgt_embed = Embeddings(vocab, dim_model), Embeddings(vocab, dim_model)
        self.pos_enc = PositionalEncoding(dim_model, dropout)
        sizes = (dim_model, h, N, N, dim_ff, dropout)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "enable_nested_tensor")  # a fast path of evaluation mode
            self.body = nn.Transformer(*sizes, batch_first=True, norm_first=True)
        for layer in (*self.body.encoder.layers, *self.body.decoder.layers):
            layer.dropout = nn.Identity()
            for name, child in layer.named_children():
                if fast_dropout and isinstance(child, nn.Dropout):
                    setattr(layer, name, Dropout(dropout))
        for module in self.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
        self.generator = Generator(dim_model, vocab)

    def forward(self, sources: Sequence[Tensor], targets: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Ids of sentences, one tensor each, to logits [n_tokens, vocab] of real tokens, and their ids."""
        states, wanted = self.hidden(sources, targets)
        return self.generator.proj(states), wanted

    def hidden(self, sources: Sequence[Tensor], targets: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The same, to final states [n_tokens, dim_model]."""
        device = self.generator.proj.weight.device
        src, src_padding = (x.to(device) for x in pad(sources))
        tgt, tgt_padding = (x.to(device) for x in pad([ids[:-1] for ids in targets]))
        size = tgt.shape[1]
        causal = nn.Transformer.generate_square_subsequent_mask(size, device=device, dtype=torch.bool)
        states = self.body(
            self._embed(self.src_embed, src),
            self._embed(self.tgt_embed, tgt),
            tgt_mask=causal,
            src_key_padding_mask=src_padding,
            tgt_key_padding_mask=tgt_padding,
            memory_key_padding_mask=src_padding,
            tgt_is_causal=True,
        )
        return states[~tgt_padding], torch.cat([ids[1:] for ids in targets]).to(device)

    def _embed(self, embed: Embeddings, ids: Tensor) -> Tensor:
        return self.pos_enc.dropout(embed(ids) + self.pos_enc(torch.arange(ids.shape[1], device=ids.device)))


def pad(sentences: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Ids [B, longest], and where they are padding."""
    lengths = torch.tensor([len(ids) for ids in sentences])
    ids = pad_sequence(list(sentences), batch_first=True)
    return ids, torch.arange(ids.shape[1]) >= lengths[:, None]
