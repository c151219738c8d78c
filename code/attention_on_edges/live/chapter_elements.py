"""Live figures of the chapters: what each is given, and its still picture."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from attention_on_edges.figures import PALETTE, attention_maps, draw_with_mask
from attention_on_edges.live.element import Element, png
from edgewise.graphs import AttentionGraph


def editable_graph(tokens: Sequence[str], graphs: Mapping[str, AttentionGraph]) -> Element:
    """A graph beside its mask; a click on a cell takes an edge away, or brings it back (chapter 4).

    Parameters
    ----------
    tokens : sequence of str
        Labels.
    graphs : mapping of str to AttentionGraph
        Graphs of these tokens to choose from, the first shown first.
    """
    title, first = next(iter(graphs.items()))
    figure = draw_with_mask(first, tokens)
    edges = {name: sorted(zip(g.dst.tolist(), g.src.tolist(), strict=True)) for name, g in graphs.items()}
    told = (
        f"The {title} graph of {len(tokens)} tokens beside its mask: {first.num_edges} edges, as many cells."
    )
    data = {"title": "A graph beside its mask", "tokens": list(tokens), "graphs": edges}
    return Element("mask", data, png(figure), told)


def one_receiver(tokens: Sequence[str], query: Any, key: Any, value: Any) -> Element:
    """One receiver at work: its scores, weights and weighted sum at any temperature (chapter 1).

    Parameters
    ----------
    tokens : sequence of str
        Labels of the n tokens, each of them a receiver and a sender.
    query, key, value : array or Tensor
        [n, d] each; values may be of another width. The receiver with the largest weight is shown first.
    """
    q, k, v = (np.asarray(given, dtype=np.float64).round(4) for given in (query, key, value))
    scores = q @ k.T / np.sqrt(q.shape[1])
    weights = np.exp(scores - scores.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    first, best = (int(i) for i in np.unravel_index(weights.argmax(), weights.shape))
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 2.8), layout="constrained")
    left.barh(range(len(tokens)), weights[first], color=PALETTE["orange"])
    left.set_yticks(range(len(tokens)), tokens)
    left.invert_yaxis()
    left.set(title=f"weights of “{tokens[first]}”", xlabel="weight", xlim=(0, 1))
    right.imshow(weights, vmin=0, vmax=1, cmap="Blues")
    right.set_xticks(range(len(tokens)), tokens, rotation=90)
    right.set_yticks(range(len(tokens)), tokens)
    right.set(title="all receivers", ylabel="receiver")
    told = (
        f"Bars of the weights that “{tokens[first]}” gives to {len(tokens)} senders, the largest "
        f"{weights[first, best]:.2f} to “{tokens[best]}”, beside the matrix of the weights of all receivers."
    )
    data = {"title": "One receiver at work", "tokens": list(tokens), "first": first}
    return Element("receiver", data | {"q": q.tolist(), "k": k.tolist(), "v": v.tolist()}, png(figure), told)


VIEWS = {"e2e": "source to source", "e2d": "source to target", "d2d": "target to target"}
"""Names of the tutorial's modes, in the order of ``attention_of``."""


def att_animation(
    maps: Sequence[Sequence[np.ndarray]],
    mode: str,
    src: Sequence[str],
    tgt: Sequence[str],
    head_id: int,
    moments: Sequence[str] | None = None,
) -> Element:
    """Show how one head's attention changes over the recorded maps (chapter 7).

    All three graphs can be selected; it begins at the first moment. Without a script, the last one is a still
    picture.

    Parameters
    ----------
    maps : sequence of list of Tensor, from ``attention_of``
        One ``[e2e, e2d, d2d]`` per moment, each [heads, receivers, senders]. Pairs whose weight is zero at
        every moment are no edges, since a softmax is zero only where there is no edge.
    mode : str
        The graph that is shown first: ``"e2e"``, ``"e2d"`` or ``"d2d"``.
    src, tgt : sequence of str
        Source symbols, and a name for each place of the target: the symbol that it is to write.
    head_id : int
        Which head, from 0.
    moments : sequence of str, optional
        What each moment is called; "epoch 1", "epoch 2", ... if not given.
    """
    ends = {"e2e": (src, src), "e2d": (tgt, src), "d2d": (tgt, tgt)}  # receivers, senders
    weights = {m: np.stack([np.asarray(moment[i][head_id]) for moment in maps]) for i, m in enumerate(VIEWS)}
    named = list(moments) if moments else [f"epoch {i + 1}" for i in range(len(maps))]
    title, last = f"Attention of head {head_id + 1}", weights[mode][-1]
    told = (
        f"{title}, {VIEWS[mode]}, {named[-1]}: {len(last)} tokens attend to {len(last[0])}; a token's "
        f"largest weight is {last.max(1).mean():.2f} on average."
    )
    views = [
        {
            "name": VIEWS[m],
            "receivers": list(ends[m][0]),
            "senders": list(ends[m][1]),
            "weights": np.where(w.any(0), w.astype(float).round(3), np.array(None)).tolist(),
        }
        for m, w in weights.items()
    ]
    data = {"title": title, "moments": named, "views": views, "shown": list(VIEWS).index(mode)}
    return Element("player", data, png(attention_maps([last], *ends[mode])), told)


NO_EFFECT = 0.1
"""Lines whose cut changes the logarithm of the likeliest word's probability by no more are not drawn."""


def lines_of(texts: Sequence[Mapping[str, Any]], notes: Mapping[int, str] | None = None) -> dict[str, Any]:
    """What ``lines.js`` draws of a language model's texts: parameters as in :func:`cut_lines`."""
    shown = [{field: text[field] for field in ("pieces", "likeliest", "lines", "silenced")} for text in texts]
    for number, text in enumerate(shown):
        text["note"] = (notes or {}).get(number, "")
        whole = text["likeliest"][0][1] + 1e-3
        text["lines"] = [line for line in text["lines"] if abs(np.log((line[2] + 1e-3) / whole)) > NO_EFFECT]
    return {"title": "Lines of a language model", "texts": shown}


def cut_lines(texts: Sequence[Mapping[str, Any]], notes: Mapping[int, str] | None = None) -> Element:
    """A language model's texts, with each word silenced and each line cut beforehand (chapter 15).

    Parameters
    ----------
    texts : sequence of mapping
        As ``measure_shown`` returns them. Without a script, a picture of the first one and the word without
        which its likeliest continuation loses most.
    notes : mapping of int to str, optional
        What is to be said of a text as long as nothing is cut.
    """
    first = texts[0]
    place, _, after = min(first["silenced"], key=lambda row: row[1])
    word, said = first["pieces"][place - 1].strip(), "".join(first["pieces"])
    figure, axes = plt.subplots(1, 2, figsize=(6.4, 2.2), sharex=True, layout="constrained")
    titles = "the next word", f"without “{word}”"
    for ax, title, likely in zip(axes, titles, (first["likeliest"], after), strict=True):
        ax.barh([w.strip() for w, _ in likely][::-1], [p for _, p in likely][::-1], color=PALETTE["orange"])
        ax.set(title=title, xlim=(0, 1))
    next_, then = (likely[0][0].strip() for likely in (first["likeliest"], after))
    told = f"“{said}” goes on with “{next_}”; without “{word}”, with “{then}”."
    return Element("lines", lines_of(texts, notes), png(figure), told)
