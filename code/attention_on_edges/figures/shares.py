"""A batch shared out among processes."""

import math
from collections.abc import Sequence
from itertools import combinations

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from attention_on_edges.figures.style import LINES, PALETTE

Place = tuple[float, float]


def draw_shares(lengths: Sequence[int], shares: Sequence[Sequence[int]]) -> Figure:
    """Draw sentences as complete graphs on rings, above the same sentences grouped by process.

    Parameters
    ----------
    lengths : sequence of int
        Tokens of each sentence of the batch.
    shares : sequence of sequences of int
        Which sentences each process has; processes differ in colour and shape of tokens.
    """
    owner = {s: rank for rank, own in enumerate(shares) for s in own}
    fig, ax = plt.subplots(figsize=(6.4, 4.6))
    for s, length in enumerate(lengths):
        _sentence(ax, (s + 0.5, 3.0), length, owner[s], f"{s}")
    slot = len(lengths) / len(shares)
    middle = (len(lengths) / 2, -0.35)
    for rank, own in enumerate(shares):
        center = (rank + 0.5) * slot
        color = LINES[rank][0]
        tokens = sum(lengths[s] for s in own)
        corner = (rank * slot + 0.06, 0.72)
        ax.add_patch(plt.Rectangle(corner, slot - 0.12, 1.44, fill=False, edgecolor=color))
        for i, s in enumerate(own):
            _sentence(ax, (center + i - (len(own) - 1) / 2, 1.7), lengths[s], rank, f"{s}")
        ax.text(center, 0.77, f"process {rank}: {tokens} tokens", ha="center", va="bottom", color=color)
        style = {"arrowstyle": "<->", "color": color, "lw": 1.8, "shrinkA": 0, "shrinkB": 14}
        ax.annotate("", (center, 0.72), middle, arrowprops=style | {"shrinkA": 14, "shrinkB": 2})
    box = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": PALETTE["ink"]}
    ax.text(*middle, "gradients, added up:\nthe same update in each", ha="center", va="center", bbox=box)
    ax.text(0.0, 3.62, "the graph of a batch", ha="left")
    ax.set(xlim=(-0.05, len(lengths) + 0.05), ylim=(-0.75, 3.85))
    ax.set_axis_off()
    return fig


def _sentence(ax: Axes, center: Place, length: int, rank: int, label: str) -> None:
    """Draw a complete graph on a ring."""
    color, _, marker = LINES[rank]
    turns = [2 * math.pi * i / length for i in range(length)]
    ring = [(center[0] + 0.34 * math.sin(t), center[1] + 0.34 * math.cos(t)) for t in turns]
    ax.add_collection(LineCollection(list(combinations(ring, 2)), colors=color, linewidths=0.7, alpha=0.6))
    ax.plot(*zip(*ring, strict=True), linestyle="", marker=marker, color=color, markersize=5, zorder=3)
    ax.text(center[0], center[1] - 0.55, label, ha="center", va="center")
