"""A layer on mini-batches of a large graph, as PyG's ``NeighborLoader`` draws them."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import TransformerConv
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput

from attention_on_edges.bench.harness import Case
from attention_on_edges.bench.memory import alone, peak
from edgewise.graphs import AttentionGraph
from edgewise.interop import from_pyg

DIM, HEADS = 128, 4

OURS, THEIRS = "GraphAttention", "TransformerConv"


class Neighbors(BaseSampler):  # type: ignore[misc]  # without types
    """Draws some of each node's in-edges, hop by hop: what PyG needs its package pyg-lib for.

    Parameters
    ----------
    edge_index : Tensor
        int64 [2, E]
    num_nodes : int
        Nodes of the graph.
    most : sequence of int
        The most in-edges of a node in each hop.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int, most: Sequence[int]):
        self.most, self.edges = most, edge_index[1].argsort(stable=True)
        self.senders = edge_index[0][self.edges]
        self.counts = torch.bincount(edge_index[1], minlength=num_nodes)
        self.first = self.counts.cumsum(0) - self.counts

    def sample_from_nodes(self, index: NodeSamplerInput, **_: Any) -> SamplerOutput:
        """Draw the subgraph around some nodes, which come first in it."""
        nodes = front = index.node
        number = torch.full_like(self.counts, -1)
        number[nodes] = torch.arange(len(nodes))
        receivers, drawn = [], []
        for most in self.most:
            counts = self.counts[front]
            receiver = torch.arange(len(front)).repeat_interleave(counts)
            place = torch.arange(len(receiver)) - (counts.cumsum(0) - counts)[receiver]
            shuffled = torch.rand(len(receiver)).argsort()
            by_receiver = shuffled[receiver[shuffled].argsort(stable=True)]
            chosen = by_receiver[place < most]
            receivers.append(number[front[receiver[chosen]]])
            drawn.append((self.first[front[receiver]] + place)[chosen])
            front = self.senders[drawn[-1]].unique()
            front = front[number[front] < 0]
            number[front] = torch.arange(len(nodes), len(nodes) + len(front))
            nodes = torch.cat([nodes, front])
        edges = torch.cat(drawn)
        ends = number[self.senders[edges]], torch.cat(receivers)
        return SamplerOutput(nodes, *ends, self.edges[edges], metadata=(index.input_id, index.time))

    def sample_from_edges(self, *_: Any) -> SamplerOutput:
        """Not here."""
        raise NotImplementedError


def loader(nodes: int, degree: int, most: Sequence[int], seeds: int) -> NeighborLoader:
    """Mini-batches of a graph whose nodes have ``degree`` in-edges on average, from anywhere."""
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(nodes, (2, degree * nodes), generator=generator)
    data = Data(torch.randn(nodes, DIM, generator=generator), edge_index)
    sampler = Neighbors(edge_index, nodes, most)
    return NeighborLoader(data, [*most], neighbor_sampler=sampler, batch_size=seeds, shuffle=True)


def mini_batches_case(
    nodes: int, degree: int, most: Sequence[int], seeds: int, device: torch.device | str = "cpu"
) -> Case:
    """Four steps of a layer of width 128 with 4 heads, forward and backward; each makes its batch's graph.

    ``error`` is the largest difference of an output from PyG's.
    """
    torch.manual_seed(0)
    batches = [batch.to(device) for batch in islice(loader(nodes, degree, most, seeds), 4)]
    steps = _steps(device)
    expected = steps[THEIRS](batches)
    found, edges = (sum(x) // 4 for x in zip(*((b.num_nodes, b.num_edges) for b in batches), strict=True))
    return Case(
        f"mini-batches of about {found:,} nodes and {edges:,} edges",
        {name: partial(step, batches) for name, step in steps.items()},
        first=OURS,
        facts=lambda outputs: {"error": float((outputs - expected).abs().max())},
        peak=partial(alone, _peak_here, nodes, degree, most, seeds) if str(device) == "cpu" else None,
    )


def _peak_here(nodes: int, degree: int, most: Sequence[int], seeds: int, contestant: str) -> int:
    """Peak of this process, which makes one step."""
    _steps("cpu")[contestant]([next(iter(loader(nodes, degree, most, seeds)))])
    return peak()


def _steps(device: torch.device | str) -> dict[str, Callable[[list[Data]], Tensor]]:
    conv = TransformerConv(DIM, DIM // HEADS, HEADS).to(device)
    layer = from_pyg(conv)

    def ours(batch: Data) -> Tensor:
        return layer(AttentionGraph.from_edge_index(batch.edge_index, batch.num_nodes), batch.x)

    def theirs(batch: Data) -> Tensor:
        return conv(batch.x, batch.edge_index)

    def train(module: nn.Module, apply: Callable[[Data], Tensor], batches: list[Data]) -> Tensor:
        outputs = [apply(batch)[: batch.batch_size] for batch in batches]
        for output in outputs:
            torch.autograd.grad(output.square().sum(), list(module.parameters()))
        return torch.cat(outputs).detach()

    return {OURS: partial(train, layer, ours), THEIRS: partial(train, conv, theirs)}
