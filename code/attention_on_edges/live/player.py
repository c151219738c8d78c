"""Attention as a graph and as a matrix in one figure with selectors; a still picture where no script runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from attention_on_edges.figures import attention_maps
from attention_on_edges.live.element import Element, png

VIEWS = {"e2e": "source to source", "e2d": "source to target", "d2d": "target to target"}
"""Names of the tutorial's modes, in the order of ``attention_of``."""


@dataclass(frozen=True)
class AttentionView:
    """Weights on one attention graph.

    Attributes
    ----------
    name : str
        Which graph.
    weights : array
        [..., receivers, senders], one axis before these two for each of the player's dimensions. Pairs whose
        weight is zero in every matrix are no edges, since a softmax is zero only where there is no edge.
    receivers, senders : sequence of str
        Tokens.
    """

    name: str
    weights: np.ndarray
    receivers: Sequence[str]
    senders: Sequence[str]


class AttentionPlayer:
    """Attention on one sentence as a graph and as a matrix, with a selector for the view and each dimension.

    Displays itself in notebooks and in the built book: style, script and data are part of its HTML. The last
    dimension has a slider that plays, the others have lists; what has one value has neither. An edge that the
    pointer or the arrow keys choose in either drawing is marked in both, and its weight is told beneath them.
    Without script, one matrix is a still picture: the view shown first, but at the last value of the last
    dimension and the first value of the others. In print, both drawings have captions.

    Parameters
    ----------
    views : sequence of AttentionView
        What can be looked at.
    dimensions : mapping of str to sequence of str
        Names of the axes before receivers and senders, such as layer, head or moment, with names of all their
        values.
    title : str
        For screen readers.
    shown : str, optional
        Name of the view shown first; the first one if not given.
    start : int
        At which value of the last dimension the slider begins.
    """

    def __init__(
        self,
        views: Sequence[AttentionView],
        dimensions: Mapping[str, Sequence[str]],
        title: str = "Attention",
        shown: str | None = None,
        start: int = 0,
    ):
        self.views = list(views)
        self.dimensions = {name: list(values) for name, values in dimensions.items()}
        names = [view.name for view in self.views]
        self.shown = names[0] if shown is None else shown
        data = {
            "title": title,
            "dimensions": [{"name": n, "values": v} for n, v in self.dimensions.items()],
            "views": [self._pack(view) for view in self.views],
            "shown": names.index(self.shown),
            "start": range(len(list(self.dimensions.values())[-1]))[start],
        }
        view = self.views[names.index(self.shown)]
        weights = np.asarray(view.weights)[(0,) * (len(self.dimensions) - 1)][-1]
        values = list(self.dimensions.values())
        where = ", ".join([view.name, *(v[0] for v in values[:-1] if len(v) > 1), values[-1][-1]])
        self.told = (
            f"{title}, {where}: {len(view.receivers)} tokens attend to {len(view.senders)}; a token's "
            f"largest weight is {weights.max(1).mean():.2f} on average."
        )
        picture = png(attention_maps([weights], view.receivers, view.senders))
        self._element = Element("player", data, picture, self.told)

    def _pack(self, view: AttentionView) -> dict[str, object]:
        """Edges as numbers ``receiver * senders + sender``; for each matrix their weights in thousandths."""
        weights = np.asarray(view.weights, dtype=np.float64)
        flat = weights.reshape(prod(weights.shape[:-2]), -1)
        edges = np.flatnonzero(flat.any(0))
        return {
            "name": view.name,
            "receivers": list(view.receivers),
            "senders": list(view.senders),
            "edges": edges.tolist(),
            "weights": (flat[:, edges] * 1000).round().astype(int).tolist(),
        }

    def _repr_html_(self) -> str:
        return self._element._repr_html_()


def att_animation(
    maps: Sequence[Sequence[np.ndarray]],
    mode: str,
    src: Sequence[str],
    tgt: Sequence[str],
    head_id: int,
    moments: Sequence[str] | None = None,
) -> AttentionPlayer:
    """Show how one head's attention changes over the recorded maps.

    All three graphs can be selected; ``mode`` is the one shown first. To show one alone, or several heads,
    build an :class:`AttentionPlayer`.

    Parameters
    ----------
    maps : sequence of list of Tensor, from ``attention_of``
        One ``[e2e, e2d, d2d]`` a moment, each [heads, receivers, senders].
    mode : str
        ``"e2e"``, ``"e2d"`` or ``"d2d"``: from encoder or decoder tokens to encoder or decoder tokens.
    src, tgt : sequence of str
        Source symbols, and those that the decoder read.
    head_id : int
        Which head.
    moments : sequence of str, optional
        What each moment is called; "epoch 1", "epoch 2", ... if not given.
    """
    ends = {"e2e": (src, src), "e2d": (tgt, src), "d2d": (tgt, tgt)}  # receivers, senders
    views = [
        AttentionView(VIEWS[m], np.stack([np.asarray(moment[i][head_id]) for moment in maps]), *ends[m])
        for i, m in enumerate(VIEWS)
    ]
    named = list(moments) if moments else [f"epoch {i + 1}" for i in range(len(maps))]
    return AttentionPlayer(views, {"moment": named}, f"Attention of head {head_id}", VIEWS[mode])
