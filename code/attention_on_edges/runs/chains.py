"""Chapter 11's study: whether adaptive depth finds how many steps a token needs, on chains of pointers."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from attention_on_edges.layers import Embeddings, Generator, PositionalEncoding, draw_weights, layer_pair
from attention_on_edges.models.halting import HaltingUnit
from attention_on_edges.models.transformer import Encoder, Output
from attention_on_edges.models.universal import Encoding, UTransformer
from attention_on_edges.runs.fitting import FitConfig, FitRun, fit
from attention_on_edges.runs.gat_steps import STEPS, NodeBatch, StepModel
from edgewise.graphs import AttentionGraph

TOKENS, VALUES, DEEPEST = 16, 16, 6
"""Tokens of a graph, values that they may have, and depth of the longest chains in training."""

DIM, DIM_FF, HEADS = 64, 128, 4

TEST_GRAPHS, TEST_SEED = 500, 2_000_000

LONGER = (12, 20)
"""Depth of longer chains than in training, and the most steps that an adaptive model may take there."""


@dataclass(frozen=True)
class ChainBatch(NodeBatch):
    """Chains of pointers side by side.

    Each token attends to itself and to the token that it points to. Its symbols are whether it is the end of
    its chain, 0 or 1, and its value; its answer is the value there.

    Attributes
    ----------
    depth : Tensor
        int64 [n]: pointers from a token to the end of its chain.
    """

    depth: Tensor


def draw_chains(count: int, deepest: int, generator: torch.Generator) -> ChainBatch:
    """Cut the tokens of each graph into chains, in a random order, of depths up to ``deepest``.

    What a token is asked for is as many edges away as the token is deep, so no model can know it after fewer
    steps.
    """
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
    return ChainBatch(graph, torch.stack([(~points).long(), value], 1), value[end], depth)


class ChainReader(UTransformer):
    """One layer that is applied to each token until it halts: an encoder alone, without positions.

    Steps are not encoded either, so that a model can take more of them than in training. Its arguments are as
    in :class:`attention_on_edges.models.universal.UTransformer`.
    """

    def __init__(self, halting: str, max_steps: int, weight: float):
        layer, _ = layer_pair(DIM, DIM_FF, HEADS, 0.0)
        encoder: Any = Encoder(layer, 1)  # in place of a decoder, too
        unit = None if halting == "fixed" else HaltingUnit(DIM)
        words, places = Embeddings(1, DIM), PositionalEncoding(DIM, 0.0)  # words are not used
        super().__init__(
            encoder, encoder, words, words, places, places, Generator(DIM, VALUES), None, unit, max_steps,
            halting=halting, ponder_weight=weight, ponder_warmup=300, engine="scatter",
        )  # fmt: skip
        draw_weights(self)
        self.fields = nn.ModuleList(nn.Embedding(size, DIM) for size in (2, VALUES))

    def step_forward(self, positions: Tensor, n: int, rows: Tensor, x: Tensor) -> Tensor:
        """Leave a step's input as it is."""
        return x

    def run(self, batch: Any) -> Output:
        """Revise the tokens of a :class:`ChainBatch` until all have halted."""
        x = torch.stack([f(ids) for f, ids in zip(self.fields, batch.symbols.T, strict=True)]).sum(0)
        found = self.until_halted("dec", Encoding(self, batch), x, torch.zeros(len(x), dtype=torch.int64))
        return Output(self.decoder.norm(found.output), {"dec": found})

    def loss(self, batch: ChainBatch, step: int) -> Tensor:
        """Return the loss per token, after ``step`` updates, that of halting included."""
        output = self.run(batch)
        loss = cross_entropy(self.generator.logits(output.hidden), batch.answers)
        extra = self.extra_loss(output, step)
        return loss if extra is None else loss + extra

    def answer(self, batch: ChainBatch) -> tuple[Tensor, Tensor]:
        """Return each token's answer and the steps that it took."""
        output = self.run(batch)
        return self.generator.logits(output.hidden).argmax(1), output.pondered["dec"].steps


class OrdinaryReader(StepModel):
    """Different layers, all of which every token takes; as :class:`ChainReader` otherwise."""

    def __init__(self, num_layers: int):
        super().__init__(2, VALUES, VALUES, STEPS, num_layers, DIM, HEADS, DIM_FF)

    def answer(self, batch: ChainBatch) -> tuple[Tensor, Tensor]:
        """Return each token's answer and the layers that it took."""
        return self(batch).argmax(1), torch.full_like(batch.answers, len(self.layers))


def _batches(count: int, generator: torch.Generator) -> Iterator[ChainBatch]:
    while True:
        yield draw_chains(count, DEEPEST, generator)


TRAINING = FitConfig(1000, 16)


def train_chains(
    model: str, steps: int, weight: float = 0.0, config: FitConfig = TRAINING
) -> ChainReader | OrdinaryReader:
    """Train a new model to find the end of chains.

    Parameters
    ----------
    model : str
        A halting rule of :class:`ChainReader`, or ``"ordinary"``.
    steps : int
        Most steps, or layers.
    weight : float
        Of the loss of halting.
    config : FitConfig
        How it is trained, on so many graphs at a time.
    """
    make: Callable[[], ChainReader | OrdinaryReader] = partial(ChainReader, model, steps, weight)
    if model == "ordinary":
        make = partial(OrdinaryReader, steps)
    return fit(make, partial(_batches, config.size), config)[0]


def rank_correlation(one: Tensor, two: Tensor) -> float:
    """Spearman's correlation of two lists of integers [n], or zero if all of one are equal."""
    from scipy.stats import spearmanr  # not at the top: it takes most of a second

    constant = any(len(numbers.unique()) == 1 for numbers in (one, two))
    return 0.0 if constant else float(spearmanr(one, two).statistic)


def measure_chains(training: FitConfig, model: str, steps: int, weight: float) -> dict[str, Any]:
    """Train; test on new graphs and on longer chains.

    For chains as in training, and for ``longer`` ones: the share of tokens that are ``right``, mean
    ``steps``, the ``rank`` correlation of steps and depth, and both of the former for each depth. Then
    seconds of training, and of answering the graphs as in training.
    """
    began = time.perf_counter()
    reader = train_chains(model, steps, weight, training)
    row: dict[str, Any] = {"training seconds": time.perf_counter() - began}
    for name, deepest in (("", DEEPEST), (" longer", LONGER[0])):
        batch = draw_chains(TEST_GRAPHS, deepest, torch.Generator().manual_seed(TEST_SEED))
        if name and isinstance(reader, ChainReader):
            reader.max_steps = steps * LONGER[0] // DEEPEST if model == "fixed" else LONGER[1]
        with torch.no_grad():
            began = time.perf_counter()
            found, taken = reader.answer(batch)
            seconds = time.perf_counter() - began
        right = found == batch.answers
        row |= {
            f"right{name}": float(right.double().mean()),
            f"steps{name}": float(taken.double().mean()),
            f"rank{name}": rank_correlation(taken, batch.depth),
            f"right by depth{name}": _by_depth(right, batch.depth),
            f"steps by depth{name}": _by_depth(taken, batch.depth),
            f"seconds{name}": seconds,
        }
    return row


def _by_depth(values: Tensor, depth: Tensor) -> list[float]:
    return [float(values[depth == d].double().mean()) for d in range(int(depth.max()) + 1)]


KINDS = {
    "ACT": ("act", 10, 0.05),
    "3 steps": ("fixed", 3, 0.0),
    "6 steps": ("fixed", 6, 0.0),
    "10 steps": ("fixed", 10, 0.0),
    "6 layers": ("ordinary", 6, 0.0),
    "10 layers": ("ordinary", 10, 0.0),
}
"""Adaptive depth, a fixed number of steps of one layer, and different layers."""


PRICES = {f"ACT, {weight}": ("act", 10, weight) for weight in (0.005, 0.015, 0.15, 0.5)}
"""Other weights of the steps in the loss."""


def chain_runs(kinds: Mapping[str, tuple[str, int, float]] = KINDS) -> list[FitRun]:
    """All runs: three seeds of each kind."""
    return [
        FitRun(
            name,
            measure_chains,
            {"model": model, "steps": steps, "weight": weight},
            training=replace(TRAINING, seed=seed),
        )
        for name, (model, steps, weight) in kinds.items()
        for seed in range(3)
    ]
