"""Chapter 2: the Transformer in matrices: padded batches with masks, written for reading.

:func:`~attention_on_edges.models.transformer.make_model` builds the model; these functions execute it without
any graph. Padding is at the ends of rows. Only the source's has to be masked: the causal mask hides the
target's from every token before it. Outputs at padded positions are meaningless.
"""

from collections.abc import Sequence
from itertools import takewhile

import torch
from torch import Tensor, nn

from attention_on_edges.layers import DecoderLayer, EncoderLayer, check_symbols, evaluating
from attention_on_edges.models.transformer import Transformer
from edgewise.validation import check_count


def causal_mask(n: int) -> Tensor:
    """The causal mask: bool [n, n], True where a token attends to itself and to those before it."""
    return torch.ones(n, n, dtype=torch.bool).tril()


def padding_mask(lengths: Sequence[int], length: int) -> Tensor:
    """Which of ``length`` slots hold tokens: bool [B, 1, 1, length], the same for every head and receiver."""
    return (torch.arange(length) < torch.tensor(lengths)[:, None])[:, None, None]


def pad(packed: Tensor, lengths: Sequence[int], padding_value: int = 0) -> Tensor:
    """Pad packed sequences [N, ...] to [B, max(lengths), ...]."""
    parts = packed.split(list(lengths))
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


def encode(model: Transformer, src: Tensor, src_mask: Tensor | None = None) -> Tensor:
    """Source ids [B, m] and a mask of its padding, [B, 1, 1, m], to states [B, m, dim_model]."""
    x = model.embed(model.src_embed, src, torch.arange(src.shape[1], device=src.device))
    for layer in model.encoder.layers:
        x = encoder_layer(layer, x, src_mask)
    return model.encoder.norm(x)


def decode(model: Transformer, tgt: Tensor, memory: Tensor, src_mask: Tensor | None = None) -> Tensor:
    """Target ids [B, n] and the encoded source to states [B, n, dim_model]."""
    y = model.embed(model.tgt_embed, tgt, torch.arange(tgt.shape[1], device=tgt.device))
    mask = causal_mask(tgt.shape[1]).to(tgt.device)
    for layer in model.decoder.layers:
        y = decoder_layer(layer, y, memory, mask, src_mask)
    return model.decoder.norm(y)


def hidden(model: Transformer, src: Tensor, tgt: Tensor, src_lengths: Sequence[int] | None = None) -> Tensor:
    """Return the target's final states, from which ``model.generator`` predicts the next tokens.

    Parameters
    ----------
    model : Transformer
        Encoder and decoder, as ``make_model`` builds them.
    src, tgt : Tensor
        int64 [B, m] and [B, n]: inputs of encoder and decoder, padded with any id.
    src_lengths : sequence of int, optional
        Tokens in each row of ``src``; all of them where not given.

    Returns
    -------
    Tensor
        [B, n, dim_model]

    Raises
    ------
    TypeError, ValueError
        If an id lies outside the vocabulary, or rows or lengths do not fit.
    """
    src_mask = _source_mask(src, src_lengths)
    return decode(model, tgt, encode(model, src, src_mask), src_mask)


def _source_mask(src: Tensor, lengths: Sequence[int] | None) -> Tensor | None:
    if lengths is None:
        return None
    if len(lengths) != len(src):
        raise ValueError(f"src_lengths must hold one length per row: {len(src)} rows, {len(lengths)} lengths")
    return padding_mask(lengths, src.shape[1]).to(src.device)


@torch.no_grad()
def greedy(
    model: Transformer,
    src: Tensor,
    sos_id: int,
    eos_id: int | Sequence[int],
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
    sos_id : int
        Start symbol.
    eos_id : int or sequence of int
        End symbol; any of several ends a row.
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
    ends = check_symbols(model.generator, sos_id, eos_id)
    written = torch.full((len(src), 1), sos_id, device=src.device)
    ended = torch.zeros(len(src), dtype=torch.bool, device=src.device)
    with evaluating(model):
        mask = _source_mask(src, src_lengths)
        memory = encode(model, src, mask)
        while written.shape[1] <= max_len and not bool(ended.all()):
            states = decode(model, written, memory, mask)[:, -1]
            best = model.generator.logits(states).argmax(-1)
            written = torch.cat([written, best[:, None]], 1)
            ended |= torch.isin(best, best.new_tensor(sorted(ends)))
    return [list(takewhile(lambda token: token not in ends, row[1:])) for row in written.tolist()]
