"""PyTorch's own kernels for graphs of a kind: FlexAttention and ``varlen_attn``."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph
from edgewise.graphs.per_graph import per_graph
from edgewise.message_passing.precision import HALF, OnEdges
from edgewise.validation import InputError


def flex(graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor, bias: OnEdges, keep: OnEdges) -> Tensor:
    """FlexAttention (Dong et al. 2024), compiled, on the graph's blocks of 128 x 128; forward only on a CPU.

    Raises
    ------
    InputError
        If there are biases or dropout, gradients or lists of edges on a CPU, or heads under 16 on a GPU.
    """
    on_cpu = q.device.type == "cpu"
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    found = {
        "biases of edges": bias is not None,
        "dropout of weights": keep is not None,
        "gradients on a CPU": on_cpu and wanted,
        # PyTorch 2.13 writes C++ that does not compile if many sizes change: those of masks of single edges.
        "lists of edges on a CPU": on_cpu and not graph.in_intervals,
        "heads narrower than 16": not on_cpu and min(q.shape[-1], v.shape[-1]) < 16,
    }
    _refuse("flex", found)
    mask = graph.to_block_mask()
    fields = ((x.detach() if on_cpu else x).transpose(0, 1)[None] for x in (q, k, v))
    return _compiled()(*fields, block_mask=mask)[0].transpose(0, 1)


@cache
def _compiled() -> Callable[..., Any]:
    """Uncompiled it would compute all pairs."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


def varlen(graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor, bias: OnEdges, keep: OnEdges) -> Tensor:
    """PyTorch's ``varlen_attn`` for packed sequences and windows in half precision on CUDA.

    Raises
    ------
    InputError
        If it is anything else, or there are biases or dropout.
    """
    found = {
        "biases of edges": bias is not None,
        "dropout of weights": keep is not None,
        f"{q.dtype} on {q.device.type}": q.device.type != "cuda" or q.dtype not in HALF,
    }
    _refuse("varlen", found)
    packed = graph.lengths
    if packed is None:
        raise InputError("engine 'varlen' takes packed sequences alone: use 'flex', 'tiles', 'csr' or 'auto'")
    from torch.nn.attention.varlen import varlen_attn

    attend: Any = varlen_attn
    sizes, total = (packed.receivers or packed.senders, packed.senders), graph.num_src + graph.num_dst
    reach = [-1 if x is None else min(x, total) for x in (packed.left, packed.right)]
    return attend(q, k, v, *_offsets(graph), *map(max, sizes), window_size=tuple(reach))


@per_graph
def _offsets(graph: AttentionGraph) -> list[Tensor]:
    """Where sequences begin and end, of receivers and of senders."""
    assert graph.lengths is not None  # varlen takes no other
    sizes = graph.lengths.receivers or graph.lengths.senders, graph.lengths.senders
    return [torch.tensor([0, *x], device=graph.device).cumsum(0, dtype=torch.int32) for x in sizes]


def _refuse(engine: str, found: dict[str, bool]) -> None:
    for what, there in found.items():
        if there:
            raise InputError(f"engine {engine!r} takes no {what}: use 'tiles', 'csr' or 'auto'")
