"""Engines of message passing against hand-written padded attention."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attention_on_edges.benchmarks.baselines import PaddedAttention
from attention_on_edges.benchmarks.timing import interleave
from attention_on_edges.figures import Table, table
from edgewise.graphs import complete
from edgewise.message_passing import ENGINES, available_engines, propagate_attention
from edgewise.message_passing.plan import forget_plans
from edgewise.validation import check_choice

PADDED = "padded"
PADDED_SET_UP = "padded, set-up included"
TILES_SEEN = "tiles, lengths seen before"
TILES_PLANNED = "tiles, plan included"


@dataclass(frozen=True)
class Workload:
    """A batch of sentences and the size of the attention over it."""

    name: str
    lengths: tuple[int, ...]
    num_heads: int
    d_k: int


def _drawn(count: int, shortest: int, longest: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randint(shortest, longest + 1, (count,), generator=generator).tolist())


WORKLOADS = (
    Workload("128 x 10, 1 x 128", (10,) * 128, 1, 128),
    Workload("128 x 5-30, 8 x 64", _drawn(128, 5, 30), 8, 64),
    Workload("128 x 5-30, 4 x 32", _drawn(128, 5, 30), 4, 32),
    Workload("8 x 200-300, 8 x 64", _drawn(8, 200, 300), 8, 64),
)
"""Sentences x lengths, heads x their width; lengths are uniform."""


@dataclass(frozen=True)
class EngineRow:
    """Time of one engine on one workload, forward and backward; ``ratio`` is to padded attention."""

    workload: str
    engine: str
    seconds: float
    ratio: float


def bench_engines(
    workloads: Sequence[Workload] = WORKLOADS,
    engines: Sequence[str] | None = None,
    repeats: int = 5,
    device: torch.device | str = "cpu",
) -> list[EngineRow]:
    """Time engines against hand-written padded attention, forward and backward, one layer.

    Graphs, plans and DGL's copies are made beforehand. The rows ``"..., set-up included"``, ``"..., plan
    included"`` and ``"..., lengths seen before"`` make theirs each time; the last one's plan is shared.

    Parameters
    ----------
    workloads : sequence of Workload
        What to run.
    engines : sequence of str, optional
        Which engines; all that can run here if not given.
    repeats : int
        Measured turns of each.
    device : torch.device or str
        Where; DGL's engines run on the CPU only.
    """
    device = torch.device(device)
    engines = available_engines(device) if engines is None else engines
    for engine in engines:
        check_choice("engine", engine, ENGINES)
    rows = []
    for workload in workloads:
        seconds = interleave(_contestants(workload, engines, device), repeats)
        rows += [EngineRow(workload.name, name, s, s / seconds[PADDED]) for name, s in seconds.items()]
    return rows


def _contestants(
    workload: Workload, engines: Sequence[str], device: torch.device
) -> dict[str, Callable[[], object]]:
    torch.manual_seed(0)
    shape = (sum(workload.lengths), workload.num_heads, workload.d_k)
    q, k, v, upstream = (torch.randn(shape).to(device) for _ in range(4))
    for x in (q, k, v):
        x.requires_grad_()
    graph, padded = complete(workload.lengths).to(device), PaddedAttention(workload.lengths, device)

    def both_ways(attend: Callable[[], Tensor]) -> Callable[[], object]:
        def run() -> None:
            torch.autograd.grad(attend(), (q, k, v), upstream)
            if device.type == "cuda":
                torch.cuda.synchronize(device)  # or only the launches would be timed

        return run

    def attend(engine: str) -> Callable[[], Tensor]:
        return lambda: propagate_attention(graph, q, k, v, engine)

    def planned_anew() -> Tensor:
        forget_plans()
        return seen_before()

    def seen_before() -> Tensor:
        return propagate_attention(complete(workload.lengths).to(device), q, k, v, "tiles")

    contestants = {
        PADDED: both_ways(lambda: padded(q, k, v)),
        PADDED_SET_UP: both_ways(lambda: PaddedAttention(workload.lengths, device)(q, k, v)),
    }
    contestants |= {engine: both_ways(attend(engine)) for engine in engines}
    if "tiles" in engines:
        contestants |= {TILES_SEEN: both_ways(seen_before), TILES_PLANNED: both_ways(planned_anew)}
    return contestants


def format_engines(rows: Sequence[EngineRow]) -> Table:
    """Format rows of :func:`bench_engines` as a table: a line per engine, a column per workload."""
    workloads = list(dict.fromkeys(row.workload for row in rows))
    cells = {(row.engine, row.workload): f"{row.seconds * 1e3:.2f} ({row.ratio:.2f} x)" for row in rows}
    engines = dict.fromkeys(row.engine for row in rows)
    lines = [[engine, *(cells[engine, name] for name in workloads)] for engine in engines]
    return table(["ms, forward + backward", *workloads], lines)
