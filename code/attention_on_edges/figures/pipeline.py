"""The forward pass and a layer as diagrams: boxes for operations, arrows for states."""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from attention_on_edges.figures.style import EDGE_KINDS, PALETTE

COLUMNS = {"enc": 0.0, "dec": 2.7, "cross": 4.9}
BUS = 6.15
"""Where the encoded source runs down to the rounds of cross-attention."""

Point = tuple[float, float]


def draw_forward_pass(num_layers: int) -> Figure:
    """Draw the two stages of a forward pass: what is updated, on which graph, from which states."""
    fig, ax = plt.subplots(figsize=(6.4, 1.5 + 1.15 * num_layers))
    height = num_layers + 1.4
    first = height - 0.95  # of the layers' rows, one below the other
    last = first - (num_layers - 1)
    box(ax, (COLUMNS["enc"], height), "embed source", None)
    box(ax, (COLUMNS["dec"], height), "embed target", None)
    for i in range(num_layers):
        y, below = first - i, first - i - 0.45
        box(ax, (COLUMNS["enc"], y), f"enc, layer {i}", "enc")
        box(ax, (COLUMNS["dec"], y), f"dec, layer {i}", "dec")
        box(ax, (COLUMNS["cross"], below), f"cross, layer {i}", "cross")
        above = height - 0.21 if i == 0 else y + 0.79
        arrow(ax, (COLUMNS["enc"], above), (COLUMNS["enc"], y + 0.22))
        if i == 0:
            arrow(ax, (COLUMNS["dec"], above), (COLUMNS["dec"], y + 0.22))
        else:
            arrow(ax, (COLUMNS["cross"] - 0.5, y + 0.34), (COLUMNS["dec"] + 0.6, y + 0.2))
        arrow(ax, (COLUMNS["dec"] + 0.5, y - 0.21), (COLUMNS["cross"] - 0.82, below))
        arrow(ax, (BUS, below), (COLUMNS["cross"] + 0.82, below), "cross")
    bottom = _draw_bus(ax, last, first - 0.45)
    box(ax, (COLUMNS["cross"], bottom - 0.55), "logits", None)
    arrow(ax, (COLUMNS["cross"], last - 0.66), (COLUMNS["cross"], bottom - 0.34))
    for stage, x in (("stage 1", COLUMNS["enc"]), ("stage 2", (COLUMNS["dec"] + COLUMNS["cross"]) / 2)):
        ax.text(x, height + 0.42, stage, ha="center", weight="bold")
    ax.set_xlim(-1.0, 6.4)
    ax.set_ylim(bottom - 0.9, height + 0.7)
    ax.set_axis_off()
    return fig


def _draw_bus(ax: Axes, last: float, top: float) -> float:
    """Draw the path of the encoded source past the cross-attention rounds; return its lowest height."""
    color, dash = EDGE_KINDS["cross"]
    bottom = last - 0.85
    x, y = [COLUMNS["enc"], COLUMNS["enc"], BUS, BUS], [last - 0.21, bottom, bottom, top]
    ax.plot(x, y, color=color, linestyle=dash, lw=1.4)
    ax.text(0.12, bottom + 0.08, "keys and values of the encoded source", va="bottom")
    return bottom


def draw_layers(layers: Mapping[str, Sequence[str]], between_nodes: Collection[int]) -> Figure:
    """Draw layers side by side, each as a pipeline from top to bottom, equal steps at equal height.

    Parameters
    ----------
    layers : mapping of str to sequence of str
        Each layer's steps, as many for all; an empty string where a layer lacks a step.
    between_nodes : collection of int
        Steps in which states of several nodes meet; they stand out.
    """
    count = max(map(len, layers.values()))
    fig, ax = plt.subplots(figsize=(6.4, 0.8 + 0.52 * count))
    for column, (name, steps) in enumerate(layers.items()):
        x = 2.15 * column
        ax.text(x, 0.45, name, ha="center", weight="bold")
        shown = [row for row, text in enumerate(steps) if text]
        for row in shown:
            box(ax, (x, -0.75 * row), steps[row], "cross" if row in between_nodes else None, width=2.0)
        for above, below in pairwise(shown):
            arrow(ax, (x, -0.75 * above - 0.21), (x, -0.75 * below + 0.22))
    ax.set_xlim(-1.1, 2.15 * len(layers) - 1.05)
    ax.set_ylim(-0.75 * count + 0.4, 0.8)
    ax.set_axis_off()
    return fig


def box(ax: Axes, center: Point, text: str, kind: str | None, width: float = 1.6) -> None:
    """Draw a box of height 0.38 with a text in it, in the colour of a kind of edges."""
    color = EDGE_KINDS[kind][0] if kind else PALETTE["ink"]
    corner = (center[0] - width / 2, center[1] - 0.19)
    ax.add_patch(FancyBboxPatch(corner, width, 0.38, boxstyle="round,pad=0.02", fc="white", ec=color, lw=1.6))
    ax.text(*center, text, ha="center", va="center")


def arrow(ax: Axes, start: Point, end: Point, kind: str | None = None) -> None:
    """Draw a straight arrow in colour and dash of a kind of edges."""
    color, dash = EDGE_KINDS[kind] if kind else (PALETTE["ink"], "-")
    drawn = FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color=color, ls=dash, lw=1.4)
    ax.add_patch(drawn)
