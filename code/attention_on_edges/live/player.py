"""One head's attention while a model learns (chapter 7): a graph and a matrix, with a slider that plays."""

from collections.abc import Sequence

import numpy as np

from attention_on_edges.figures import attention_maps
from attention_on_edges.live.element import Element, png

VIEWS = {"e2e": "source to source", "e2d": "source to target", "d2d": "target to target"}
"""Names of the tutorial's modes, in the order of ``attention_of``."""


def att_animation(
    maps: Sequence[Sequence[np.ndarray]],
    mode: str,
    src: Sequence[str],
    tgt: Sequence[str],
    head_id: int,
    moments: Sequence[str] | None = None,
) -> Element:
    """Show how one head's attention changes over the recorded maps.

    All three graphs can be selected; ``mode`` is the one shown first. It begins at the first moment; without
    a script, the last one is a still picture.

    Parameters
    ----------
    maps : sequence of list of Tensor, from ``attention_of``
        One ``[e2e, e2d, d2d]`` a moment, each [heads, receivers, senders]. Pairs whose weight is zero at
        every moment are no edges, since a softmax is zero only where there is no edge.
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
    weights = {m: np.stack([np.asarray(moment[i][head_id]) for moment in maps]) for i, m in enumerate(VIEWS)}
    named = list(moments) if moments else [f"epoch {i + 1}" for i in range(len(maps))]
    title, last = f"Attention of head {head_id}", weights[mode][-1]
    told = (
        f"{title}, {VIEWS[mode]}, {named[-1]}: {len(last)} tokens attend to {len(last[0])}; a token's "
        f"largest weight is {last.max(1).mean():.2f} on average."
    )
    views = [_pack(VIEWS[m], weights[m], *ends[m]) for m in VIEWS]
    data = {"title": title, "moments": named, "views": views, "shown": list(VIEWS).index(mode)}
    return Element("player", data, png(attention_maps([last], *ends[mode])), told)


def _pack(
    name: str, weights: np.ndarray, receivers: Sequence[str], senders: Sequence[str]
) -> dict[str, object]:
    """Edges as numbers ``receiver * senders + sender``; for each moment their weights in thousandths."""
    flat = weights.astype(np.float64).reshape(len(weights), -1)
    edges = np.flatnonzero(flat.any(0))
    return {
        "name": name,
        "receivers": list(receivers),
        "senders": list(senders),
        "edges": edges.tolist(),
        "weights": (flat[:, edges] * 1000).round().astype(int).tolist(),
    }
