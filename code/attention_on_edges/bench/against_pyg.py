"""A layer of graph attention against PyG's ``TransformerConv`` with the same weights."""

import importlib
import importlib.util
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from attention_on_edges.bench.harness import Case, Row, Run, in_turns
from attention_on_edges.bench.many_graphs import FITTED, OTHERS
from edgewise.graphs import AttentionGraph, complete, window
from edgewise.interop import from_pyg
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

WITH_ATTRIBUTES = (
    "grid, 4,096 nodes",
    "grid, 10,000 nodes",
    "tree, 4,000",
    "geometric, degree 12",
    "geometric, degree 40",
    "scale-free, 20 links",
)
"""Graphs whose edges have attributes, of these widths:"""

WIDTHS = (8, 32)


def pyg_plan(small: bool = False) -> dict[str, Run]:
    """All workloads, or small ones."""
    workloads = {"two complete graphs": lambda: complete([3, 5]).edge_index} if small else PYG_WORKLOADS
    runs = {name: in_turns(partial(pyg_case, name, make)) for name, make in workloads.items()}
    for name in ("grid, 400",) if small else WITH_ATTRIBUTES:
        make = partial(_edge_index, name)
        for width in WIDTHS:
            full = f"{name}, {width} attributes per edge"
            runs[full] = in_turns(partial(pyg_case, full, make, edge_dim=width))
    return runs


def _edge_index(name: str) -> Tensor:
    return (FITTED | OTHERS)[name]().edge_index


def pyg_case(
    name: str,
    make: Callable[[], Tensor],
    device: torch.device | str = "cpu",
    edge_dim: int | None = None,
) -> Case:
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
    conv = (
        importlib.import_module("torch_geometric.nn")
        .TransformerConv(DIM, DIM // HEADS, HEADS, edge_dim=edge_dim)
        .to(device)
    )
    layer, nodes = from_pyg(conv), int(edge_index.max()) + 1
    graph = AttentionGraph.from_edge_index(edge_index, nodes)
    x = torch.randn(nodes, DIM, device=device, requires_grad=True)
    product = nn.Linear(DIM, 4 * DIM, device=device)
    upstream = {width: torch.randn(nodes, width, device=device) for width in (DIM, 4 * DIM)}
    attr = None if edge_dim is None else torch.randn(edge_index.shape[1], edge_dim, device=device)
    expected = conv(x, edge_index, attr).detach()

    def both_ways(module: nn.Module, apply: Callable[[], Tensor]) -> Tensor:
        found = apply()
        torch.autograd.grad(found, [x, *module.parameters()], upstream[found.shape[1]])
        return found.detach()

    def error(found: Tensor) -> Row:
        return {"error": float((found - expected).abs().max())} if found.shape == expected.shape else {}

    applied = {
        "TransformerConv": (conv, lambda: conv(x, edge_index, attr)),
        OURS: (layer, lambda: layer(graph, x, edge_attr=attr)),
        "graph made anew": (
            layer,
            lambda: layer(AttentionGraph.from_edge_index(edge_index, nodes), x, edge_attr=attr),
        ),
        "projections alone": (product, lambda: product(x)),
    }
    contestants = {each: partial(both_ways, *pair) for each, pair in applied.items()}
    return Case(name, contestants, first=OURS, facts=error)
