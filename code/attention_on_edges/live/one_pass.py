"""One pass of a translator, its states read as words, with an edge that can be cut (chapter 2)."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from attention_on_edges.figures import PALETTE
from attention_on_edges.live.element import Element, png
from attention_on_edges.runs.lens import as_words, decoder_states, encoder_states, rows_of, translate_from
from attention_on_edges.runs.translator import Translator

LIKELIEST, NUMBERS = 5, 3
"""Words told of a state, and numbers told of a vector."""


@torch.no_grad()
def one_pass(translator: Translator, text: str, cut: tuple[str, str], language: str = "fr") -> Element:
    """One pass over a text and its greedy translation: what each state would write, and how it came about.

    Parameters
    ----------
    translator : Translator
        Translates.
    text : str
        What it translates.
    cut : tuple of two str
        A piece of the text, and one of the translation: the edge from the one to the place that is to write
        the other can be cut, in all layers and heads at once.
    language : str
        The code of the translation's language, for who reads it aloud.
    """
    model, vocabulary = translator.model, translator.vocabulary
    source = translator.encode(text)
    memories = encoder_states(model, torch.tensor(source))
    ids = [vocabulary.sos_id, *translate_from(model, memories[-1]), vocabulary.eos_id]
    senders, words = _words(translator, source), _words(translator, ids)
    edge = words[1:].index(cut[1]), senders.index(cut[0])
    read, attention = torch.tensor(ids[:-1]), model.decoder.layers[0].self_attn
    embedded = model.tgt_embed(read), model.pos_enc(torch.arange(len(read)))
    data = {
        "title": "One pass, step by step",
        "language": language,
        "source": [*zip(senders, source, strict=True)],
        "read": [*zip(words, ids[:-1], strict=False)],
        "next": words[1:],
        "rows": rows_of(model),
        "cut": edge,
        "lens": [_said(translator, memory) for memory in memories],
        "embedded": [_rounded(vectors[:, :NUMBERS], 2) for vectors in embedded],
        "widths": [attention.dim_model, attention.d_k],
        "runs": [_run(translator, read, words, memories[-1], one) for one in (None, edge)],
    }
    return Element("one_pass", data, _picture(data), _told(data))


def _words(translator: Translator, ids: Sequence[int]) -> list[str]:
    """Pieces as a newcomer reads them: ``chat`` begins a word, ``-eau`` continues one, ``_`` is a space."""
    pieces = translator.vocabulary.decode(ids)
    shown = [p if p in ("<sos>", "<eos>", "<pad>") else translator.splitter.show([p])[0] for p in pieces]
    plain = [text[1:] if text[:1] == "_" and text[1:2].isalnum() else text for text in shown]
    return [
        f"-{text}" if text[:1].isalnum() and text == whole else text
        for text, whole in zip(plain, shown, strict=True)
    ]


def _said(translator: Translator, memory: Tensor, cut: tuple[int, int] | None = None) -> str:
    ids = translate_from(translator.model, memory, cut=cut)
    return translator.splitter.join(translator.vocabulary.decode(ids))


def _rounded(numbers: Tensor, digits: int) -> Any:
    return numbers.double().round(decimals=digits).tolist()


def _run(
    translator: Translator, read: Tensor, words: Sequence[str], memory: Tensor, cut: tuple[int, int] | None
) -> dict[str, Any]:
    """Return what a pass with or without an edge computes.

    Returns
    -------
    dict
        ``said``, the translation that the model decodes; ``tops`` [rows][places], the likeliest words with
        probabilities, and ``kinds``: whether the first one is the word that was ``read``, the ``next`` or an
        ``other``; for each row of attention ``dots`` [heads][receivers][senders], q times k, and ``values``
        [heads][senders], the first of their numbers.
    """
    model = translator.model
    states = decoder_states(model, read, memory, cut)
    found = as_words(model, states).exp().topk(LIKELIEST)
    tops = [
        [[*zip(_words(translator, i), _rounded(p, 4), strict=True)] for i, p in zip(*row, strict=True)]
        for row in zip(found.indices.tolist(), found.values, strict=True)
    ]
    kinds = [
        [
            "next" if top[0][0] == new else "read" if top[0][0] == old else "other"
            for top, old, new in zip(row, words, words[1:], strict=False)
        ]
        for row in tops
    ]
    dots, values = {}, {}
    for row, (number, name) in enumerate(rows_of(model)):
        if number is not None and name != "feed-forward":
            layer, across = model.decoder.layers[number], name == "cross-attention"
            attention = layer.src_attn if across else layer.self_attn
            x = layer.sublayer[int(across)].before(states[row - 1])
            fields = attention.get(x, "q") | attention.get(memory if across else x, "kv")
            dots[row] = _rounded(torch.einsum("nhd,mhd->hnm", fields["q"], fields["k"]), 3)
            values[row] = _rounded(fields["v"].transpose(0, 1)[..., :NUMBERS], 2)
    said = _said(translator, memory, cut)
    return {"said": said, "tops": tops, "kinds": kinds, "dots": dots, "values": values}


def _names(data: Mapping[str, Any]) -> list[str]:
    return [name if layer is None else f"layer {layer + 1}, {name}" for layer, name in data["rows"]]


def _told(data: Mapping[str, Any]) -> str:
    run = data["runs"][0]
    counts = [f"{row.count('read')} and {row.count('next')}" for row in run["kinds"]]
    rows = "; ".join(f"{name} {count}" for name, count in zip(_names(data), counts, strict=True))
    return (
        f"A grid of the {len(data['next'])} places of “{run['said']}” by the steps of the decoder. "
        f"Places that would write the word that they have read, and places that would write the next: {rows}."
    )


LOOKS = {
    "read": (PALETTE["green"], "normal"),
    "next": (PALETTE["orange"], "bold"),
    "other": (PALETTE["pale"], "normal"),
}


def _picture(data: Mapping[str, Any]) -> bytes:
    figure, ax = plt.subplots(figsize=(7.2, 0.42 * len(data["rows"]) + 0.5), layout="constrained")
    for y, row in enumerate(zip(data["runs"][0]["kinds"], data["runs"][0]["tops"], strict=True)):
        for x, (kind, ((word, share), *_)) in enumerate(zip(*row, strict=True)):
            (color, weight), box = LOOKS[kind], (x - 0.46, y - 0.42)
            ax.add_patch(plt.Rectangle(box, 0.92, 0.84, color=color, alpha=0.6 * share, lw=0))
            ax.text(x, y, word.replace("$", r"\$"), ha="center", va="center", weight=weight)
    ax.set_xticks(range(len(data["next"])), data["next"])
    ax.set_yticks(range(len(data["rows"])), _names(data))
    ax.set(xlim=(-0.5, len(data["next"]) - 0.5), ylim=(len(data["rows"]) - 0.5, -0.5), xlabel="writes")
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return png(figure)
