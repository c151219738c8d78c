"""What training needs of a dataset."""

from collections.abc import Iterator
from typing import Any, Protocol

import torch

from attention_on_edges.pool import Batch, GraphPool

Share = tuple[int, int]
"""A process's rank and the number of processes that share each batch."""


class TrainingData(Protocol):
    """Batches of sentence pairs, by split: what a :class:`~attention_on_edges.training.Trainer` uses.

    Attributes
    ----------
    epoch : int
        The epoch to be drawn next, counted from 1.
    order_state : dict
        State of the generator that shuffles, as JSON: set it to repeat the same orders.
    """

    epoch: int
    order_state: dict[str, Any]

    @property
    def vocab_size(self) -> int:
        """Number of symbols, special ones included."""

    @property
    def pad_id(self) -> int:
        """Id of padding."""

    def __call__(
        self,
        graph_pool: GraphPool,
        mode: str = ...,
        batch_size: int = ...,
        device: torch.device | str = ...,
        *,
        share: Share = ...,
    ) -> Iterator[Batch]:
        """Iterate over batches of ``batch_size`` pairs of a split."""

    def by_tokens(
        self,
        graph_pool: GraphPool,
        mode: str = ...,
        batch_tokens: int = ...,
        bucketed: bool = ...,
        device: torch.device | str = ...,
        share: Share = ...,
    ) -> Iterator[Batch]:
        """Iterate over batches of at most ``batch_tokens`` target tokens of a split."""
