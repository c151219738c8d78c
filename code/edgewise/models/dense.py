"""Chapter 2: the Transformer on padded batches with masks, written for reading."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from edgewise.layers import (
    DecoderLayer,
    Embeddings,
    EncoderLayer,
    Generator,
    PositionalEncoding,
    Stack,
    check_symbols,
    draw_weights,
    evaluating,
    layer_pair,
    share_matrix,
)
from edgewise.validation import check_count, check_counts


def causal_mask(n: int) -> Tensor:
    """The causal mask: bool [n, n], True where a token attends to itself and to those before it."""
    n = check_count("n", n)
    return torch.ones(n, n, dtype=torch.bool).tril()


def padding_mask(lengths: Sequence[int] | Tensor, length: int) -> Tensor:
    """Which of ``length`` slots hold tokens: bool [B, 1, 1, length], the same for every head and receiver.

    Raises
    ------
    TypeError
        If a length is not an integer.
    ValueError
        If a length is below 0 or above ``length``.
    """
    length, lengths = check_count("length", length), check_counts("lengths", lengths)
    if max(lengths, default=0) > length:
        raise ValueError(f"lengths must be at most {length}, got {max(lengths)}")
    return (torch.arange(length) < torch.tensor(lengths)[:, None])[:, None, None]


def pad(packed: Tensor, lengths: Sequence[int], padding_value: int = 0) -> Tensor:
    """Pad packed sequences [N, ...] to [B, max(lengths), ...].

    Raises
    ------
    TypeError
        If a length is not an integer.
    ValueError
        If there are no lengths or they do not add up to N.
    """
    lengths = check_counts("lengths", lengths)
    if not lengths:
        raise ValueError("lengths must hold at least one length, got none")
    if sum(lengths) != len(packed):
        raise ValueError(f"lengths must add up to {len(packed)}, got {sum(lengths)}")
    parts = packed.split(lengths)
    return nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=padding_value)


def encoder_layer(layer: EncoderLayer, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Pass states through one encoder layer.

    Parameters
    ----------
    layer : EncoderLayer
        Its parts.
    x : Tensor
        [B, n, dim_model]
    mask : Tensor, optional
        bool, broadcast to [B, h, n, n]; True where a token may attend.

    Returns
    -------
    Tensor
        [B, n, dim_model]
    """
    x = layer.sublayer[0](x, lambda y: layer.self_attn(y, mask=mask)[0])
    return layer.sublayer[1](x, layer.feed_forward)


def decoder_layer(
    layer: DecoderLayer,
    x: Tensor,
    memory: Tensor,
    mask: Tensor | None = None,
    memory_mask: Tensor | None = None,
) -> Tensor:
    """Pass states through one decoder layer.

    Parameters
    ----------
    layer : DecoderLayer
        Its parts.
    x : Tensor
        [B, n, dim_model], the target.
    memory : Tensor
        [B, m, dim_model], the encoded source.
    mask, memory_mask : Tensor, optional
        bool, broadcast to [B, h, n, n] and [B, h, n, m]; True where a token may attend.

    Returns
    -------
    Tensor
        [B, n, dim_model]
    """
    x = layer.sublayer[0](x, lambda y: layer.self_attn(y, mask=mask)[0])
    x = layer.sublayer[1](x, lambda y: layer.src_attn(y, memory, memory_mask)[0])
    return layer.sublayer[2](x, layer.feed_forward)


class Encoder(Stack):
    """``N`` encoder layers and a final norm."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, m, dim_model] to [B, m, dim_model]; see :func:`encoder_layer`."""
        for layer in self.layers:
            x = encoder_layer(layer, x, mask)
        return self.norm(x)


class Decoder(Stack):
    """``N`` decoder layers and a final norm."""

    def forward(
        self, x: Tensor, memory: Tensor, mask: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:
        """[B, n, dim_model] to [B, n, dim_model]; see :func:`decoder_layer`."""
        for layer in self.layers:
            x = decoder_layer(layer, x, memory, mask, memory_mask)
        return self.norm(x)


class Transformer(nn.Module):
    """Encoder and decoder on padded batches; parameters are named as in ``transformer.Transformer``.

    Padding is at the ends of rows. Only the source's has to be masked: the causal mask hides the target's
    from every token before it. Outputs at padded positions are meaningless.

    Parameters as in :class:`edgewise.models.transformer.Transformer`, without an engine; encoder and decoder
    are those of this module.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        src_embed: Embeddings,
        tgt_embed: Embeddings,
        pos_enc: PositionalEncoding,
        generator: Generator,
    ):
        super().__init__()
        self.src_embed, self.encoder = src_embed, encoder
        self.tgt_embed, self.decoder = tgt_embed, decoder
        self.generator, self.pos_enc = generator, pos_enc

    def embed(self, table: Embeddings, ids: Tensor) -> Tensor:
        """Ids [B, n] to the sum of embedding and position [B, n, dim_model].

        Raises
        ------
        TypeError, ValueError
            If ids are not int64 [B, n] or one is outside the vocabulary.
        """
        if ids.dim() != 2:
            raise ValueError(f"ids must be [B, length], got {list(ids.shape)}")
        positions = torch.arange(ids.shape[1], device=ids.device)
        return self.pos_enc.dropout(table(ids) + self.pos_enc(positions))

    def encode(self, src: Tensor, src_mask: Tensor | None = None) -> Tensor:
        """Source ids [B, m] and a mask of its padding, [B, 1, 1, m], to states [B, m, dim_model]."""
        return self.encoder(self.embed(self.src_embed, src), src_mask)

    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Tensor | None = None) -> Tensor:
        """Target ids [B, n] and the encoded source to states [B, n, dim_model]."""
        if len(memory) != len(tgt):
            raise ValueError(f"src and tgt must have as many rows, got {len(memory)} and {len(tgt)}")
        mask = causal_mask(tgt.shape[1]).to(tgt.device)
        return self.decoder(self.embed(self.tgt_embed, tgt), memory, mask, src_mask)

    def hidden(self, src: Tensor, tgt: Tensor, src_lengths: Sequence[int] | None = None) -> Tensor:
        """Return the target's final states [B, n, dim_model]; arguments as in :meth:`forward`."""
        src_mask = _source_mask(src, src_lengths)
        return self.decode(tgt, self.encode(src, src_mask), src_mask)

    def forward(self, src: Tensor, tgt: Tensor, src_lengths: Sequence[int] | None = None) -> Tensor:
        """Return log-probabilities of the next token.

        Parameters
        ----------
        src, tgt : Tensor
            int64 [B, m] and [B, n]: inputs of encoder and decoder, padded with any id.
        src_lengths : sequence of int, optional
            Tokens in each row of ``src``; all of them where not given.

        Returns
        -------
        Tensor
            [B, n, vocabulary]

        Raises
        ------
        TypeError, ValueError
            If an id lies outside the vocabulary, or rows or lengths do not fit.
        """
        return self.generator(self.hidden(src, tgt, src_lengths))


def _source_mask(src: Tensor, lengths: Sequence[int] | None) -> Tensor | None:
    if lengths is None:
        return None
    if len(lengths) != len(src):
        raise ValueError(f"src_lengths must hold one length per row: {len(src)} rows, {len(lengths)} lengths")
    return padding_mask(lengths, src.shape[-1]).to(src.device)


@torch.no_grad()
def greedy(
    model: Transformer,
    src: Tensor,
    sos_id: int,
    eos_id: int,
    max_len: int,
    src_lengths: Sequence[int] | None = None,
) -> list[list[int]]:
    """Greedy autoregressive decoding.

    Dropout is off; the model is left in the mode it was in.

    Parameters
    ----------
    model : Transformer
        Encoder and decoder, as ``make_model`` builds them.
    src : Tensor
        int64 [B, m]
    sos_id, eos_id : int
        Start and end symbol.
    max_len : int
        Most tokens to decode.
    src_lengths : sequence of int, optional
        Tokens in each row of ``src``; all of them where not given.

    Returns
    -------
    list of list of int
        The decoded ids of each row, without the two symbols.

    Raises
    ------
    TypeError, ValueError
        If a symbol lies outside the vocabulary, or ``max_len`` is below 1.
    """
    check_count("max_len", max_len, 1)
    check_symbols(model.generator, sos_id, eos_id)
    written = torch.full((len(src), 1), sos_id, device=src.device)
    ended = torch.zeros(len(src), dtype=torch.bool, device=src.device)
    with evaluating(model):
        mask = _source_mask(src, src_lengths)
        memory = model.encode(src, mask)
        while written.shape[1] <= max_len and not bool(ended.all()):
            states = model.decode(written, memory, mask)[:, -1]
            best = model.generator.logits(states).argmax(-1)
            written = torch.cat([written, best[:, None]], 1)
            ended |= best == eos_id
    rows = [row[1:] for row in written.tolist()]
    return [row[: row.index(eos_id)] if eos_id in row else row for row in rows]


def make_dense_model(
    src_vocab: int,
    tgt_vocab: int,
    N: int = 6,  # noqa: N803 (the tutorial's keyword)
    dim_model: int = 512,
    dim_ff: int = 2048,
    h: int = 8,
    dropout: float = 0.1,
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
    norm_first : bool
        Pre-norm; else post-norm, as in the paper. Either way encoder and decoder end with a norm of their
        own, as in ``torch.nn.Transformer``.
    shared : bool
        One matrix for both embeddings and the output layer (Vaswani et al. 2017, sec. 3.4).

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be; the message says which.
    """
    check_count("src_vocab", src_vocab, 1)
    check_count("tgt_vocab", tgt_vocab, 1)
    encoder_part, decoder_part = layer_pair(dim_model, dim_ff, h, dropout, norm_first)
    model = Transformer(
        Encoder(encoder_part, N),
        Decoder(decoder_part, N),
        Embeddings(src_vocab, dim_model),
        Embeddings(tgt_vocab, dim_model),
        PositionalEncoding(dim_model, dropout),
        Generator(dim_model, tgt_vocab),
    )
    draw_weights(model)
    if shared:
        share_matrix(model)
    return model


def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Copy all weights of one Transformer to another, dense or on graphs.

    Raises
    ------
    ValueError
        If the two differ in number of heads or norm placement, or ``target`` shares a matrix for which
        ``source`` has different ones.
    RuntimeError
        If the two differ in their parameters' names or shapes.
    """
    given, wanted = _hidden_settings(source), _hidden_settings(target)
    for place in given.keys() & wanted.keys():
        if given[place] != wanted[place]:
            raise ValueError(
                f"{place} must be the same, got {given[place]} in source, {wanted[place]} in target"
            )
    state = source.state_dict()
    first_name: dict[int, str] = {}
    for name, parameter in target.named_parameters(remove_duplicate=False):
        first = first_name.setdefault(id(parameter), name)
        if {first, name} <= state.keys() and not torch.equal(state[first], state[name]):
            raise ValueError(f"target shares {first} and {name}, which differ in source")
    target.load_state_dict(state)


def _hidden_settings(model: nn.Module) -> dict[str, object]:
    """Settings that change a model's function but not its parameters."""
    return {
        f"{name}.{setting}": getattr(module, setting)
        for name, module in model.named_modules()
        for setting in ("h", "norm_first")
        if hasattr(module, setting)
    }
