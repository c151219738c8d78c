"""Live figures of the chapters: what each is given, and its still picture."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from attention_on_edges.figures import PALETTE, draw_with_mask
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
