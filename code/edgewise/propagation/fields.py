"""What the operation is of: queries, keys, values, and numbers on edges, by name; and what an engine is."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

OnEdges = Tensor | None
"""A number for each edge and head, [E, h], or nothing."""

Tensors = list[Tensor]

Engine = Callable[..., Tensor]
"""Takes a graph and :class:`Fields`, which fit each other, and returns [num_dst, h, d_v]."""


class Fields(NamedTuple):
    """Of attention on a graph.

    Attributes
    ----------
    q, k, v : Tensor
        Queries [num_dst, h, d], keys [num_src, h, d] and values [num_src, h, d_v].
    bias : Tensor, optional
        [E, h], added to scores.
    factors : Tensor, optional
        [E, h], by which weights are multiplied: dropout's, 0 or 1 / (1 - p).
    attr, proj : Tensor, optional
        Attributes of edges [E, c] and their projection [c, h, d].
    """

    q: Tensor
    k: Tensor
    v: Tensor
    bias: OnEdges = None
    factors: OnEdges = None
    attr: OnEdges = None
    proj: OnEdges = None

    def to(self, dtype: torch.dtype) -> "Fields":
        """Return the same in another dtype."""
        converted: Any = [x if x is None else x.to(dtype) for x in self]
        return Fields._make(converted)


class KernelFields(NamedTuple):
    """The same for kernels, or gradients of it; ``q_attr`` [n, h, c] is ``proj`` times queries, in its place.

    A score is ``q . k + q_attr . attr``, since q . (W a) = (W q) . a.
    """

    q: Any
    k: Any
    v: Any
    bias: Any
    factors: Any
    q_attr: Any
    attr: Any

    @classmethod
    def unpack(cls, tensors: Sequence[Tensor]) -> Self:
        """Undo :func:`pack`."""
        return cls._make(unpack(tensors))


def pack(fields: Iterable[OnEdges]) -> list[Tensor]:
    """Fields as an operator takes them: what is not given is empty."""
    first, *rest = fields
    assert first is not None  # the queries, or the gradient of an output
    return [first, *(first.new_empty(0) if x is None else x for x in rest)]


def unpack(tensors: Iterable[Tensor]) -> list[OnEdges]:
    """And back."""
    return [x if x.dim() > 1 else None for x in tensors]
