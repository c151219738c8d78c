"""A layer of graph attention against PyG's ``TransformerConv`` with the same weights."""

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attention_on_edges.benchmarks.timing import interleave
from attention_on_edges.figures import Table, table
from edgewise.graph_attention import from_pyg
from edgewise.graphs import AttentionGraph, complete, window
from edgewise.validation import MissingPackageError

DIM, HEADS = 128, 4


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


@dataclass(frozen=True)
class PygRow:
    """Seconds of a layer, forward and backward.

    Attributes
    ----------
    workload : str
        One of ``PYG_WORKLOADS``.
    pyg, ours : float
        PyG's layer, and the same from ``from_pyg``.
    built : float
        The latter, with the graph made from its edge_index each time.
    projections : float
        Queries, keys, values and the skip connection alone, as one product: what no layer can save.
    error : float
        The largest difference between the two layers' outputs.
    """

    workload: str
    pyg: float
    ours: float
    built: float
    projections: float
    error: float


def bench_pyg(
    workloads: Sequence[str] = tuple(PYG_WORKLOADS), repeats: int = 5, device: torch.device | str = "cpu"
) -> list[PygRow]:
    """Time a layer of width 128 with 4 heads and a skip connection, in float32, projections included.

    Parameters
    ----------
    workloads : sequence of str
        Among ``PYG_WORKLOADS``.
    repeats : int
        Measured turns of each.
    device : torch.device or str
        Where.

    Raises
    ------
    MissingPackageError
        If PyG is not installed.
    """
    if importlib.util.find_spec("torch_geometric") is None:
        raise MissingPackageError("the comparison needs PyG: pip install torch_geometric")
    device = torch.device(device)
    return [_row(name, PYG_WORKLOADS[name]().to(device), repeats) for name in workloads]


def _row(name: str, edge_index: Tensor, repeats: int) -> PygRow:
    torch.manual_seed(0)
    device = edge_index.device
    conv = importlib.import_module("torch_geometric.nn").TransformerConv(DIM, DIM // HEADS, HEADS).to(device)
    layer, nodes = from_pyg(conv), int(edge_index.max()) + 1
    graph = AttentionGraph.from_edge_index(edge_index, nodes)
    x = torch.randn(nodes, DIM, device=device, requires_grad=True)
    upstream, received = (torch.randn(nodes, width, device=device) for width in (DIM, 4 * DIM))

    def both_ways(attend: Callable[[], Tensor], weights: list[Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(attend(), [x, *weights], upstream)

    theirs, ours = list(conv.parameters()), list(layer.parameters())
    product = nn.Linear(DIM, 4 * DIM, device=device)
    seconds = interleave(
        {
            "pyg": both_ways(lambda: conv(x, edge_index), theirs),
            "ours": both_ways(lambda: layer(graph, x), ours),
            "built": both_ways(lambda: layer(AttentionGraph.from_edge_index(edge_index, nodes), x), ours),
            "projections": lambda: torch.autograd.grad(product(x), [x, *product.parameters()], received),
        },
        repeats,
        device,
    )
    with torch.no_grad():
        error = float((layer(graph, x) - conv(x, edge_index)).abs().max())
    return PygRow(name, **seconds, error=error)


def format_pyg(rows: Sequence[PygRow]) -> Table:
    """Format rows of :func:`bench_pyg` as a table."""
    head = ["ms, forward + backward", "TransformerConv", "GraphAttention", "graph made anew"]
    head += ["projections alone", "error"]

    def ms(seconds: float, pyg: float) -> str:
        return f"{seconds * 1e3:.1f} ({pyg / seconds:.2f} x)"

    lines = [
        (r.workload, f"{r.pyg * 1e3:.1f}", *(ms(s, r.pyg) for s in (r.ours, r.built, r.projections)), r.error)
        for r in rows
    ]
    return table(head, lines, ["", "", "", "", "", ".0e"])
