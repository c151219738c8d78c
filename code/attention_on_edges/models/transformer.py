"""Chapter 6: the Transformer as three graphs and one function that updates them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from attention_on_edges.attention import MultiHeadAttention
from attention_on_edges.layers import (
    DecoderLayer,
    Embeddings,
    EncoderLayer,
    Generator,
    PositionalEncoding,
    Stack,
    draw_weights,
    layer_pair,
    share_matrix,
)
from attention_on_edges.models.halting import Pondering
from attention_on_edges.models.recording import current_recording, recorded
from attention_on_edges.pool import Batch
from edgewise.graphs import AttentionGraph
from edgewise.propagation import ENGINES, propagate_attention
from edgewise.validation import check_bool, check_choice, check_count

State = dict[str, Tensor]
"""States [N, dim_model] of the source tokens under ``"enc"`` and of the target tokens under ``"dec"``."""

PreFunc = Callable[[Tensor], dict[str, Tensor]]
"""States [N, dim_model] to some of the fields q, k, v, each [N, h, d_k]."""

PostFunc = Callable[[Tensor, Tensor], Tensor]
"""States [N, dim_model] and attention's output [N, h, d_k], to new states."""


@dataclass(frozen=True, eq=False)
class Output:
    """The result of a pass over a batch.

    Attributes
    ----------
    hidden : Tensor
        Final states of the target tokens, [n_tokens, dim_model].
    pondered : dict of str to Pondering
        Of a Universal Transformer: steps and weights of both sides, ``"enc"`` and ``"dec"``.
    """

    hidden: Tensor
    pondered: Mapping[str, Pondering] = field(default_factory=dict)


class Encoder(Stack):
    """``N`` encoder layers and a final norm, as functions that run before and after message passing."""

    def pre_func(self, i: int, fields: str = "qkv") -> PreFunc:
        """Return what layer ``i`` does before attention: norm (if pre-norm), then projections."""
        layer: EncoderLayer = _layer(self, i)

        def project(x: Tensor) -> dict[str, Tensor]:
            return layer.self_attn.get(layer.sublayer[0].before(x), fields)

        return project

    def post_func(self, i: int, norm: bool = True) -> PostFunc:
        """Return what layer ``i`` does after attention: output projection, residual, feed-forward.

        The last layer applies the final norm too, unless ``norm`` is false.
        """
        layer: EncoderLayer = _layer(self, i)

        def update(x: Tensor, wv: Tensor) -> Tensor:
            x = layer.sublayer[0].after(x, layer.self_attn.get_o(wv))
            x = layer.sublayer[1](x, layer.feed_forward)
            return self.norm(x) if norm and i == self.N - 1 else x

        return update


class Decoder(Stack):
    """``N`` decoder layers and a final norm; sub-layer 0 is self-attention, 1 is cross-attention."""

    def pre_func(self, i: int, fields: str = "qkv", l: int = 0) -> PreFunc:  # noqa: E741 (the tutorial's)
        """Return what sub-layer ``l`` of layer ``i`` does before attention.

        The source is not normed again before its keys and values: the encoder ends with a norm.
        """
        layer, attention = _sublayer(self, i, l)
        normed = l == 1 and fields == "kv"

        def project(x: Tensor) -> dict[str, Tensor]:
            return attention.get(x if normed else layer.sublayer[l].before(x), fields)

        return project

    def post_func(self, i: int, l: int = 0, norm: bool = True) -> PostFunc:  # noqa: E741 (the tutorial's)
        """Return what sub-layer ``l`` of layer ``i`` does after attention; ``norm`` as in the encoder."""
        layer, attention = _sublayer(self, i, l)

        def update(x: Tensor, wv: Tensor) -> Tensor:
            x = layer.sublayer[l].after(x, attention.get_o(wv))
            if l == 0:
                return x
            x = layer.sublayer[2](x, layer.feed_forward)
            return self.norm(x) if norm and i == self.N - 1 else x

        return update


def _layer(stack: Stack, i: int) -> Any:
    if check_count("i", i) >= stack.N:
        raise ValueError(f"i must lie in 0..{stack.N - 1}, got {i}")
    return stack.layers[i]


def _sublayer(decoder: Decoder, i: int, l: int) -> tuple[DecoderLayer, MultiHeadAttention]:  # noqa: E741
    if l not in (0, 1):
        raise ValueError(f"l must be 0 (self-attention) or 1 (attention to the source), got {l!r}")
    layer: DecoderLayer = _layer(decoder, i)
    return layer, (layer.self_attn, layer.src_attn)[l]


class Transformer(nn.Module):
    """Encoder and decoder as message passing on the graphs of a batch; :func:`make_model` builds one.

    Parameters
    ----------
    encoder, decoder : Encoder, Decoder
        The layers.
    src_embed, tgt_embed : Embeddings
        Of source and target ids.
    pos_enc : PositionalEncoding
        Added to both.
    generator : Generator
        States to predictions.
    engine : str
        How attention is executed; see :func:`edgewise.propagation.propagate_attention`. An attribute too.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        src_embed: Embeddings,
        tgt_embed: Embeddings,
        pos_enc: PositionalEncoding,
        generator: Generator,
        engine: str = "auto",
    ):
        super().__init__()
        self.engine = engine
        self.src_embed, self.encoder = src_embed, encoder
        self.tgt_embed, self.decoder = tgt_embed, decoder
        self.generator, self.pos_enc = generator, pos_enc

    def propagate_attention(self, graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention on the edges of ``graph``: [num_dst, h, d_k]."""
        if (recording := current_recording()) is not None:
            recording.add(graph, q, k)
        if q.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            q, k, v = q.float(), k.float(), v.float()  # in bfloat16 its kernels are rebuilt for each shape
        return propagate_attention(graph, q, k, v, engine=self.engine)

    def update_graph(
        self,
        graph: AttentionGraph,
        state: State,
        pre_pairs: list[tuple[PreFunc, str]],
        post_pairs: list[tuple[PostFunc, str]],
    ) -> State:
        """Project, propagate, update: one round of message passing on any graph.

        Parameters
        ----------
        graph : AttentionGraph
            Which token attends to which in this round.
        state : dict of str to Tensor
            States of the two sides.
        pre_pairs, post_pairs : list of (function, side)
            Functions that run before and after attention, each with its side (``"enc"`` or ``"dec"``).

        Returns
        -------
        dict of str to Tensor
            The states, with the sides of ``post_pairs`` replaced.
        """
        fields: dict[str, Tensor] = {}
        for pre, side in pre_pairs:
            fields |= pre(state[side])
        wv = self.propagate_attention(graph, **fields)
        return state | {side: post(state[side], wv) for post, side in post_pairs}

    def extra_loss(self, output: Output, step: int | None = None) -> Tensor | None:
        """Return the term that a pass adds to the loss per token, after ``step`` updates: none."""
        return None

    def embed(self, embed: Embeddings, ids: Tensor, positions: Tensor) -> Tensor:
        """Ids and positions, each int64 [N], to the first layer's input [N, dim_model]."""
        x = embed(ids)
        return self.pos_enc.dropout(x + self.pos_enc(positions).to(x.dtype))

    def run(self, batch: Batch) -> Output:
        """Run encoder and decoder, and return all that a pass finds."""
        return Output(self.decode(batch, self.encode(batch))["dec"])

    def hidden(self, batch: Batch) -> Tensor:
        """Run encoder and decoder: the target tokens' final states [n_tokens, dim_model]."""
        return self.run(batch).hidden

    def encode(self, batch: Batch) -> State:
        """Embed the source and pass it through the encoder."""
        state = {"enc": self.embed(self.src_embed, *batch.src)}
        for i in range(self.encoder.N):
            state = self.update_graph(
                batch.enc, state, [(self.encoder.pre_func(i), "enc")], [(self.encoder.post_func(i), "enc")]
            )
        return state

    def decode(self, batch: Batch, state: State) -> State:
        """Embed the target and pass it through the decoder, which attends to the encoded source."""
        state = state | {"dec": self.embed(self.tgt_embed, *batch.tgt)}
        decoder = self.decoder
        for i in range(decoder.N):
            state = self.update_graph(
                batch.dec, state, [(decoder.pre_func(i), "dec")], [(decoder.post_func(i), "dec")]
            )
            state = self.update_graph(
                batch.cross,
                state,
                [(decoder.pre_func(i, "q", 1), "dec"), (decoder.pre_func(i, "kv", 1), "enc")],
                [(decoder.post_func(i, 1), "dec")],
            )
        return state

    def logits(self, batch: Batch) -> Tensor:
        """Return scores of the next token, [n_tokens, vocabulary]: for ``cross_entropy``.

        Raises
        ------
        ValueError
            If an id is outside the vocabulary.
        """
        return self.generator.logits(self.hidden(batch))

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities of the next token, [n_tokens, vocabulary], as in the tutorial."""
        return self.generator(self.hidden(batch))

    @torch.no_grad()
    def attention_of(self, batch: Batch, sentence: int, layer: int = -1) -> list[Tensor]:
        """Return the attention on one sentence: ``[e2e, e2d, d2d]``, each [heads, receivers, senders].

        The model runs in its current mode: without dropout after ``eval()``.

        Parameters
        ----------
        batch : Batch
            Any batch.
        sentence : int
            Which of its sentences.
        layer : int
            Which layer, from 0; -1 is the last.

        Raises
        ------
        IndexError
            If there is no such sentence or layer.
        """
        with recorded() as recording:
            self.hidden(batch)
        return recording.maps(batch, sentence, layer)


def make_model(
    src_vocab: int,
    tgt_vocab: int,
    N: int = 6,  # noqa: N803 (the tutorial's keyword)
    dim_model: int = 512,
    dim_ff: int = 2048,
    h: int = 8,
    dropout: float = 0.1,
    engine: str = "auto",
    norm_first: bool = True,
    shared: bool = False,
) -> Transformer:
    """Build a Transformer; the defaults are the base model of Vaswani et al. 2017, table 3, with pre-norm.

    Parameters
    ----------
    src_vocab, tgt_vocab : int
        Sizes of the two vocabularies.
    N, dim_model, dim_ff, h : int
        Layers on each side, width, width of the feed-forward layer, heads.
    dropout : float
        Probability in [0, 1) of dropping a feature of a sub-layer's output or of an embedded token.
    engine : str
        How attention is executed.
    norm_first : bool
        Pre-norm; else post-norm, as in the paper. Either way encoder and decoder end with a norm of their
        own.
    shared : bool
        One matrix for both embeddings and the output layer (Vaswani et al. 2017, sec. 3.4).

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be; the message says which.
    """
    check_choice("engine", engine, ["auto", *ENGINES, "triton"])
    check_count("src_vocab", src_vocab, 1)
    check_count("tgt_vocab", tgt_vocab, 1)
    encoder_layer, decoder_layer = layer_pair(dim_model, dim_ff, h, dropout, norm_first)
    model = Transformer(
        Encoder(encoder_layer, N),
        Decoder(decoder_layer, N),
        Embeddings(src_vocab, dim_model),
        Embeddings(tgt_vocab, dim_model),
        PositionalEncoding(dim_model, dropout),
        Generator(dim_model, tgt_vocab),
        engine,
    )
    draw_weights(model)
    if check_bool("shared", shared):
        share_matrix(model)
    return model
