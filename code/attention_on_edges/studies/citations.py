"""Chapter 14's study: which papers cite each other? Links that were left out, found by structure alone."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from attention_on_edges.corpora.graph_data import citations, symmetric_graph
from attention_on_edges.runs.fitting import FitConfig, FitRun, fit
from edgewise import GraphTransformerLayer
from edgewise.graphs import AttentionGraph

STEPS = (1, 2, 4, 8)
"""Lengths of the random walks that give a paper's position."""
DIM = 64
LEARNED = {"attention along citations": True, "each paper alone": False}
"""Whether both papers of a citation attend to each other; each attends to itself."""


class Links(NamedTuple):
    """Pairs [*, 2] of papers: known ones, those held back, as many that are no citations; how many papers."""

    known: Tensor
    valid: Tensor
    test: Tensor
    no_valid: Tensor
    no_test: Tensor
    papers: int


class Seen(NamedTuple):
    """What a model sees, a graph and positions [n, DIM * len(STEPS)], and pairs [m, 2] to tell apart."""

    graph: AttentionGraph
    positions: Tensor
    linked: Tensor
    others: Tensor


@cache
def hold_out(seed: int) -> Links:
    """Hold back a tenth of the citations for the test, a twentieth for validation (Kipf & Welling 2016)."""
    drawn = torch.Generator().manual_seed(seed)
    found, count = citations()
    pairs = torch.tensor(found).sort(1).values.unique(dim=0)
    pairs = pairs[torch.randperm(len(pairs), generator=drawn)]
    test, valid = len(pairs) // 10, len(pairs) // 20
    cited = adjacency(pairs, count) > 0
    no = torch.randint(count, (4 * (test + valid), 2), generator=drawn)
    no = no[(no[:, 0] != no[:, 1]) & ~cited[no[:, 0], no[:, 1]]]
    test_pairs, valid_pairs, known = pairs.tensor_split([test, test + valid])
    return Links(known, valid_pairs, test_pairs, no[test : test + valid], no[:test], count)


def adjacency(pairs: Tensor, count: int) -> Tensor:
    """1 for both directions of each pair [*, 2], else 0: [count, count]."""
    found = torch.zeros(count, count)
    found[pairs[:, 0], pairs[:, 1]] = found[pairs[:, 1], pairs[:, 0]] = 1.0
    return found


def common_neighbours(a: Tensor) -> Tensor:
    """How many papers two papers share (Liben-Nowell & Kleinberg 2003)."""
    return a @ a


def adamic_adar(a: Tensor) -> Tensor:
    """The same, where one that many papers share counts less: 1 over its degree's logarithm."""
    return (a / a.sum(0).clamp(min=2).log()) @ a


def walks(a: Tensor) -> Tensor:
    """How likely walks of 1 to 10 steps lead from paper to paper, by the last one's degree: symmetric."""
    degree = a.sum(1).clamp(min=1)
    step = power = a / degree[:, None]
    total = step
    for _ in range(9):
        power = power @ step
        total = total + power
    return total / degree


SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "common neighbours": common_neighbours,
    "Adamic-Adar": adamic_adar,
    "random walks": walks,
}
"""Scores of all pairs [n, n] from the adjacency, nothing learned."""


def positions(pairs: Tensor, start: Tensor) -> Tensor:
    """Where random walks from each paper lead: its mean of ``start`` [n, DIM] after each of STEPS steps."""
    ends, count = torch.cat([pairs, pairs.flip(1)]).T, len(start)
    share = 1 / torch.bincount(ends[0], minlength=count).clamp(min=1)
    walk = torch.sparse_coo_tensor(ends, share[ends[0]], (count, count)).to_sparse_csr()
    found, x = [], start
    for step in range(1, max(STEPS) + 1):
        x = walk @ x
        if step in STEPS:
            found.append(normalize(x, dim=1) * DIM**0.5)
    return torch.cat(found, 1)


class LinkModel(nn.Module):
    """Two layers of attention; how likely two papers are linked is a dot product of their states."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(DIM * len(STEPS), DIM)
        self.layers = nn.ModuleList(GraphTransformerLayer(DIM, 4, 2 * DIM, dropout=0.1) for _ in range(2))
        self.out = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, DIM))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, seen: Seen, pairs: Tensor) -> Tensor:
        """Return the logits of pairs [m, 2]: [m]."""
        x = self.embed(seen.positions)
        for layer in self.layers:
            x = layer(seen.graph, x)
        x = self.out(x)
        return (x[pairs[:, 0]] * x[pairs[:, 1]]).sum(1) / DIM**0.5 + self.bias

    def loss(self, seen: Seen, step: int) -> Tensor:
        """Return the cross-entropy of links and of others, each a mean."""
        found = self(seen, torch.cat([seen.linked, seen.others])).tensor_split([len(seen.linked)])
        return softplus(-found[0]).mean() + softplus(found[1]).mean()


def measure_links(name: str, training: FitConfig) -> dict[str, Any]:
    """Find citations that were left out, by one of ``SCORES`` or ``LEARNED``.

    The seed of the training also draws what is held back. Returns the area under the ROC curve of both parts.
    """
    links = hold_out(training.seed)
    found = counted(name, links) if name in SCORES else learned(name, training, links)
    with torch.no_grad():
        return {
            "valid": area(found(links.valid), found(links.no_valid)),
            "test": area(found(links.test), found(links.no_test)),
        }


def counted(name: str, links: Links) -> Callable[[Tensor], Tensor]:
    """One of ``SCORES``: pairs [m, 2] to [m]."""
    scores = SCORES[name](adjacency(links.known, links.papers))
    return lambda pairs: scores[pairs[:, 0], pairs[:, 1]]


def learned(name: str, training: FitConfig, links: Links) -> Callable[[Tensor], Tensor]:
    """The logits of a model that was trained with so many links hidden at a time: pairs [m, 2] to [m]."""
    linked, count = LEARNED[name], links.papers
    start = torch.randn(count, DIM, generator=torch.Generator().manual_seed(training.seed))
    model, _ = fit(LinkModel, partial(hidden, links, start, linked, training.size), training)
    graph = symmetric_graph(links.known[: None if linked else 0], count)
    seen = Seen(graph, positions(links.known, start), links.test, links.no_test)
    return partial(model, seen)


def hidden(
    links: Links, start: Tensor, linked: bool, size: int, generator: torch.Generator
) -> Iterator[Seen]:
    """Hide ``size`` links at a time, from the graph and from the positions, and draw as many other pairs."""
    while True:
        drawn = torch.randperm(len(links.known), generator=generator)
        known, away = links.known[drawn[size:]], links.known[drawn[:size]]
        others = torch.randint(links.papers, (size, 2), generator=generator)
        graph = symmetric_graph(known[: None if linked else 0], links.papers)
        yield Seen(graph, positions(known, start), away, others)


def area(links: Tensor, others: Tensor) -> float:
    """How often a link has a higher score than another pair; a tie counts one half."""
    difference = links[:, None] - others
    return float((difference > 0).double().mean() + 0.5 * (difference == 0).double().mean())


def link_runs() -> Iterator[FitRun]:
    """Ten seeds of each way."""
    for name in [*SCORES, *LEARNED]:
        for seed in range(10):
            training = FitConfig(400, 448, 3e-3, warmup=50, seed=seed)
            yield FitRun(name, partial(measure_links, name), training=training)
