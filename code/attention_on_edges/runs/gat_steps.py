"""Chapter 3's study: the five steps from GAT to the Transformer, added and left out one by one."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, elu

from attention_on_edges.layers import PositionwiseFeedForward
from attention_on_edges.models.gnn import GATLayer
from attention_on_edges.runs.fitting import FitConfig, FitRun, fit
from edgewise.graphs import AttentionGraph, complete
from edgewise.propagation import propagate_attention

STEPS = ("dot product", "output matrix", "residual", "norm", "feed-forward")
"""What separates a layer of GAT from one of the Transformer, in the chapter's order."""


class StepLayer(nn.Module):
    """A layer of graph attention with some of ``STEPS``.

    With none of them it is GAT (Veličković et al. 2018) with its ELU; with all, the encoder layer of
    :class:`~edgewise.GraphTransformerLayer`, whose feed-forward network takes the
    ELU's place.
    """

    def __init__(self, dim: int, num_heads: int, dim_ff: int, steps: Collection[str] = STEPS):
        super().__init__()
        self.num_heads, self.residual = num_heads, "residual" in steps
        norm: Callable[[], nn.Module] = partial(nn.LayerNorm, dim) if "norm" in steps else nn.Identity
        self.norms = nn.ModuleList(norm() for _ in range(1 + ("feed-forward" in steps)))
        self.dot = "dot product" in steps
        if self.dot:
            self.qkv = nn.Linear(dim, 3 * dim)
        else:
            self.gat = GATLayer(dim, dim, num_heads)
        self.out = nn.Linear(dim, dim) if "output matrix" in steps else nn.Identity()
        self.feed_forward = PositionwiseFeedForward(dim, dim_ff) if "feed-forward" in steps else None
        for parameter in self.parameters():
            if parameter.dim() == 2 and min(parameter.shape) > num_heads:
                nn.init.xavier_uniform_(parameter)

    def forward(self, graph: AttentionGraph, x: Tensor) -> Tensor:
        """States [n, dim] to states [n, dim]."""
        x = self._update(x, self.out(self._attend(graph, self.norms[0](x))), last=self.feed_forward is None)
        if self.feed_forward is not None:
            x = self._update(x, self.feed_forward(self.norms[1](x)))
        return x

    def _attend(self, graph: AttentionGraph, x: Tensor) -> Tensor:
        if not self.dot:
            return self.gat(graph, x)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).unbind(1)
        engine = "auto" if graph.in_intervals else "scatter"  # a plan for each new graph would not pay
        return propagate_attention(graph, q, k, v, engine=engine).flatten(1)

    def _update(self, x: Tensor, new: Tensor, last: bool = False) -> Tensor:
        new = elu(new) if last else new
        return x + new if self.residual else new


@dataclass(frozen=True)
class NodeBatch:
    """Graphs side by side: the graph, symbols int64 [n, fields], and each node's answer int64 [n]."""

    enc: AttentionGraph
    symbols: Tensor
    answers: Tensor


class StepModel(nn.Module):
    """Sums of embeddings, a few layers with the same steps, and a prediction for each node.

    Parameters
    ----------
    fields, symbols, answers : int
        Symbols of each node, and how many symbols and answers there are.
    steps : collection of str
        As in :class:`StepLayer`.
    num_layers, dim, num_heads, dim_ff : int
        Sizes.
    """

    def __init__(
        self,
        fields: int,
        symbols: int,
        answers: int,
        steps: Collection[str],
        num_layers: int = 4,
        dim: int = 64,
        num_heads: int = 4,
        dim_ff: int = 128,
    ):
        super().__init__()
        self.embed = nn.ModuleList(nn.Embedding(symbols, dim) for _ in range(fields))
        self.layers = nn.ModuleList(StepLayer(dim, num_heads, dim_ff, steps) for _ in range(num_layers))
        self.norm = nn.LayerNorm(dim) if "norm" in steps else nn.Identity()
        self.predict = nn.Linear(dim, answers)

    def forward(self, batch: NodeBatch) -> Tensor:
        """Return logits [n, answers]."""
        x = torch.stack([embed(ids) for embed, ids in zip(self.embed, batch.symbols.T, strict=True)]).sum(0)
        for layer in self.layers:
            x = layer(batch.enc, x)
        return self.predict(self.norm(x))

    def loss(self, batch: NodeBatch, step: int) -> Tensor:
        """Return the loss per node, after any number of updates."""
        return cross_entropy(self(batch), batch.answers)


NODES, DEGREE, LONGEST, LETTERS = 16, 5, 16, 26


def _two_hops(count: int, generator: torch.Generator) -> NodeBatch:
    """Graphs of 16 nodes; each asks a neighbour, and that one a neighbour of its own.

    A node has a key of its own, a value, the key of the neighbour that it asks, and edges from five others
    and itself. Its answer is the value of the node that is asked by the one that it asks.
    """
    order = torch.rand(count, NODES, NODES, generator=generator)
    order.diagonal(dim1=1, dim2=2).fill_(2.0)  # nobody is a neighbour of itself, but for the loop
    near = order.argsort(2)[:, :, :DEGREE]
    key = torch.rand(count, NODES, generator=generator).argsort(1)
    value = torch.randint(NODES, (count, NODES), generator=generator)
    neighbour = near[:, :, 0]
    symbols = torch.stack([key, value, key.gather(1, neighbour)], 2)
    answers = value.gather(1, neighbour.gather(1, neighbour))
    first = torch.arange(count)[:, None, None] * NODES
    own = torch.arange(NODES)[None, :, None].expand(count, -1, 1)
    src = (first + torch.cat([near, own], 2)).flatten()
    dst = torch.arange(count * NODES).repeat_interleave(DEGREE + 1)
    return NodeBatch(AttentionGraph(src, dst, count * NODES), symbols.flatten(0, 1), answers.flatten())


def _sorting(count: int, generator: torch.Generator) -> NodeBatch:
    """Strings of 8 to 16 letters on complete graphs; at each place, the letter that is there once sorted."""
    lengths = torch.randint(LONGEST // 2, LONGEST + 1, (count,), generator=generator).tolist()
    strings = [torch.randint(LETTERS, (n,), generator=generator) for n in lengths]
    places = torch.cat([torch.arange(n) for n in lengths])
    symbols = torch.stack([torch.cat(strings), places], 1)
    return NodeBatch(complete(lengths), symbols, torch.cat([s.sort().values for s in strings]))


@dataclass(frozen=True)
class StepTask:
    """Batches, and how many symbols and answers they have."""

    draw: Callable[[int, torch.Generator], NodeBatch]
    fields: int
    symbols: int
    answers: int

    def batches(self, count: int, generator: torch.Generator) -> Iterator[NodeBatch]:
        """Draw batches of so many graphs, without end."""
        while True:
            yield self.draw(count, generator)


STEP_TASKS = {
    "two hops": StepTask(_two_hops, 3, NODES, NODES),
    "sorting": StepTask(_sorting, 2, LETTERS, LETTERS),
}

TEST_GRAPHS, VALIDATION, TEST = 500, 1_000_000, 2_000_000
"""Graphs, and the seeds of those by which a learning rate is chosen and whose accuracy is reported."""


@torch.no_grad()
def nodes_right(model: StepModel, task: str, seed: int) -> float:
    """Return the share of nodes of new graphs that are answered correctly."""
    batch = STEP_TASKS[task].draw(TEST_GRAPHS, torch.Generator().manual_seed(seed))
    return float((model(batch).argmax(1) == batch.answers).double().mean())


def train_steps(training: FitConfig, task: str, steps: Collection[str]) -> StepModel:
    """Return a model of one of ``STEP_TASKS``, trained on so many graphs at a time."""
    made = STEP_TASKS[task]
    make = partial(StepModel, made.fields, made.symbols, made.answers, steps)
    return fit(make, partial(made.batches, training.size), training)[0]


def measure_steps(
    training: FitConfig, task: str, steps: Collection[str], rates: Sequence[float]
) -> dict[str, Any]:
    """Train at each learning rate; of the best on validation, return it and the accuracy on new graphs."""
    models = {rate: train_steps(replace(training, rate=rate), task, steps) for rate in rates}
    rate = max(models, key=lambda rate: nodes_right(models[rate], task, VALIDATION))
    return {"right": nodes_right(models[rate], task, TEST), "rate": rate}


LADDER = {"GAT": ()} | {f"+ {STEPS[i]}": STEPS[: i + 1] for i in range(len(STEPS))}
"""GAT, and steps added one after the other; the last has all of them."""

WITHOUT = {f"without {step}": tuple(other for other in STEPS if other != step) for step in STEPS[:-1]}
"""All steps but one; without the last is a rung of the ladder."""

RATES = (5e-4, 2e-3)
"""Peak learning rates, in place of that of the training."""


def step_runs() -> list[FitRun]:
    """All runs: two tasks, ten kinds of layer, three seeds."""
    return [
        FitRun(
            f"{task}, {name}",
            measure_steps,
            {"task": task, "steps": steps, "rates": RATES},
            training=FitConfig(600, 32, seed=seed),
        )
        for task in STEP_TASKS
        for name, steps in (LADDER | WITHOUT).items()
        for seed in range(3)
    ]
