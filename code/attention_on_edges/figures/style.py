"""One palette, one typeface, one font size, vector output."""

from pathlib import Path

import matplotlib as mpl
from matplotlib import font_manager, rcsetup
from matplotlib.colors import LinearSegmentedColormap

FONTS = sorted(Path(__file__).with_name("fonts").glob("*.ttf"))
"""The face of the book's headings, regular and bold. What it lacks is drawn in matplotlib's own."""

PALETTE = {
    "blue": "#0072b2",
    "orange": "#d55e00",
    "green": "#009e73",
    "purple": "#aa4499",
    "sky": "#56b4e9",
    "ink": "#222222",
    "pale": "#9a9a9a",
}
"""Safe for every kind of colour vision (Okabe and Ito's set, darkened for thin lines)."""

LINES = [
    (PALETTE["blue"], "-", "o"),
    (PALETTE["orange"], "--", "s"),
    (PALETTE["green"], "-.", "^"),
    (PALETTE["purple"], ":", "D"),
    (PALETTE["ink"], (0, (5, 1, 1, 1, 1, 1)), "v"),
]
"""Colour, line style and marker of the first, second, ... series; none differ in colour alone."""

MATRIX, SIGNED = "matrix", "signed matrix"
"""Names of the colour maps: nothing is drawn for zero, so that the page shows through, light or dark."""

_STOPS = {
    MATRIX: [(0.0, (PALETTE["blue"], 0.0)), (1.0, PALETTE["blue"])],
    SIGNED: [
        (0.0, PALETTE["orange"]),
        (0.5, (PALETTE["orange"], 0.0)),
        (0.5, (PALETTE["blue"], 0.0)),
        (1.0, PALETTE["blue"]),
    ],
}


def use_style() -> None:
    """Set matplotlib up for the book; in a notebook, draw inline as SVG."""
    for font in FONTS:
        font_manager.fontManager.addfont(font)
    for name, stops in _STOPS.items():
        mpl.colormaps.register(LinearSegmentedColormap.from_list(name, stops), force=True)
    mpl.rcParams.update(
        {
            "figure.figsize": (6.4, 3.2),
            "figure.constrained_layout.use": True,
            "font.family": "sans-serif",
            "font.sans-serif": [font_manager.FontProperties(fname=FONTS[0]).get_name(), "DejaVu Sans"],
            "font.size": 12,  # inline_figures.py shows 12 points as high as the text
            "axes.titlesize": "medium",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": rcsetup.cycler(color=[color for color, _, _ in LINES]),
            "axes.edgecolor": PALETTE["ink"],
            "axes.labelcolor": PALETTE["ink"],
            "text.color": PALETTE["ink"],
            "xtick.color": PALETTE["ink"],
            "ytick.color": PALETTE["ink"],
            "image.cmap": MATRIX,
            "legend.frameon": False,
            "lines.linewidth": 1.8,
            "svg.fonttype": "none",  # text stays text
            "svg.hashsalt": "edgewise",
        }
    )
    try:
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:  # no notebook here
        return
    set_matplotlib_formats("svg")
