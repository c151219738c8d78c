"""Attention through time: one figure, a still picture first, enhanced where a script may run."""

import base64
import html
import io
import json
from collections.abc import Sequence
from importlib.resources import files

import matplotlib.pyplot as plt
import numpy as np

from edgewise.figures.maps import attention_maps

MODES = ("e2e", "e2d", "d2d")
"""Source to source, source to target, target to target; the order of ``att_weight_map``."""


class AttentionPlayer:
    """Attention on one sentence at several moments, as a graph and as a matrix, with a slider through time.

    Displays itself in notebooks and in the built book. Without a script the last moment is a still picture.

    Parameters
    ----------
    weights : array
        [moments, receivers, senders], each row of a moment a distribution.
    receivers, senders : sequence of str
        Tokens.
    moments : sequence of str, optional
        What each moment is called; "step 1", "step 2", ... if not given.
    title : str
        Said aloud by screen readers and printed above the figure.

    Raises
    ------
    ValueError
        If shapes and labels do not fit, or there is no moment.
    """

    def __init__(
        self,
        weights: np.ndarray,
        receivers: Sequence[str],
        senders: Sequence[str],
        moments: Sequence[str] | None = None,
        title: str = "Attention",
    ):
        self.weights = np.asarray(weights, dtype=np.float64)
        self.receivers, self.senders = list(receivers), list(senders)
        expected = (len(self.receivers), len(self.senders))
        if self.weights.ndim != 3 or self.weights.shape[1:] != expected or not len(self.weights):
            raise ValueError(
                f"weights must be [moments, receivers, senders] = [1 or more, {expected[0]}, {expected[1]}], "
                f"got {list(self.weights.shape)}"
            )
        self.moments = list(moments) if moments else [f"step {i + 1}" for i in range(len(self.weights))]
        if len(self.moments) != len(self.weights):
            raise ValueError(f"moments must name each of {len(self.weights)}, got {len(self.moments)}")
        self.title = title

    def still(self, moment: int = -1) -> bytes:
        """Return one moment as a PNG picture."""
        fig = attention_maps([self.weights[moment]], self.receivers, self.senders)
        picture = io.BytesIO()
        fig.savefig(picture, format="png", dpi=110, metadata={"Software": None})
        plt.close(fig)
        return picture.getvalue()

    def describe(self, moment: int = -1) -> str:
        """Say in a sentence how focused one moment is."""
        weights = self.weights[moment]
        return (
            f"{self.title}, {self.moments[moment]}: {len(self.receivers)} tokens listen to "
            f"{len(self.senders)}; the token heard most gets {weights.max(1).mean():.2f} of the attention "
            "on average."
        )

    def _repr_html_(self) -> str:
        data = {
            "senders": self.senders,
            "receivers": self.receivers,
            "moments": self.moments,
            "title": self.title,
            "weights": (self.weights * 1000).round().astype(int).tolist(),
        }
        source = files("edgewise.figures")
        style, script = (source.joinpath(f"player.{kind}").read_text("utf-8") for kind in ("css", "js"))
        picture = base64.b64encode(self.still()).decode()
        safe = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
        return (
            f"<style>{style}</style>"
            f'<div class="edgewise-player">'
            f'<img alt="{html.escape(self.describe(), quote=True)}" src="data:image/png;base64,{picture}">'
            f'<script type="application/json">{safe}</script>'
            f"</div>"
            f"<script>{script}</script>"
        )


def att_animation(
    maps: Sequence[Sequence[np.ndarray]],
    mode: str,
    src: Sequence[str],
    tgt: Sequence[str],
    head_id: int,
    moments: Sequence[str] | None = None,
) -> AttentionPlayer:
    """Show how one head's attention changes over the recorded maps.

    Parameters
    ----------
    maps : sequence of att_weight_map
        One ``[e2e, e2d, d2d]`` a moment, each [heads, receivers, senders].
    mode : str
        ``"e2e"``, ``"e2d"`` or ``"d2d"``: from encoder or decoder tokens to encoder or decoder tokens.
    src, tgt : sequence of str
        Source symbols, and those that the decoder read.
    head_id : int
        Which head.
    moments : sequence of str, optional
        What each moment is called; "epoch 1", "epoch 2", ... if not given.

    Raises
    ------
    ValueError
        If there is no map, the mode or the head is unknown, or symbols and maps do not fit.
    """
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}; got {mode!r}")
    if not len(maps) or any(moment is None for moment in maps):
        raise ValueError("maps must hold one att_weight_map a moment, at least one and none of them None")
    chosen = [np.asarray(moment[MODES.index(mode)]) for moment in maps]
    heads = min(len(weights) for weights in chosen)
    if not 0 <= head_id < heads:
        raise ValueError(f"head_id must lie in 0..{heads - 1}, got {head_id}")
    senders, receivers = (tgt if mode == "d2d" else src), (src if mode == "e2e" else tgt)
    names = {"e2e": "Source to source", "e2d": "Source to target", "d2d": "Target to target"}
    return AttentionPlayer(
        np.stack([weights[head_id] for weights in chosen]),
        receivers,
        senders,
        moments or [f"epoch {i + 1}" for i in range(len(chosen))],
        f"{names[mode]}, head {head_id}",
    )
