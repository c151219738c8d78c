"""What an engine is, and how those that add up edge by edge treat half precision."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph

Engine = Callable[..., Tensor]
"""Takes a graph, queries, keys, values, and biases and factors of edges [E, h], each of which may be None."""


def in_full_precision(engine: Engine) -> Engine:
    """Run an engine on half-precision input in float32: a sum over many in-edges stalls in bfloat16."""

    @functools.wraps(engine)
    def wrapped(graph: AttentionGraph, *fields: Tensor | None) -> Tensor:
        assert fields[0] is not None  # the queries
        if fields[0].dtype not in (torch.float16, torch.bfloat16):
            return engine(graph, *fields)
        return engine(graph, *(x if x is None else x.float() for x in fields)).to(fields[0].dtype)

    return wrapped
