"""A live figure of a chapter: data of its cell, drawn by a script; without one, a still picture."""

import base64
import html
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from PIL import Image

MOST_BYTES = 200_000
"""Data of one element."""


def read(name: str) -> str:
    """A file of this package."""
    return files("attention_on_edges.live").joinpath(name).read_text("utf-8")


@dataclass(frozen=True)
class Element:
    """Displays itself in notebooks and in the built book: style, scripts and data are part of its HTML.

    Attributes
    ----------
    name : str
        Of the script, ``NAME.js``, which registers the function of that name that draws.
    data : mapping
        What the script draws, as JSON.
    picture : bytes
        A PNG: shown where no script runs, and in print.
    told : str
        What the picture shows, for those who cannot see it.

    Raises
    ------
    ValueError
        If the data exceed 200 kB or hold what JSON has no word for, such as NaN.
    """

    name: str
    data: Mapping[str, Any]
    picture: bytes
    told: str

    def __post_init__(self) -> None:
        if len(self.packed) > MOST_BYTES:
            raise ValueError(
                f"data of {len(self.packed):,} bytes exceed {MOST_BYTES:,}: show fewer tokens or values"
            )

    @property
    def packed(self) -> str:
        """The data as they stand in the page."""
        return json.dumps(self.data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")

    @property
    def _style(self) -> str:
        own = files("attention_on_edges.live").joinpath(f"{self.name}.css")
        return own.read_text("utf-8") if own.is_file() else ""

    def _repr_html_(self) -> str:
        source = base64.b64encode(self.picture).decode()
        return (
            f"<style>{read('element.css')}{self._style}</style>"
            f'<div class="edgewise-element {self.name}">'
            f'<img alt="{html.escape(self.told, quote=True)}" src="data:image/png;base64,{source}">'
            f'<script type="application/json">{self.packed}</script></div>'
            f"<script>{compact(read('base.js'))}\n{compact(read(self.name + '.js'))}</script>"
        )


def png(figure: Figure, dpi: int = 110) -> bytes:
    """A figure as a PNG of 64 colours, without a date; the figure is closed."""
    drawn, picture = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi)
    plt.close(figure)
    Image.open(drawn).convert("RGB").quantize(64).save(picture, format="png", optimize=True)
    return picture.getvalue()


def compact(script: str) -> str:
    """A script without its comments' lines and its indentation."""
    lines = (line.strip() for line in script.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))
