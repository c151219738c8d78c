"""Chapter 11: what adaptive depth costs in time, against fixed steps and ordinary models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from attention_on_edges.analysis.pointer_chains import ChainConfig, draw_chains, train_chains
from attention_on_edges.benchmarks.timing import interleave
from attention_on_edges.experiments import artifacts
from attention_on_edges.experiments.chain_study import KINDS, TEST_GRAPHS
from attention_on_edges.experiments.runs import restore
from attention_on_edges.figures import Table, table
from edgewise.decoding import greedy
from edgewise.graphs import GraphPool
from edgewise.training import LabelSmoothing

READERS = ("ACT", "6 steps", "10 steps", "6 layers")
"""Of the study of chains; the first is the one that the others are compared with."""

SORTERS = ("sort-universal", "sort-universal-fixed-4", "sort-one-layer", "sort-three-layers")
"""Committed models, likewise."""


@dataclass(frozen=True)
class DepthRow:
    """Median seconds of one pass.

    Attributes
    ----------
    task, model : str
        What it does.
    work : str
        ``"training"``, the loss of a batch and its gradients, or ``"answering"``.
    seconds : float
    ratio : float
        Seconds as a multiple of those of the first model of that task and work.
    """

    task: str
    model: str
    work: str
    seconds: float
    ratio: float


def bench_depth(repeats: int = 5, strings: int = 200, config: ChainConfig | None = None) -> list[DepthRow]:
    """Time trained models of adaptive, fixed and ordinary depth, interleaved.

    Readers of chains are trained first, since how soon a token halts is learned; sorters are committed
    models.

    Parameters
    ----------
    repeats : int
        Measured turns of each.
    strings : int
        To be sorted, from the test set; 128 of them are a training batch.
    config : ChainConfig, optional
        How the readers are trained; as in the study if not given.
    """
    rows = []
    for task, passes in (("chains", _readers(config or ChainConfig())), ("sort", _sorters(strings))):
        for work, functions in passes.items():
            seconds = interleave(functions, repeats)
            first = next(iter(seconds.values()))
            rows += [DepthRow(task, model, work, s, s / first) for model, s in seconds.items()]
    return rows


Passes = dict[str, dict[str, Callable[[], object]]]


def _readers(config: ChainConfig) -> Passes:
    generator = torch.Generator().manual_seed(0)
    chains = draw_chains(TEST_GRAPHS, config.deepest, generator)
    models = {name: train_chains(*KINDS[name], config) for name in READERS}
    return {
        "training": {
            name: _training(m, lambda m=m: m.loss(chains, config.updates)) for name, m in models.items()
        },
        "answering": {
            name: torch.no_grad()(lambda m=model: m.answer(chains)) for name, model in models.items()
        },
    }


def _sorters(strings: int) -> Passes:
    found = {name: restore(artifacts.load(name)) for name in SORTERS}
    _, data = next(iter(found.values()))
    pairs = [[data.encode(side) for side in pair] for pair in data.splits["test"][:strings]]
    sources = [source for source, _ in pairs]
    batch = GraphPool()(sources[:128], [[data.sos_id, *target, data.eos_id] for _, target in pairs[:128]])
    criterion = LabelSmoothing(data.vocab_size, data.pad_id)

    def loss(model: nn.Module) -> torch.Tensor:
        output = model.run(batch)
        predicted = criterion(model.generator(output.hidden), batch.tgt_y)
        price = model.extra_loss(output)
        return predicted if price is None else predicted + price * batch.n_tokens

    return {
        "training": {name: _training(m, lambda m=m: loss(m)) for name, (m, _) in found.items()},
        "answering": {
            name: lambda m=m: greedy(m, sources, data.sos_id, data.eos_id) for name, (m, _) in found.items()
        },
    }


def _training(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Callable[[], float]:
    """Return a function that computes a loss and its gradients, in training mode; it returns their size."""

    def compute() -> float:
        model.train()
        model.zero_grad()
        loss().backward()
        model.eval()
        return float(
            torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
        )

    return compute


def format_depth(rows: Sequence[DepthRow]) -> Table:
    """Format rows of :func:`bench_depth` as a table."""
    cells = {(r.task, r.model, r.work): f"{r.seconds * 1e3:.0f} ({r.ratio:.2f})" for r in rows}
    models = dict.fromkeys((r.task, r.model) for r in rows)
    lines = [(*m, cells[*m, "training"], cells[*m, "answering"]) for m in models]
    return table(["task", "model", "training, ms", "answering, ms"], lines)
