"""The lab's model solutions: each task's class, finished, for the tasks after it and for comparison.

Written as the lab asks for them, from the paper (Vaswani et al. 2017, sec. 3): post-norm, no padding, batches
first. The book's own models are elsewhere: chapters 2 and 6.
"""

import math

import torch
from torch import Tensor, nn

from attention_on_edges.layers import position_table


class MultiHeadAttention(nn.Module):
    """Tasks 1 and 4: scaled dot-product attention, several heads at once (sec. 3.2).

    Head ``r`` owns the features from ``r * d_k`` up to ``(r + 1) * d_k``.
    """

    def __init__(self, h: int, dim_model: int):
        super().__init__()
        self.h = h
        self.d_k = dim_model // h
        self.w_q = nn.Linear(dim_model, dim_model)
        self.w_k = nn.Linear(dim_model, dim_model)
        self.w_v = nn.Linear(dim_model, dim_model)
        self.w_o = nn.Linear(dim_model, dim_model)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, maskout: bool = False) -> Tensor:
        """Query [batch, n, d], key and value [batch, m, d] to [batch, n, d].

        With ``maskout`` receiver j attends to the senders 0..j only.
        """
        q, k, v = self.w_q(query), self.w_k(key), self.w_v(value)
        q, k, v = (x.unflatten(-1, (self.h, self.d_k)).transpose(1, 2) for x in (q, k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)  # [batch, h, n, m]
        if maskout:
            later = torch.ones_like(scores, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        context = scores.softmax(-1) @ v  # [batch, h, n, d_k]
        return self.w_o(context.transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    """Task 2: the position-wise feed-forward network (eq. 2)."""

    def __init__(self, dim_model: int, dim_ff: int):
        super().__init__()
        self.inner = nn.Linear(dim_model, dim_ff)
        self.outer = nn.Linear(dim_ff, dim_model)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, n, d] to [batch, n, d]."""
        return self.outer(self.inner(x).relu())


class EncoderStack(nn.Module):
    """Task 3: self-attention and feed-forward, each with dropout, residual connection and norm (sec. 3.1)."""

    def __init__(self, h: int, dim_model: int, dim_ff: int, dropout: float = 0.0):
        super().__init__()
        self.attention = MultiHeadAttention(h, dim_model)
        self.feed_forward = FeedForward(dim_model, dim_ff)
        self.norm1 = nn.LayerNorm(dim_model)
        self.norm2 = nn.LayerNorm(dim_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, m, d] to [batch, m, d]."""
        x = self.norm1(x + self.dropout(self.attention(x, x, x)))
        return self.norm2(x + self.dropout(self.feed_forward(x)))


class DecoderStack(nn.Module):
    """Task 5: masked self-attention, cross-attention, feed-forward (sec. 3.1)."""

    def __init__(self, h: int, dim_model: int, dim_ff: int, dropout: float = 0.0):
        super().__init__()
        self.self_attention = MultiHeadAttention(h, dim_model)
        self.cross_attention = MultiHeadAttention(h, dim_model)
        self.feed_forward = FeedForward(dim_model, dim_ff)
        self.norm1 = nn.LayerNorm(dim_model)
        self.norm2 = nn.LayerNorm(dim_model)
        self.norm3 = nn.LayerNorm(dim_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        """Target states [batch, n, d], encoder output [batch, m, d] to [batch, n, d]."""
        x = self.norm1(x + self.dropout(self.self_attention(x, x, x, maskout=True)))
        x = self.norm2(x + self.dropout(self.cross_attention(x, memory, memory)))
        return self.norm3(x + self.dropout(self.feed_forward(x)))


class Transformer(nn.Module):
    """Task 6: the whole model, with teacher forcing in training and greedy decoding in test."""

    SOS, EOS = 0, 1

    def __init__(
        self,
        src_vocab: int,
        tgt_vocab: int,
        N: int,  # noqa: N803 (the tutorial's keyword)
        dim_model: int,
        dim_ff: int,
        h: int,
        dropout: float = 0.0,
    ):
        super().__init__()
        size = (h, dim_model, dim_ff, dropout)
        self.dim_model = dim_model
        self.src_embed = nn.Embedding(src_vocab, dim_model)
        self.tgt_embed = nn.Embedding(tgt_vocab, dim_model)
        self.encoder = nn.ModuleList(EncoderStack(*size) for _ in range(N))
        self.decoder = nn.ModuleList(DecoderStack(*size) for _ in range(N))
        self.output = nn.Linear(dim_model, tgt_vocab)
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Tensor, target: Tensor | None = None, max_len: int = 20) -> Tensor:
        """Log-probabilities where there is a target, else a translation.

        Source ids [batch, m] with target ids [batch, n] give [batch, n, tgt_vocab], of which row t predicts
        target t. Without a target they give ids [batch, at most max_len]: what follows the start symbol 0
        up to the end symbol 1, which fills shorter rows.
        """
        memory = self.embed(self.src_embed, source)
        for stack in self.encoder:
            memory = stack(memory)
        start = torch.full_like(source[:, :1], self.SOS)
        if target is not None:
            return self.decode(torch.cat([start, target[:, :-1]], dim=1), memory)
        ids, ended = start, torch.zeros_like(start, dtype=torch.bool)
        while ids.shape[1] <= max_len and not ended.all():
            best = self.decode(ids, memory)[:, -1:].argmax(-1)
            best = best.masked_fill(ended, self.EOS)
            ids, ended = torch.cat([ids, best], dim=1), ended | (best == self.EOS)
        return ids[:, 1:]

    def embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        """Ids [batch, n] to states [batch, n, d]: embedding times √d, plus position, then dropout."""
        positions = position_table(ids.shape[1], self.dim_model).to(table.weight)
        return self.dropout(table(ids) * math.sqrt(self.dim_model) + positions)

    def decode(self, ids: Tensor, memory: Tensor) -> Tensor:
        """Ids the decoder reads [batch, n], encoder output [batch, m, d] to [batch, n, tgt_vocab]."""
        x = self.embed(self.tgt_embed, ids)
        for stack in self.decoder:
            x = stack(x, memory)
        return self.output(x).log_softmax(-1)
