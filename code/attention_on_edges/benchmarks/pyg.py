"""A layer of graph attention against PyG's ``TransformerConv`` with the same weights."""

import importlib
import importlib.util
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from attention_on_edges.benchmarks.harness import Case, Row, Run, in_turns
from edgewise.graph_attention import from_pyg
from edgewise.graphs import AttentionGraph, complete, window
from edgewise.validation import MissingPackageError

DIM, HEADS = 128, 4

OURS = "GraphAttention"


def _sizes(count: int) -> list[int]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(20, 41, (count,), generator=generator).tolist()


def _sparse(count: int, degree: int) -> Tensor:
    """Graphs of 20 to 40 nodes side by side; each node attends to ``degree`` of its graph, drawn."""
    generator = torch.Generator().manual_seed(0)
    edges, first = [], 0
    for size in _sizes(count):
        senders = torch.rand(size, size, generator=generator).argsort(1)[:, :degree]
        receivers = torch.arange(size).repeat_interleave(degree)
        edges.append(first + torch.stack([senders.flatten(), receivers]))
        first += size
    return torch.cat(edges, 1)


PYG_WORKLOADS: dict[str, Callable[[], Tensor]] = {
    "128 complete graphs of 20-40 nodes": lambda: complete(_sizes(128)).edge_index,
    "a window of 129 on 16,384 tokens": lambda: window(16_384, 64, 64).edge_index,
    "512 graphs of 20-40 nodes, degree 3": lambda: _sparse(512, 3),
}
"""Each an edge_index."""


def pyg_plan(small: bool = False) -> dict[str, Run]:
    """All workloads, or a small one."""
    workloads = {"two complete graphs": lambda: complete([3, 5]).edge_index} if small else PYG_WORKLOADS
    return {name: in_turns(partial(pyg_case, name, make)) for name, make in workloads.items()}


def pyg_case(name: str, make: Callable[[], Tensor], device: torch.device | str = "cpu") -> Case:
    """A layer of width 128 with 4 heads and a skip connection, forward and backward, projections included.

    *Projections alone* are queries, keys, values and the skip connection as one product: what no layer can
    save. ``error`` is the largest difference of an output from PyG's.

    Raises
    ------
    MissingPackageError
        If PyG is not installed.
    """
    if importlib.util.find_spec("torch_geometric") is None:
        raise MissingPackageError("the comparison needs PyG: pip install torch_geometric")
    torch.manual_seed(0)
    edge_index = make().to(device)
    conv = importlib.import_module("torch_geometric.nn").TransformerConv(DIM, DIM // HEADS, HEADS).to(device)
    layer, nodes = from_pyg(conv), int(edge_index.max()) + 1
    graph = AttentionGraph.from_edge_index(edge_index, nodes)
    x = torch.randn(nodes, DIM, device=device, requires_grad=True)
    product = nn.Linear(DIM, 4 * DIM, device=device)
    upstream = {width: torch.randn(nodes, width, device=device) for width in (DIM, 4 * DIM)}
    expected = conv(x, edge_index).detach()

    def both_ways(module: nn.Module, apply: Callable[[], Tensor]) -> Tensor:
        found = apply()
        torch.autograd.grad(found, [x, *module.parameters()], upstream[found.shape[1]])
        return found.detach()

    def error(found: Tensor) -> Row:
        return {"error": float((found - expected).abs().max())} if found.shape == expected.shape else {}

    applied = {
        "TransformerConv": (conv, lambda: conv(x, edge_index)),
        OURS: (layer, lambda: layer(graph, x)),
        "graph made anew": (layer, lambda: layer(AttentionGraph.from_edge_index(edge_index, nodes), x)),
        "projections alone": (product, lambda: product(x)),
    }
    contestants = {each: partial(both_ways, *pair) for each, pair in applied.items()}
    return Case(name, contestants, first=OURS, facts=error)
