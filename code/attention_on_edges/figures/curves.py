"""Lines and bars."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from attention_on_edges.figures.style import LINES


def curves(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    xlabel: str,
    ylabel: str,
    ax: Axes | None = None,
    markers: bool = False,
) -> Figure | SubFigure:
    """Draw named lines that differ in colour, dash and, if asked for, marker.

    Parameters
    ----------
    series : mapping of str to (x, y)
        The lines' names, each with two sequences of numbers.
    xlabel, ylabel : str
        Of the axes.
    ax : matplotlib axes, optional
        Where to draw; a new figure without it.
    markers : bool
        Whether points are marked.
    """
    ax = ax or plt.subplots()[1]
    for i, (name, (x, y)) in enumerate(series.items()):
        color, dash, marker = LINES[i]
        ax.plot(x, y, color=color, linestyle=dash, marker=marker if markers else None, label=name)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    if len(series) > 1:
        ax.legend()
    return ax.figure
