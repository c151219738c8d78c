"""Attention as matrices: a row for each receiver, a column for each sender."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure


def attention_maps(
    weights: Sequence[np.ndarray],
    receivers: Sequence[str],
    senders: Sequence[str],
    titles: Sequence[str] | None = None,
) -> Figure:
    """Draw matrices [receivers, senders] side by side on one scale from 0 to 1."""
    width = min(1.0 + 0.28 * len(senders), 3.4)
    fig, axes = plt.subplots(
        1, len(weights), figsize=(width * len(weights) + 0.6, width + 0.5), squeeze=False, sharey=True
    )
    for i, (ax, matrix) in enumerate(zip(axes[0], weights, strict=True)):
        picture = ax.imshow(np.asarray(matrix), vmin=0, vmax=1)
        ax.set_xticks(range(len(senders)), senders, rotation=90 if max(map(len, senders)) > 1 else 0)
        ax.set_yticks(range(len(receivers)), receivers)
        ax.tick_params(length=0)
        ax.set_xlabel("attended to")
        if titles:
            ax.set_title(titles[i])
    axes[0][0].set_ylabel("attends")
    fig.colorbar(picture, ax=axes, label="weight", shrink=0.8)
    return fig
