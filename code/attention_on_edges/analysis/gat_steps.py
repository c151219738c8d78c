"""Chapter 3: the five steps from GAT to the Transformer, each of which can be left out."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, elu, leaky_relu

from edgewise.graphs import AttentionGraph, complete
from edgewise.layers import PositionwiseFeedForward
from edgewise.message_passing import propagate_attention, softmax_over_in_edges
from edgewise.models.gnn import GATLayer, reduce_edges
from edgewise.validation import check_choice, check_count

STEPS = ("dot product", "output matrix", "residual", "norm", "feed-forward")
"""What separates a layer of GAT from one of the Transformer, in the chapter's order."""

GATV2 = "GATv2 score"
"""A step of another kind, in place of the dot product."""


def check_steps(steps: Collection[str]) -> None:
    """Raise ``UnknownNameError`` for what is no step, ``ValueError`` for two kinds of score."""
    for step in steps:
        check_choice("step", step, [*STEPS, GATV2])
    if GATV2 in steps and STEPS[0] in steps:
        raise ValueError(f"steps must have one score, got {', '.join(steps)}")


class GATv2Layer(GATLayer):
    r"""GAT with the nonlinearity before the attention vector (Brody et al. 2022, eq. 7).

    .. math::
        s_{ij} = b^\top\, \mathrm{LeakyReLU}(W_r h_j + W h_i)

    ``as_sender`` is :math:`b`, and the values are :math:`W h_i` as in GAT.
    """

    def __init__(self, dim_in: int, dim_out: int, num_heads: int = 1):
        super().__init__(dim_in, dim_out, num_heads)
        self.receiver = nn.Linear(dim_in, dim_out, bias=False)
        del self.as_receiver

    def forward(self, graph: AttentionGraph, x: Tensor) -> Tensor:
        """States [n, dim_in] to states [n, dim_out]."""
        sending, receiving = (f(x).unflatten(-1, (self.num_heads, -1)) for f in (self.value, self.receiver))
        sent = sending.index_select(0, graph.src)  # [E, h, d_k]
        bent = leaky_relu(receiving.index_select(0, graph.dst) + sent, self.negative_slope)
        weight = softmax_over_in_edges(graph, (bent * self.as_sender).sum(-1))
        return reduce_edges(graph, weight[..., None] * sent).flatten(-2) + self.bias


class StepLayer(nn.Module):
    """A layer of graph attention with some of ``STEPS``.

    With none of them it is GAT (Veličković et al. 2018) with its ELU; with all, the encoder layer of
    :class:`edgewise.models.gnn.GraphTransformerLayer`. The feed-forward network takes the place of the ELU.

    Parameters
    ----------
    dim, num_heads, dim_ff : int
        Width of the states, heads, inner width of the feed-forward network.
    steps : collection of str
        Among ``STEPS``, or ``GATV2`` instead of the dot product.

    Raises
    ------
    ValueError
        If a step is unknown, or both scores are asked for.
    """

    def __init__(self, dim: int, num_heads: int, dim_ff: int, steps: Collection[str] = STEPS):
        super().__init__()
        check_steps(steps)
        self.num_heads, self.residual = num_heads, "residual" in steps
        norm: Callable[[], nn.Module] = partial(nn.LayerNorm, dim) if "norm" in steps else nn.Identity
        self.norms = nn.ModuleList(norm() for _ in range(1 + ("feed-forward" in steps)))
        self.dot = "dot product" in steps
        if self.dot:
            self.qkv = nn.Linear(dim, 3 * dim)
        else:
            self.gat = (GATv2Layer if GATV2 in steps else GATLayer)(dim, dim, num_heads)
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
        engine = "scatter" if graph.has_edge_lists else "auto"  # a plan for each new graph would not pay
        return propagate_attention(graph, q, k, v, engine).flatten(1)

    def _update(self, x: Tensor, new: Tensor, last: bool = False) -> Tensor:
        new = elu(new) if last else new
        return x + new if self.residual else new


class StepModel(nn.Module):
    """Embeddings, a few layers with the same steps, and a prediction for each node.

    Parameters
    ----------
    fields : int
        Symbols of each node, whose embeddings are added.
    symbols, answers : int
        How many there are.
    steps : collection of str
        Among ``STEPS``.
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

    def forward(self, graph: AttentionGraph, symbols: Tensor) -> Tensor:
        """Symbols int64 [n, fields] to logits [n, answers]."""
        x = torch.stack([embed(ids) for embed, ids in zip(self.embed, symbols.T, strict=True)]).sum(0)
        for layer in self.layers:
            x = layer(graph, x)
        return self.predict(self.norm(x))


@dataclass(frozen=True)
class StepBatch:
    """Graphs side by side: the graph, symbols int64 [n, fields], and each node's answer int64 [n]."""

    graph: AttentionGraph
    symbols: Tensor
    answers: Tensor


NODES, DEGREE, LONGEST, LETTERS = 16, 5, 16, 26


def _two_hops(count: int, generator: torch.Generator) -> StepBatch:
    """Graphs of 16 nodes; each asks a neighbour, and that one a neighbour of its own.

    A node has a key of its own, a value, the key of the neighbour that it asks, and edges from five others
    and itself. Its answer is the value of the node that is asked by the one that it asks.
    """
    order = torch.rand(count, NODES, NODES, generator=generator)
    order.diagonal(dim1=1, dim2=2).fill_(2.0)  # nobody is a neighbour of itself, but for the loop
    near = order.argsort(2)[:, :, :DEGREE]
    key = torch.rand(count, NODES, generator=generator).argsort(1)
    value = torch.randint(NODES, (count, NODES), generator=generator)
    asked = near[:, :, 0]
    symbols = torch.stack([key, value, key.gather(1, asked)], 2)
    answers = value.gather(1, asked.gather(1, asked))
    first = torch.arange(count)[:, None, None] * NODES
    own = torch.arange(NODES)[None, :, None].expand(count, -1, 1)
    src = (first + torch.cat([near, own], 2)).flatten()
    dst = torch.arange(count * NODES).repeat_interleave(DEGREE + 1)
    graph = AttentionGraph(src, dst, count * NODES)
    return StepBatch(graph, symbols.flatten(0, 1), answers.flatten())


def _sorting(count: int, generator: torch.Generator) -> StepBatch:
    """Strings of 8 to 16 letters on complete graphs; at each place, the letter that is there once sorted."""
    lengths = torch.randint(LONGEST // 2, LONGEST + 1, (count,), generator=generator).tolist()
    strings = [torch.randint(LETTERS, (n,), generator=generator) for n in lengths]
    places = torch.cat([torch.arange(n) for n in lengths])
    symbols = torch.stack([torch.cat(strings), places], 1)
    return StepBatch(complete(lengths), symbols, torch.cat([s.sort().values for s in strings]))


@dataclass(frozen=True)
class StepTask:
    """Batches, and how many symbols and answers they have."""

    draw: Callable[[int, torch.Generator], StepBatch]
    fields: int
    symbols: int
    answers: int


STEP_TASKS = {
    "two hops": StepTask(_two_hops, 3, NODES, NODES),
    "sorting": StepTask(_sorting, 2, LETTERS, LETTERS),
}


@dataclass(frozen=True)
class StepConfig:
    """How the models are trained, the same for all.

    Attributes
    ----------
    updates, graphs : int
        Updates, and graphs of each.
    rates : tuple of float
        Peak learning rates; the one with the best validation accuracy is used.
    warmup : int
        Updates over which the rate rises; then it falls along a cosine to zero.
    seed : int
        For weights and graphs.
    """

    updates: int = 600
    graphs: int = 32
    rates: tuple[float, ...] = (5e-4, 2e-3)
    warmup: int = 100
    seed: int = 0

    def __post_init__(self):
        for name in ("updates", "graphs", "warmup"):
            check_count(name, getattr(self, name), 1)
        check_count("seed", self.seed)
        if not self.rates:
            raise ValueError("rates must name at least one learning rate, got none")


def train_steps(task: str, steps: Collection[str], config: StepConfig, rate: float) -> StepModel:
    """Train a new model with some of the steps.

    Raises
    ------
    ValueError
        If the task or a step is unknown.
    """
    check_choice("task", task, STEP_TASKS)
    kind = STEP_TASKS[task]
    torch.manual_seed(config.seed)
    model = StepModel(kind.fields, kind.symbols, kind.answers, steps)
    generator = torch.Generator().manual_seed(config.seed)

    def loss(step: int) -> Tensor:
        batch = kind.draw(config.graphs, generator)
        return cross_entropy(model(batch.graph, batch.symbols), batch.answers)

    fit(model, loss, config.updates, rate, config.warmup)
    return model.eval()


def fit(model: nn.Module, loss: Callable[[int], Tensor], updates: int, rate: float, warmup: int) -> None:
    """Train with Adam: the rate rises and falls along a cosine to zero, gradients are clipped to a norm of 1.

    Parameters
    ----------
    model : nn.Module
        Whose parameters.
    loss : callable
        Number of an update, from 0, to its loss.
    updates, warmup : int
        Updates, and how many of them the rate takes to rise.
    rate : float
        Peak learning rate.
    """
    adam = torch.optim.Adam(model.parameters(), rate)

    def factor(step: int) -> float:
        left = (step - warmup) / max(updates - warmup, 1)
        return min((step + 1) / warmup, 0.5 + 0.5 * math.cos(math.pi * max(left, 0.0)))

    schedule = torch.optim.lr_scheduler.LambdaLR(adam, factor)
    for step in range(updates):
        adam.zero_grad()
        loss(step).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        schedule.step()


@torch.no_grad()
def nodes_right(model: StepModel, task: str, graphs: int = 500, seed: int = 1_000_000) -> float:
    """Return the share of nodes of new graphs that are answered correctly."""
    batch = STEP_TASKS[task].draw(graphs, torch.Generator().manual_seed(seed))
    return float((model(batch.graph, batch.symbols).argmax(1) == batch.answers).double().mean())
