"""PyTorch's own kernel for packed sequences, ``varlen_attn``, in half precision on CUDA."""

from functools import cache
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph
from edgewise.graphs.per_graph import per_graph
from edgewise.propagation.fields import Fields
from edgewise.propagation.precision import HALF
from edgewise.validation import InputError


@cache
def options() -> frozenset[str]:
    """Return what this PyTorch's kernel takes by name; nothing if there is none."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return frozenset()
    return frozenset(signature(varlen_attn).parameters)


def varlen(graph: AttentionGraph, fields: Fields, scale: float | None = None) -> Tensor:
    """PyTorch's ``varlen_attn`` for packed sequences and windows in half precision on CUDA.

    Raises
    ------
    InputError
        If it is anything else, or there are biases or dropout, or this PyTorch has no kernel for it.
    """
    q, k, v = fields.q, fields.k, fields.v
    found = {
        "biases of edges": fields.bias is not None,
        "dropout of weights": fields.factors is not None,
        f"{q.dtype} on {q.device.type}": q.device.type != "cuda" or q.dtype not in HALF,
    }
    refuse(found)
    packed = graph.packed
    if packed is None:
        raise InputError("engine 'varlen' takes packed sequences alone: use 'tiles', 'csr' or 'auto'")
    asked = {"window_size"} if scale is None else {"window_size", "scale"}
    if not asked <= options():
        raise InputError(f"this PyTorch's varlen_attn takes no {asked - options()}: use 'tiles' or 'auto'")
    from torch.nn.attention.varlen import varlen_attn

    attend: Any = varlen_attn
    sizes, total = (packed.receivers or packed.senders, packed.senders), graph.num_src + graph.num_dst
    reach = [-1 if x is None else min(x, total) for x in (packed.left, packed.right)]
    named = {"window_size": tuple(reach)} | ({} if scale is None else {"scale": scale})
    return attend(q, k, v, *_offsets(graph), *map(max, sizes), **named)


@per_graph
def _offsets(graph: AttentionGraph) -> list[Tensor]:
    """Where sequences begin and end, of receivers and of senders."""
    assert graph.packed is not None  # varlen takes no other
    sizes = graph.packed.receivers or graph.packed.senders, graph.packed.senders
    return [torch.tensor([0, *x], device=graph.device).cumsum(0, dtype=torch.int32) for x in sizes]


def refuse(found: dict[str, bool]) -> None:
    """Raise an ``InputError`` if there is something that the kernel does not take."""
    for what, there in found.items():
        if there:
            raise InputError(f"engine 'varlen' takes no {what}: use 'tiles', 'csr' or 'auto'")
