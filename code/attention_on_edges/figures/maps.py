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
    """Draw matrices [receivers, senders] side by side on one scale from 0 to 1.

    Where a cell is lower than small letters are, only some tokens are named.
    """
    width = min(1.0 + 0.28 * len(senders), 3.4, 6.2 / len(weights))  # no wider than the page's column
    fig, axes = plt.subplots(
        1, len(weights), figsize=(width * len(weights) + 0.6, width + 0.5), squeeze=False, sharey=True
    )
    cell = 72 * (width - 0.6) / max(len(senders), len(receivers))  # in points
    every = max(1, round(8.5 / cell))
    for i, (ax, matrix) in enumerate(zip(axes[0], weights, strict=True)):
        picture = ax.imshow(np.asarray(matrix), vmin=0, vmax=1)
        ax.set_xticks(
            range(len(senders))[::every], senders[::every], rotation=90 * (max(map(len, senders)) > 1)
        )
        ax.set_yticks(range(len(receivers))[::every], receivers[::every])
        ax.tick_params(length=0, labelsize=min(max(8.5, cell), 12))
        ax.set_xlabel("attended to")
        if titles:
            ax.set_title(titles[i])
    axes[0][0].set_ylabel("attends")
    fig.colorbar(picture, ax=axes, label="weight", shrink=0.8)
    return fig
