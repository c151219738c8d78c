"""Layers of graph attention against PyG's ``TransformerConv`` and ``GPSConv`` with the same weights."""

import copy
import importlib
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import product
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from attention_on_edges.runs.engine_cases import drawn
from attention_on_edges.runs.harness import Case, Row, Run, in_turns
from attention_on_edges.studies.many_graphs import WITH_ATTRIBUTES, molecules_side_by_side
from edgewise.graphs import AttentionGraph, complete, window
from edgewise.interop import from_pyg, from_torch
from edgewise.propagation import prepare

DIM, HEADS = 128, 4

OURS = "GraphAttention"

Applied = dict[str, tuple[nn.Module, Callable[[], Tensor]]]
"""Modules by name, and what applies each to the input."""


def _sparse(count: int, degree: int) -> AttentionGraph:
    """Graphs of 20 to 40 nodes side by side; each node attends to ``degree`` of its graph, drawn."""
    generator = torch.Generator().manual_seed(0)
    edges, first = [], 0
    for size in drawn(count, 20, 40):
        senders = torch.rand(size, size, generator=generator).argsort(1)[:, :degree]
        receivers = torch.arange(size).repeat_interleave(degree)
        edges.append(first + torch.stack([senders.flatten(), receivers]))
        first += size
    return AttentionGraph.from_edge_index(torch.cat(edges, 1), first)


OTHERWISE = "512 graphs of 20-40 nodes, degree 3"
"""On which PyG's layer is also compiled, and runs with its extension if ``torch_scatter`` is installed."""

PYG_WORKLOADS: dict[str, Callable[[], AttentionGraph]] = {
    "128 complete graphs of 20-40 nodes": lambda: complete(drawn(128, 20, 40)),
    "a window of 129 on 16,384 tokens": lambda: window(16_384, 64, 64),
    OTHERWISE: lambda: _sparse(512, 3),
    "a million edges: 1,667 graphs of 20-40 nodes, degree 20": lambda: _sparse(1667, 20),
}


def pyg_plan(small: bool = False) -> dict[str, Run]:
    """All workloads, or small ones."""
    workloads = {"two complete graphs": lambda: complete([3, 5])} if small else PYG_WORKLOADS
    runs = {name: in_turns(partial(pyg_case, name, make)) for name, make in workloads.items()}
    sizes = {"3 and 5": (3, 5)} if small else {"20-40": drawn(128, 20, 40), "8-200": drawn(64, 8, 200)}
    for nodes, each in sizes.items():
        name = f"attention among all of {len(each)} graphs of {nodes} nodes"
        runs[name] = in_turns(partial(gps_case, name, each))
    for name, make in [*WITH_ATTRIBUTES.items()][: 1 if small else None]:
        full = f"{name}, 32 attributes per edge"
        runs[full] = in_turns(partial(pyg_case, full, make, edge_dim=32))
    for count, width, edge_dim in () if small else product((16, 64, 256), (64, 128), (None, 16)):
        full = f"{count} molecules, width {width}" + ("" if edge_dim is None else f", {edge_dim} attributes")
        make = partial(molecules_side_by_side, count)
        runs[full] = in_turns(partial(pyg_case, full, make, edge_dim=edge_dim, width=width))
    return runs


def pyg_case(
    name: str,
    make: Callable[[], AttentionGraph],
    device: torch.device | str = "cpu",
    edge_dim: int | None = None,
    width: int = DIM,
) -> Case:
    """A layer with 4 heads and a skip connection, forward and backward, projections included.

    Our graph is prepared, or made anew in each pass. *Projections alone* are queries, keys, values and the
    skip connection as one product: what no layer can save. ``error`` is the largest difference of an output
    from PyG's.
    """
    torch.manual_seed(0)
    edge_index = make().edge_index.to(device)
    conv = _pyg("TransformerConv")(width, width // HEADS, HEADS, edge_dim=edge_dim).to(device)
    layer, nodes = from_pyg(conv), int(edge_index.max()) + 1
    graph = prepare(AttentionGraph.from_edge_index(edge_index, nodes), HEADS, width // HEADS, edge_dim or 0)
    x = torch.randn(nodes, width, device=device, requires_grad=True)
    product_of_all = nn.Linear(width, 4 * width, device=device)
    attr = None if edge_dim is None else torch.randn(edge_index.shape[1], edge_dim, device=device)
    applied: Applied = {
        "TransformerConv": (conv, lambda: conv(x, edge_index, attr)),
        OURS: (layer, lambda: layer(graph, x, edge_attr=attr)),
        "graph made anew": (
            layer,
            lambda: layer(AttentionGraph.from_edge_index(edge_index, nodes), x, edge_attr=attr),
        ),
        "projections alone": (product_of_all, lambda: product_of_all(x)),
    }
    if name == OTHERWISE:
        compiled, known = torch.compile(conv), importlib.import_module("torch_geometric.typing")
        applied["TransformerConv, compiled"] = (conv, lambda: compiled(x, edge_index))
        if find_spec("torch_scatter"):
            with_it = partial(mock.patch.object, known, "WITH_TORCH_SCATTER")
            applied["TransformerConv"] = (conv, with_it(False)(lambda: conv(x, edge_index)))
            applied["TransformerConv, torch-scatter"] = (conv, with_it(True)(lambda: conv(x, edge_index)))
    return _compared(name, applied, x, conv(x, edge_index, attr))


def gps_case(name: str, sizes: Sequence[int], device: torch.device | str = "cpu") -> Case:
    """A layer of PyG's ``GPSConv`` without messages along edges, both ways, and the same with our attention.

    Of width 128, 4 heads, no dropout. PyG pads each graph to the largest.
    """
    torch.manual_seed(0)
    conv = _pyg("GPSConv")(DIM, None, HEADS).to(device)
    counts = torch.tensor(sizes, device=device)
    owner = torch.arange(len(sizes), device=device).repeat_interleave(counts)
    x = torch.randn(len(owner), DIM, device=device, requires_grad=True)
    graph, ours = complete(sizes).to(device), copy.deepcopy(conv)
    ours.attn = from_torch(conv.attn)

    def forward() -> Tensor:
        found = ours.norm2(x + ours.attn(graph, x))
        return ours.norm3(found + ours.mlp(found))

    applied: Applied = {"GPSConv": (conv, lambda: conv(x, None, owner)), OURS: (ours, forward)}
    return _compared(name, applied, x, conv(x, None, owner))


def _pyg(name: str) -> Any:
    """A class of ``torch_geometric.nn``, which takes seconds to import."""
    return getattr(importlib.import_module("torch_geometric.nn"), name)


def _compared(name: str, applied: Applied, x: Tensor, expected: Tensor) -> Case:
    """Each module's outputs and gradients of ``x`` and all weights."""
    upstream = {width: torch.randn(len(x), width, device=x.device) for width in (x.shape[1], 4 * x.shape[1])}

    def both_ways(module: nn.Module, apply: Callable[[], Tensor]) -> Tensor:
        found = apply()
        torch.autograd.grad(found, [x, *module.parameters()], upstream[found.shape[1]], allow_unused=True)
        return found.detach()

    def error(found: Tensor) -> Row:
        return (
            {"error": float((found - expected.detach()).abs().max())} if found.shape == expected.shape else {}
        )

    contestants = {each: partial(both_ways, *pair) for each, pair in applied.items()}
    return Case(name, contestants, first=OURS, facts=error)
