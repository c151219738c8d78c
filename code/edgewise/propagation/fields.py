"""What an engine is given: queries, keys, values, and numbers on edges, by name."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

MaybeTensor = Tensor | None

Tensors = list[Tensor]

Engine = Callable[..., Any]
"""Takes a graph and :class:`Fields`, which fit each other, and returns [num_dst, h, d_v]; ``with_lse`` also
the log-sum-exp of each receiver's scores, [num_dst, h]."""


class Fields(NamedTuple):
    """Of attention along a graph.

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
    bias: MaybeTensor = None
    factors: MaybeTensor = None
    attr: MaybeTensor = None
    proj: MaybeTensor = None

    def to(self, dtype: torch.dtype) -> "Fields":
        """Return the same in another dtype."""
        converted: Any = [x if x is None else x.to(dtype) for x in self]
        return Fields._make(converted)


class KernelFields(NamedTuple):
    """As ``csr`` and ``triton`` take them, or gradients; for ``proj`` queries times it, ``q_attr`` [n, h, c].

    A score is ``q . k + q_attr . attr``, since q . (W a) = (W q) . a.
    """

    q: Any
    k: Any
    v: Any
    bias: Any
    factors: Any
    q_attr: Any
    attr: Any


def absent_to_empty(fields: Iterable[MaybeTensor]) -> list[Tensor]:
    """Fields as an operator takes them: what is not given is empty."""
    first, *rest = fields
    assert first is not None  # the queries, or the gradient of an output
    return [first, *(first.new_empty(0) if x is None else x for x in rest)]


def empty_to_absent(tensors: Iterable[Tensor]) -> list[MaybeTensor]:
    """And back."""
    return [x if x.dim() > 1 else None for x in tensors]
