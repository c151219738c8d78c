"""An encoder that answers questions about a text, on any graph."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attention_on_edges.layers import Embeddings, Generator, PositionalEncoding, draw_weights, layer_pair
from attention_on_edges.models.transformer import Encoder, Transformer
from edgewise.graphs import AttentionGraph


@dataclass(frozen=True)
class Questions:
    """Texts, packed, with their graph and with questions.

    Attributes
    ----------
    enc : AttentionGraph
        Which token attends to which.
    src : tuple of Tensor
        Ids and positions, each int64 [N], additional tokens of the graph included.
    question_positions, tgt_y : Tensor
        int64 [questions]: their places, and their answers.
    """

    enc: AttentionGraph
    src: tuple[Tensor, Tensor]
    question_positions: Tensor
    tgt_y: Tensor


class Reader(Transformer):
    """The encoder of chapter 6 and an output layer; the graph comes with the batch.

    Parameters
    ----------
    vocab_size, answers : int
        Symbols of the texts, and of the output.
    dim_model, dim_ff, layers : int
        Widths, and number of layers; there are four heads.
    """

    def __init__(
        self, vocab_size: int, answers: int, dim_model: int = 64, dim_ff: int = 128, layers: int = 2
    ):
        layer, _ = layer_pair(dim_model, dim_ff, 4, 0.0)
        encoder, embed = Encoder(layer, layers), Embeddings(vocab_size, dim_model)
        positions, generator = PositionalEncoding(dim_model, 0.0), Generator(dim_model, answers)
        super().__init__(encoder, None, embed, None, positions, generator)  # type: ignore[arg-type]  # unused
        draw_weights(self)

    def forward(self, batch: Any) -> Tensor:
        """Return log-probabilities of the answers to :class:`Questions`, [questions, answers]."""
        return self.generator(self.encode(batch)["enc"].index_select(0, batch.question_positions))

    def loss(self, batch: Questions, step: int) -> Tensor:
        """Return nats per question, after any number of updates."""
        return -self(batch).gather(1, batch.tgt_y[:, None]).mean()

    @torch.no_grad()
    def right(self, batch: Questions) -> int:
        """Count the questions that are answered correctly."""
        return int((self(batch).argmax(1) == batch.tgt_y).sum())
