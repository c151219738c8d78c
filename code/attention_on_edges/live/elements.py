"""Live figures of the chapters: what each is given, and its still picture."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt

from attention_on_edges.figures import draw_graph
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

    Raises
    ------
    ValueError
        If there is no graph, or one is not of these tokens.
    """
    if not graphs:
        raise ValueError("graphs must hold at least one graph")
    for name, graph in graphs.items():
        if (graph.num_src, graph.num_dst) != (len(tokens), len(tokens)):
            sides = f"{graph.num_src} senders and {graph.num_dst} receivers"
            raise ValueError(f"{name!r} must be a graph of {len(tokens)} tokens, got {sides}")
    title, first = next(iter(graphs.items()))
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 2.8))
    draw_graph(first.to_networkx(), tokens, ax=left)
    right.imshow(first.to_mask(), vmin=0, vmax=1.4)
    right.set_xticks(range(len(tokens)), tokens, rotation=90)
    right.set_yticks(range(len(tokens)), tokens)
    edges = {name: sorted(zip(g.dst.tolist(), g.src.tolist(), strict=True)) for name, g in graphs.items()}
    told = (
        f"The {title} graph of {len(tokens)} tokens beside its mask: {first.num_edges} edges, as many cells."
    )
    data = {"title": "A graph beside its mask", "tokens": list(tokens), "graphs": edges}
    return Element("mask", data, png(figure), told)
