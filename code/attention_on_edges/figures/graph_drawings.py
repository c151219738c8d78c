"""Graphs of tokens, drawn by networkx, and molecules."""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle

from attention_on_edges.figures.style import PALETTE
from edgewise.graphs import AttentionGraph

Place = tuple[float, float]

LABEL = {"font_color": PALETTE["ink"], "font_size": 10}
NODE = {"node_color": "white", "edgecolors": PALETTE["ink"], "linewidths": 1.2}


def _node_size(labels: Sequence[str]) -> int:
    """Room for the longest label, in square points."""
    return 480 + 230 * max(max(map(len, labels), default=0) - 2, 0)


def draw_graph(
    graph: nx.DiGraph,
    labels: Sequence[str],
    layout: str | Mapping[Hashable, Place] = "line",
    highlight: Hashable | None = None,
    ax: Axes | None = None,
) -> Figure | SubFigure:
    """Draw which token attends to which; arrows run from sender to receiver.

    Parameters
    ----------
    graph : networkx.DiGraph
        Of ``AttentionGraph.to_networkx()``.
    labels : sequence of str
        One per node, in the order of the graph's nodes.
    layout : str or mapping
        ``"line"``, ``"circle"``, or the place (x, y) of each node.
    highlight : node, optional
        A receiver whose in-edges are highlighted.
    """
    nodes = list(graph)
    layouts = {"line": _line, "circle": _circle}
    ax = ax or plt.subplots(figsize=(4.6, 2.3 if layout == "line" else 3.2))[1]
    places = layouts[layout](nodes) if isinstance(layout, str) else layout
    two_sets = any(isinstance(node, tuple) for node in nodes)
    bend = 0 if two_sets else {"line": -0.55, "circle": 0.08}.get(str(layout), -0.3)
    strong = [e for e in graph.edges if e[1] == highlight]
    weak = [e for e in graph.edges if e[1] != highlight]
    if layout == "line":
        reach, backward = 0.35 + 0.22 * len(nodes), any(i > j for i, j in graph.edges)
        ax.set(xlim=(-0.6, len(nodes) - 0.4), ylim=(-reach if backward else -0.6, reach))
    style = {"node_size": _node_size(labels), "arrowsize": 9, "connectionstyle": f"arc3,rad={bend}", "ax": ax}
    nx.draw_networkx_nodes(graph, places, node_size=_node_size(labels), ax=ax, **NODE)
    nx.draw_networkx_labels(graph, places, dict(zip(nodes, labels, strict=True)), ax=ax, **LABEL)
    faint = PALETTE["pale"] if highlight is not None else PALETTE["blue"]
    nx.draw_networkx_edges(graph, places, weak, edge_color=faint, width=0.9, **style)
    nx.draw_networkx_edges(graph, places, strong, edge_color=PALETTE["orange"], width=2.0, **style)
    ax.set_axis_off()
    if layout != "line":
        ax.margins(0.12)
    return ax.figure


def _line(nodes: Sequence[Hashable]) -> dict[Hashable, Place]:
    return {node: (float(i), 0.0) for i, node in enumerate(nodes)}


def _circle(nodes: Sequence[Hashable]) -> dict[Hashable, Place]:
    turn = 2 * math.pi / max(len(nodes), 1)
    return {node: (math.sin(i * turn), math.cos(i * turn)) for i, node in enumerate(nodes)}


def draw_with_mask(graph: AttentionGraph, labels: Sequence[str], highlight: int | None = None) -> Figure:
    """Draw a graph in a line beside its mask, as :func:`draw_graph` does; one receiver's row is framed."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(7.4, 3.1), width_ratios=(2.4, 1))
    draw_graph(graph.to_networkx(), labels, highlight=highlight, ax=left)
    left.set_ylim(-1, 1)  # room for arcs on both sides
    right.imshow(graph.to_mask().numpy(), vmin=0, vmax=1.2)
    n = graph.num_src
    if highlight is not None:
        style: dict[str, Any] = {"fill": False, "ec": PALETTE["orange"], "lw": 2.5, "zorder": 3}
        right.add_patch(Rectangle((-0.5, highlight - 0.5), n, 1, clip_on=False, **style))
    right.set_xticks(range(n), labels, rotation=90)
    right.set_yticks(range(n), labels)
    right.set_xticks([i + 0.5 for i in range(n - 1)], minor=True)
    right.set_yticks([j + 0.5 for j in range(n - 1)], minor=True)
    right.grid(which="minor", color="white", lw=1.5)
    right.tick_params(which="both", length=0)
    right.set(xlabel="sender", ylabel="receiver")
    return fig


def draw_molecule(
    places: Sequence[Place],
    elements: Sequence[str],
    bonds: Sequence[Sequence[int]],
    weights: Mapping[int, float] | None = None,
    ax: Axes | None = None,
    title: str = "",
) -> Figure | SubFigure:
    """Draw a molecule, and what is attended to in it.

    Parameters
    ----------
    places, elements : sequence
        Of its atoms; carbon is a corner without a letter, as chemists draw it.
    bonds : sequence of (int, int, int)
        Two atoms and the kind: 1 to 3, or 4 if aromatic, which is drawn as a second, dashed line.
    weights : mapping of int to float, optional
        Attention by sender: the area of a disc on it.
    """
    ax = ax or plt.subplots(figsize=(4.6, 2.6))[1]
    ring = np.mean([places[atom] for *ends, kind in bonds if kind == 4 for atom in ends] or [(0, 0)], 0)
    for a, b, kind in bonds:
        (x, y), (u, v) = places[a], places[b]
        inside = (v - y) * (ring[0] - x) + (x - u) * (ring[1] - y) > 0
        across = math.copysign(0.09, inside - 0.5) / math.dist((x, y), (u, v))
        for i in range(2 if kind == 4 else kind):
            side = across * (2 * i - (kind - 1 if kind < 4 else 0))
            dx, dy = (v - y) * side, (x - u) * side
            dashed = "--" if kind == 4 and i else "-"
            ax.plot([x + dx, u + dx], [y + dy, v + dy], dashed, color=PALETTE["ink"], lw=1, zorder=1)
    for place, element in zip(places, elements, strict=True):
        if element != "C":
            ax.scatter(*place, 110, color="white", lw=0, zorder=2)
            ax.text(*place, element, ha="center", va="center", size=10, zorder=5)
    for atom, weight in (weights or {}).items():
        ax.scatter(*places[atom], 700 * weight, color=PALETTE["orange"], alpha=0.8, lw=0, zorder=3)
    ax.set(aspect="equal", title=title)
    ax.margins(0.1)
    ax.set_axis_off()
    return ax.figure
