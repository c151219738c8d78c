"""The whole Transformer as a diagram: sub-layers in two columns, beside their residual streams."""

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attention_on_edges.figures.pipeline import arrow, box
from attention_on_edges.figures.style import EDGE_KINDS, PALETTE

SUBLAYERS = {
    "encoder": [("self-attention", "enc"), ("feed-forward", None)],
    "decoder": [("masked attention", "dec"), ("cross-attention", "cross"), ("feed-forward", None)],
}
TRUNK = {"encoder": 0.0, "decoder": 5.6}
BOXES = {"encoder": 1.35, "decoder": 4.25}
MIDDLE = 2.8
HALF = 0.19
"""Half a box's height, and the reach of its frame."""

LINE: dict[str, Any] = {"color": PALETTE["ink"], "lw": 1.4, "zorder": 0}
"""A part of the trunk or of a branch, beneath the boxes."""

ROOM = 1.75
"""Height of a sub-layer."""


def draw_architecture() -> Figure:
    """Draw encoder and decoder, with each norm before its sub-layer."""
    fig, ax = plt.subplots(figsize=(6.4, 7.6))
    top_of_encoder, _ = _column(ax, "encoder")
    top, cross = _column(ax, "decoder")
    _memory(ax, top_of_encoder, cross)
    box(ax, (MIDDLE, 1.2), "position", None)
    x = TRUNK["decoder"]
    for text in ("linear", "log-softmax"):
        arrow(ax, (x, top), (x, top + 0.34))
        box(ax, (x, top + 0.34 + HALF), text, None)
        top += 0.34 + 2 * HALF
    ax.text(x, top + 0.1, "next token", ha="center", va="bottom")
    ax.set(xlim=(-0.95, 6.55), ylim=(-0.65, top + 0.45))
    ax.set_axis_off()
    return fig


def _column(ax: Axes, side: str) -> tuple[float, float]:
    """Draw one side from its ids upwards; return the heights of its end and of its second sub-layer."""
    x = TRUNK[side]
    source = "source" if side == "encoder" else "target"
    ax.text(x, -0.05, f"{source} ids", ha="center", va="top")
    stage = "stage 1" if side == "encoder" else "stage 2"
    ax.text(x, -0.32, stage, ha="center", va="top", weight="bold")
    arrow(ax, (x, 0.0), (x, 0.36))
    box(ax, (x, 0.55), "embedding", None)
    _plus(ax, (x, 1.2), 0.74)
    inward = 1 if x < MIDDLE else -1
    arrow(ax, (MIDDLE - 0.82 * inward, 1.2), (x + 0.17 * inward, 1.2))
    bottom = y = 1.75
    cross = 0.0
    for number, (text, kind) in enumerate(SUBLAYERS[side]):
        height = _sublayer(ax, side, y, text, kind)
        cross = height if number == 1 else cross
        y += ROOM
    _frame(ax, side, bottom, y)
    ax.plot([x, x], [y - 0.17, y + 0.3], **LINE)
    box(ax, (x, y + 0.3 + HALF), "norm", None)
    return y + 0.3 + 2 * HALF, cross


def _sublayer(ax: Axes, side: str, y: float, text: str, kind: str | None) -> float:
    """Draw one sub-layer from height ``y``; return the height of its box."""
    x, aside = TRUNK[side], BOXES[side]
    norm, where, total = y + 0.35, y + 0.95, y + 1.4
    ax.plot([x, aside, aside], [y, y, norm - HALF], **LINE)
    box(ax, (aside, norm), "norm", None)
    arrow(ax, (aside, norm + HALF), (aside, where - HALF - 0.02))
    box(ax, (aside, where), text, kind)
    ax.plot([aside, aside], [where + HALF, total], **LINE)
    arrow(ax, (aside, total), (x + (0.17 if aside > x else -0.17), total))
    _plus(ax, (x, total), y - 0.38)
    return where


def _plus(ax: Axes, center: tuple[float, float], below: float) -> None:
    """Draw a sum on the trunk, and the trunk down to height ``below``."""
    x, y = center
    ax.plot([x, x], [below, y - 0.17], **LINE)
    ax.text(x, y, "+", ha="center", va="center", bbox={"boxstyle": "circle,pad=0.12", "fc": "white"})


def _frame(ax: Axes, side: str, bottom: float, top: float) -> None:
    left, right = (-0.85, 2.3) if side == "encoder" else (3.3, 6.45)
    place: dict[str, Any] = {"fill": False, "ec": PALETTE["pale"], "ls": (0, (4, 2))}
    ax.add_patch(Rectangle((left, bottom - 0.13), right - left, top - bottom + 0.05, **place))
    ax.text(BOXES[side], top, f"{side} layer, N times", ha="center", va="bottom")


def _memory(ax: Axes, top: float, cross: float) -> None:
    """Draw the path of the encoded source to the decoder's cross-attention."""
    color, dash = EDGE_KINDS["cross"]
    x, bend = TRUNK["encoder"], top + 0.4
    ax.plot([x, x, MIDDLE, MIDDLE], [top, bend, bend, cross], color=color, linestyle=dash, lw=1.4, zorder=0)
    arrow(ax, (MIDDLE, cross), (BOXES["decoder"] - 0.82, cross), "cross")
    ax.text(x + 0.1, top + 0.48, "encoded source: keys and values", va="bottom")
