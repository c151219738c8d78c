"""Chapter 11: chains of pointers, a task in which tokens need different numbers of steps."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from attention_on_edges.analysis.gat_steps import STEPS, StepModel, fit
from edgewise.graphs import AttentionGraph
from edgewise.layers import Embeddings, Generator, PositionalEncoding, draw_weights, layer_pair
from edgewise.models.halting import HaltingUnit
from edgewise.models.transformer import Encoder, Output
from edgewise.models.universal import Encoding, UTransformer
from edgewise.validation import check_choice, check_count, check_real

TOKENS, VALUES = 16, 16
"""Tokens of a graph, and values that they may have."""

DIM, DIM_FF, HEADS = 64, 128, 4

MODELS = ("act", "pondernet", "fixed", "ordinary")
"""One layer with a halting rule of :class:`edgewise.models.universal.UTransformer`, or different layers."""


@dataclass(frozen=True)
class ChainBatch:
    """Chains of pointers side by side.

    Attributes
    ----------
    enc : AttentionGraph
        Each token attends to itself and to the token that it points to.
    symbols : Tensor
        int64 [n, 2]: whether a token is the end of its chain, 0 or 1, and its value.
    depth : Tensor
        int64 [n]: pointers from a token to the end of its chain.
    answers : Tensor
        int64 [n]: the value there.
    """

    enc: AttentionGraph
    symbols: Tensor
    depth: Tensor
    answers: Tensor


def draw_chains(count: int, deepest: int, generator: torch.Generator) -> ChainBatch:
    """Cut the tokens of each graph into chains, in a random order, of depths up to ``deepest``.

    What a token is asked for is as many edges away as the token is deep, so no model can know it after fewer
    steps.
    """
    check_count("count", count, 1)
    check_count("deepest", deepest)
    target, depth = torch.empty(2, count * TOKENS, dtype=torch.int64)
    end = torch.empty(count * TOKENS, dtype=torch.int64)
    for first in range(0, count * TOKENS, TOKENS):
        order, place = first + torch.randperm(TOKENS, generator=generator), 0
        while place < TOKENS:
            length = int(torch.randint(1, deepest + 2, (), generator=generator))
            chain = order[place : place + length]
            target[chain] = chain[(torch.arange(len(chain)) - 1).clamp(min=0)]
            depth[chain], end[chain] = torch.arange(len(chain)), chain[0]
            place += length
    value = torch.randint(VALUES, end.shape, generator=generator)
    token, points = torch.arange(len(end)), depth > 0
    src, dst = torch.cat([token, target[points]]), torch.cat([token, token[points]])
    graph = AttentionGraph(src, dst, len(end))
    return ChainBatch(graph, torch.stack([(~points).long(), value], 1), depth, value[end])


class ChainReader(UTransformer):
    """One layer that is applied to each token until it halts: an encoder alone, without positions.

    Steps are not encoded either, so that a model can take more of them than in training.

    Parameters
    ----------
    halting, max_steps, weight
        As in :class:`edgewise.models.universal.UTransformer`.
    """

    def __init__(self, halting: str, max_steps: int, weight: float):
        layer, _ = layer_pair(DIM, DIM_FF, HEADS, 0.0)
        encoder, places = Encoder(layer, 1), PositionalEncoding(DIM, 0.0)
        unit = None if halting == "fixed" else HaltingUnit(DIM, 1.0 if halting == "act" else -1.0)
        words = Embeddings(1, DIM)  # not used
        super().__init__(
            encoder, encoder, words, words, places, places, Generator(DIM, VALUES), None, unit, max_steps,
            halting=halting, prior=0.2, ponder_weight=weight, ponder_warmup=300, engine="scatter",
        )  # fmt: skip
        draw_weights(self)
        self.fields = nn.ModuleList(nn.Embedding(size, DIM) for size in (2, VALUES))

    def advance(self, positions: Tensor) -> Callable[[int, Tensor, Tensor], Tensor]:
        """Return a function that leaves a step's input as it is."""
        return lambda n, rows, x: x

    def run(self, batch: ChainBatch) -> Output:
        """Revise the tokens until all have halted."""
        x = torch.stack([f(ids) for f, ids in zip(self.fields, batch.symbols.T, strict=True)]).sum(0)
        found = self.until_halted("dec", Encoding(self, batch), x, torch.zeros(len(x), dtype=torch.int64))
        return Output(self.decoder.norm(found.output), {"dec": found})

    def loss(self, batch: ChainBatch, step: int) -> Tensor:
        """Return the loss per token, after ``step`` updates, that of halting included."""
        output = self.run(batch)
        several = self.predictions(output)
        if several is None:
            loss = cross_entropy(self.generator.logits(output.hidden), batch.answers)
        else:
            states, weights = several
            logits = self.generator.logits(states).flatten(0, 1)
            each = cross_entropy(logits, batch.answers.repeat(len(states)), reduction="none")
            loss = (each.view_as(weights) * weights).sum(0).mean()
        extra = self.extra_loss(output, step)
        return loss if extra is None else loss + extra

    def answer(self, batch: ChainBatch) -> tuple[Tensor, Tensor]:
        """Return each token's answer and the steps that it took."""
        output = self.run(batch)
        return self.generator.logits(output.hidden).argmax(1), output.pondered["dec"].steps


class OrdinaryReader(nn.Module):
    """Different layers, all of which every token takes; as :class:`ChainReader` otherwise."""

    def __init__(self, num_layers: int):
        super().__init__()
        self.model = StepModel(2, VALUES, VALUES, STEPS, num_layers, DIM, HEADS, DIM_FF)
        self.max_steps = num_layers

    def loss(self, batch: ChainBatch, step: int) -> Tensor:
        """Return the loss per token."""
        return cross_entropy(self.model(batch.enc, batch.symbols), batch.answers)

    def answer(self, batch: ChainBatch) -> tuple[Tensor, Tensor]:
        """Return each token's answer and the layers that it took."""
        logits = self.model(batch.enc, batch.symbols)
        return logits.argmax(1), torch.full_like(batch.answers, self.max_steps)


@dataclass(frozen=True)
class ChainConfig:
    """How the models are trained, the same for all.

    Attributes
    ----------
    updates, graphs : int
        Updates, and graphs of each.
    deepest : int
        Depth of the longest chains.
    rate : float
        Peak learning rate, after ``warmup`` updates; then it falls along a cosine to zero.
    seed : int
        For weights and graphs.
    """

    updates: int = 1000
    graphs: int = 16
    deepest: int = 6
    rate: float = 2e-3
    warmup: int = 100
    seed: int = 0

    def __post_init__(self):
        for name in ("updates", "graphs", "warmup"):
            check_count(name, getattr(self, name), 1)
        check_count("deepest", self.deepest)
        check_count("seed", self.seed)
        check_real("rate", self.rate)


def train_chains(
    kind: str, steps: int, weight: float = 0.0, config: ChainConfig = ChainConfig()
) -> ChainReader | OrdinaryReader:
    """Train a new model to find the end of chains.

    Parameters
    ----------
    kind : str
        One of ``MODELS``.
    steps : int
        Most steps, or layers.
    weight : float
        Of the loss of halting.
    config : ChainConfig
        How.

    Raises
    ------
    ValueError
        If the kind is unknown or a number not what it should be.
    """
    check_choice("kind", kind, MODELS)
    torch.manual_seed(config.seed)
    check_count("steps", steps, 1)
    model = OrdinaryReader(steps) if kind == "ordinary" else ChainReader(kind, steps, weight)
    generator = torch.Generator().manual_seed(config.seed)

    def loss(step: int) -> Tensor:
        return model.loss(draw_chains(config.graphs, config.deepest, generator), step)

    fit(model, loss, config.updates, config.rate, config.warmup)
    return model.eval()


def rank_correlation(one: Tensor, two: Tensor) -> float:
    """Spearman's correlation of two lists of integers [n], or zero if all of one are equal."""
    ranks = []
    for numbers in (one, two):
        _, which, count = numbers.unique(return_inverse=True, return_counts=True)
        rank = (count.cumsum(0) - (count + 1) / 2)[which].double()
        ranks.append(rank - rank.mean())
    spread = ranks[0].norm() * ranks[1].norm()
    return float((ranks[0] * ranks[1]).sum() / spread) if spread > 0 else 0.0
