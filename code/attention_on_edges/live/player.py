"""Attention as a graph and as a matrix in one figure with selectors; a still picture where no script runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from attention_on_edges.figures import attention_maps
from attention_on_edges.live.element import Element, png

VIEWS = {"e2e": "source to source", "e2d": "source to target", "d2d": "target to target"}
"""Names of the tutorial's modes, in the order of ``att_weight_map``."""


@dataclass(frozen=True)
class AttentionView:
    """Weights on one attention graph.

    Attributes
    ----------
    name : str
        Which graph.
    weights : array
        [..., receivers, senders], one axis before these two for each of the player's dimensions.
    receivers, senders : sequence of str
        Tokens.
    edges : bool array, optional
        [receivers, senders], True where the receiver attends to the sender. If not given, pairs whose weight
        is zero in every matrix are no edges, since a softmax is zero only where there is no edge.
    """

    name: str
    weights: np.ndarray
    receivers: Sequence[str]
    senders: Sequence[str]
    edges: np.ndarray | None = None


class AttentionPlayer:
    """Attention on one sentence as a graph and as a matrix, with a selector for the view and each dimension.

    Displays itself in notebooks and in the built book: style, script and data are part of its HTML. The last
    dimension has a slider that plays, the others have lists; what has one value has neither. An edge that the
    pointer or the arrow keys choose in either drawing is marked in both, and its weight is told beneath them.
    Without script, one matrix is a still picture: the view shown first, at the last value of the last
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

    Raises
    ------
    ValueError
        If shapes and labels do not fit, a weight is not in [0, 1] or lies beside the edges, there is nothing
        to show, or data exceed 200 kB.
    """

    def __init__(
        self,
        views: Sequence[AttentionView],
        dimensions: Mapping[str, Sequence[str]],
        title: str = "Attention",
        shown: str | None = None,
    ):
        self.views, self.title = list(views), title
        self.dimensions = {name: list(values) for name, values in dimensions.items()}
        if not self.views or not self.dimensions or not all(self.dimensions.values()):
            raise ValueError("a player needs a view, a dimension and a value of each dimension")
        names = [view.name for view in self.views]
        self.shown = names[0] if shown is None else shown
        if self.shown not in names:
            raise ValueError(f"shown must be one of {', '.join(names)}; got {self.shown!r}")
        data = {
            "title": title,
            "dimensions": [{"name": n, "values": v} for n, v in self.dimensions.items()],
            "views": [self._pack(view) for view in self.views],
            "shown": names.index(self.shown),
        }
        self._element = Element("player", data, self.still(), self.describe())
        self.data = self._element.packed

    def still(self) -> bytes:
        """Return the matrix that is shown first as a PNG picture."""
        view, weights = self._first()
        return png(attention_maps([weights], view.receivers, view.senders))

    def describe(self) -> str:
        """Say in a sentence what is shown first and how focused it is."""
        view, weights = self._first()
        values = list(self.dimensions.values())
        where = ", ".join([view.name, *(v[0] for v in values[:-1] if len(v) > 1), values[-1][-1]])
        return (
            f"{self.title}, {where}: {len(view.receivers)} tokens attend to {len(view.senders)}; a token's "
            f"largest weight is {weights.max(1).mean():.2f} on average."
        )

    def _first(self) -> tuple[AttentionView, np.ndarray]:
        view = next(view for view in self.views if view.name == self.shown)
        return view, np.asarray(view.weights)[(0,) * (len(self.dimensions) - 1)][-1]

    def _pack(self, view: AttentionView) -> dict:
        """Edges as numbers ``receiver * senders + sender``; for each matrix their weights in thousandths."""
        weights = np.asarray(view.weights, dtype=np.float64)
        axes = [*self.dimensions, "receivers", "senders"]
        shape = (*map(len, self.dimensions.values()), len(view.receivers), len(view.senders))
        if weights.shape != shape or 0 in shape:
            raise ValueError(
                f"weights of {view.name!r} must be [{', '.join(axes)}] = {list(shape)}, none of them 0; "
                f"got {list(weights.shape)}"
            )
        if not (weights.min() >= 0 and weights.max() <= 1 + 1e-5):  # not a number fails too
            raise ValueError(
                f"weights of {view.name!r} must lie in 0..1, got {weights.min()}..{weights.max()}"
            )
        flat = weights.reshape(prod(shape[:-2]), -1)
        weighted = flat.any(0)
        edges = weighted if view.edges is None else np.asarray(view.edges, dtype=bool).reshape(-1)
        if edges.shape != weighted.shape or (weighted & ~edges).any():
            raise ValueError(
                f"edges of {view.name!r} must be [receivers, senders] = {list(shape[-2:])} "
                "and hold all pairs with a weight"
            )
        return {
            "name": view.name,
            "receivers": list(view.receivers),
            "senders": list(view.senders),
            "edges": np.flatnonzero(edges).tolist(),
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
    if mode not in VIEWS:
        raise ValueError(f"mode must be one of {', '.join(VIEWS)}; got {mode!r}")
    if not len(maps) or any(moment is None for moment in maps):
        raise ValueError("maps must hold one att_weight_map per moment, at least one and none of them None")
    heads = min(len(weights) for moment in maps for weights in moment)
    if not 0 <= head_id < heads:
        raise ValueError(f"head_id must lie in 0..{heads - 1}, got {head_id}")
    ends = {"e2e": (src, src), "e2d": (tgt, src), "d2d": (tgt, tgt)}  # receivers, senders
    views = [
        AttentionView(VIEWS[m], np.stack([np.asarray(moment[i][head_id]) for moment in maps]), *ends[m])
        for i, m in enumerate(VIEWS)
    ]
    named = list(moments) if moments else [f"epoch {i + 1}" for i in range(len(maps))]
    return AttentionPlayer(views, {"moment": named}, f"Attention of head {head_id}", VIEWS[mode])
