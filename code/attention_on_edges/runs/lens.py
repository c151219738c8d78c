"""Chapters 2 and 9: states between the layers, read as words by the model's own output layer and decoder."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from attention_on_edges.decoding import greedy
from attention_on_edges.layers import DecoderLayer
from attention_on_edges.models.dense import causal_mask, encoder_layer
from attention_on_edges.models.transformer import Transformer
from attention_on_edges.runs.study_results import Rows

SUBLAYERS = ("self-attention", "cross-attention", "feed-forward")
"""Of a decoder layer, in their order."""


def rows_of(model: Transformer) -> list[tuple[int | None, str]]:
    """Return the layer and the name of what each of :func:`decoder_states` comes after."""
    return [(None, "embedding"), *((i, name) for i in range(model.decoder.N) for name in SUBLAYERS)]


def encoder_states(model: Transformer, source: Tensor) -> Tensor:
    """Return the source's states after its embedding and after each encoder layer, through the final norm.

    The last are what the decoder attends to. That it can attend to the others, too, is the *DecoderLens* of
    Langedijk et al. 2024.

    Parameters
    ----------
    model : Transformer
        Runs in its current mode.
    source : Tensor
        int64 [m]

    Returns
    -------
    Tensor
        [N + 1, m, dim_model]
    """
    states = [model.embed(model.src_embed, source, torch.arange(len(source)))]
    for layer in model.encoder.layers:
        states.append(encoder_layer(layer, states[-1]))
    return model.encoder.norm(torch.stack(states))


def decoder_states(
    model: Transformer, read: Tensor, memory: Tensor, cut: tuple[int, int] | None = None
) -> Tensor:
    """Return the target's states after its embedding and after each sub-layer of the decoder, not normed.

    Parameters
    ----------
    model : Transformer
        Runs in its current mode.
    read : Tensor
        int64 [n], what the decoder reads.
    memory : Tensor
        [m, dim_model], what it attends to.
    cut : tuple of two int, optional
        Receiver and sender of an edge from source to target that no layer and no head has.

    Returns
    -------
    Tensor
        [3 * N + 1, n, dim_model]
    """
    edges = _cross_edges(len(read), len(memory), cut)
    states = [model.embed(model.tgt_embed, read, torch.arange(len(read)))]
    for layer in model.decoder.layers:
        for connection, function in zip(layer.sublayer, _sublayers(layer, memory, edges), strict=True):
            states.append(connection(states[-1], function))
    return torch.stack(states)


def _cross_edges(n: int, m: int, cut: tuple[int, int] | None) -> Tensor:
    """All but the one that is cut: bool [n, m]."""
    edges = torch.ones(n, m, dtype=torch.bool)
    if cut is not None and cut[0] < n:
        edges[cut] = False
    return edges


def _sublayers(layer: DecoderLayer, memory: Tensor, edges: Tensor) -> list[Callable[[Tensor], Tensor]]:
    """The functions of ``SUBLAYERS``, each [n, dim_model] to the same."""
    return [
        lambda x: layer.self_attn(x, mask=causal_mask(len(x)))[0],
        lambda x: layer.src_attn(x, memory, edges)[0],
        layer.feed_forward,
    ]


def as_words(model: Transformer, states: Tensor) -> Tensor:
    """Return what the model would write if the decoder stopped at these states: the *logit lens*.

    Nostalgebraist 2020. From states [..., dim_model] to log-probabilities [..., vocabulary].
    """
    return model.generator(model.decoder.norm(states))


def translate_from(
    model: Transformer, memory: Tensor, start: int = 0, end: int = 1, cut: tuple[int, int] | None = None
) -> list[int]:
    """Decode greedily from any states of the source, [m, dim_model], with one edge cut if asked for."""
    read = [start]
    while len(read) <= 2 * len(memory) + 10:
        state = decoder_states(model, torch.tensor(read), memory, cut)[-1, -1]
        best = int(as_words(model, state).argmax())
        if best == end:
            break
        read.append(best)
    return read[1:]


@torch.no_grad()
def measure_lens(model: Transformer, sources: Sequence[Sequence[int]], start: int = 0, end: int = 1) -> Rows:
    """Return what states are read as, over the greedy translations of sources.

    Returns
    -------
    list of dict
        First the decoder's: ``after`` which sub-layer of which ``layer`` (the embedding has none), and the
        shares of ``places`` whose likeliest token is the one just ``read``, and the ``next`` one. Then the
        encoder's: the share of sentences that are translated the ``same`` from states after that layer.
    """
    names = rows_of(model)
    hits, places = torch.zeros(len(names), 2, dtype=torch.float64), 0
    same = torch.zeros(model.encoder.N + 1, dtype=torch.float64)
    for source, found in zip(sources, greedy(model, sources, start, end), strict=True):
        tokens = torch.tensor([start, *found.ids, *([end] if found.finished else [])])
        memory = encoder_states(model, torch.tensor(source))
        best = as_words(model, decoder_states(model, tokens[:-1], memory[-1])).argmax(-1)  # [3 N + 1, n]
        hits += torch.stack([best == tokens[:-1], best == tokens[1:]], -1).sum(1)
        same += torch.tensor([translate_from(model, one, start, end) == [*found.ids] for one in memory])
        places += len(tokens) - 1
    shares = (hits / places).tolist()
    rows: Rows = [
        {"side": "decoder", "layer": layer, "after": name, "read": read, "next": following, "places": places}
        for (layer, name), (read, following) in zip(names, shares, strict=True)
    ]
    for layer, share in zip([None, *range(model.encoder.N)], (same / len(sources)).tolist(), strict=True):
        after = "embedding" if layer is None else "layer"
        rows.append({"side": "encoder", "layer": layer, "after": after, "same": share})
    return rows
