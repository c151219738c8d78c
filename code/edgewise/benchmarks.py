"""Every table of speed and memory: interleaved runs, medians, ratios."""

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from edgewise.graphs import AttentionGraph, complete, dgl_available, window
from edgewise.message_passing import ENGINES, propagate_attention
from edgewise.validation import check_choice, check_count

PADDED = "padded"
TILES_PLANNED = "tiles, plan included"

TURN = 0.05
"""Seconds that a fast function may take in its turn ..."""

MOST_CALLS = 20
"""... and how often it is called in it at most."""

LONG = 1.0
"""Seconds from which a call is too long to be made in vain."""


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
"""Sentences x lengths, heads x their width; lengths are drawn evenly."""


def interleave(functions: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Time functions in turns, so that a slow moment of the machine hits all of them.

    A turn begins with a call that is not measured, because the function before has left its marks on caches
    and allocator; one that takes longer than ``LONG`` seconds goes without. A function that takes less than
    ``TURN`` seconds is called several times.

    Parameters
    ----------
    functions : mapping of str to callable
        Each is called twice unmeasured, then has ``repeats`` turns.
    repeats : int
        At least 1.

    Returns
    -------
    dict of str to float
        Median seconds of each.
    """
    check_count("repeats", repeats, 1)
    calls, in_vain = {}, {}
    for name, function in functions.items():
        function()
        seconds = _seconds(function)
        calls[name] = min(1 + int(TURN / seconds), MOST_CALLS)
        in_vain[name] = 1 if seconds < LONG else 0
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            turn = [_seconds(function) for _ in range(in_vain[name] + calls[name])]
            times[name] += turn[in_vain[name] :]
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def _seconds(function: Callable[[], object]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


class PaddedAttention:
    """What one writes by hand: pad to the longest sentence, attend densely, take the padding off again.

    Where tokens go is worked out beforehand, as a tile plan is.
    """

    def __init__(self, lengths: Sequence[int]):
        size = torch.tensor(lengths)
        self.shape = (len(lengths), max(lengths))
        real = torch.arange(max(lengths)) < size[:, None]
        self.slots = real.flatten().nonzero().squeeze(1)
        self.mask = None if bool(real.all()) else real[:, None, None]

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Packed q, k, v [N, h, d] to packed answers [N, h, d]."""
        answer = scaled_dot_product_attention(*map(self._pad, (q, k, v)), attn_mask=self.mask)
        return answer.transpose(1, 2).flatten(0, 1).index_select(0, self.slots)

    def _pad(self, x: Tensor) -> Tensor:
        slots = x.new_zeros(self.shape[0] * self.shape[1], *x.shape[1:]).index_copy(0, self.slots, x)
        return slots.unflatten(0, self.shape).transpose(1, 2)


@dataclass(frozen=True)
class EngineRow:
    """Time of one engine on one workload, forward and backward; ``ratio`` is to padded attention."""

    workload: str
    engine: str
    seconds: float
    ratio: float


def bench_engines(
    workloads: Sequence[Workload] = WORKLOADS, engines: Sequence[str] | None = None, repeats: int = 5
) -> list[EngineRow]:
    """Time engines against hand-written padded attention, forward and backward, one layer.

    Graphs, plans and DGL's copies are made beforehand; ``"tiles, plan included"`` makes its plan each time.

    Parameters
    ----------
    workloads : sequence of Workload
        What to run.
    engines : sequence of str, optional
        Which engines; all that can run here if not given.
    repeats : int
        Measured turns of each.
    """
    if engines is None:
        engines = [e for e in ENGINES if e in ("scatter", "tiles") or dgl_available()]
    for engine in engines:
        check_choice("engine", engine, ENGINES)
    rows = []
    for workload in workloads:
        seconds = interleave(_contestants(workload, engines), repeats)
        rows += [EngineRow(workload.name, name, s, s / seconds[PADDED]) for name, s in seconds.items()]
    return rows


def _contestants(workload: Workload, engines: Sequence[str]) -> dict[str, Callable[[], object]]:
    torch.manual_seed(0)
    shape = (sum(workload.lengths), workload.num_heads, workload.d_k)
    q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
    upstream = torch.randn(shape)
    graph, padded = complete(workload.lengths), PaddedAttention(workload.lengths)

    def both_ways(attend: Callable[[], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(attend(), (q, k, v), upstream)

    def attend(engine: str) -> Callable[[], Tensor]:
        return lambda: propagate_attention(graph, q, k, v, engine)

    contestants = {PADDED: both_ways(lambda: padded(q, k, v))}
    contestants |= {engine: both_ways(attend(engine)) for engine in engines}
    if "tiles" in engines:
        contestants[TILES_PLANNED] = both_ways(
            lambda: propagate_attention(complete(workload.lengths), q, k, v, "tiles")
        )
    return contestants


@dataclass(frozen=True)
class MemoryRow:
    """Peak memory of a whole process that ran one engine once, forward and backward, in bytes."""

    engine: str
    before: int
    peak: int
    seconds: float


def bench_memory(
    engines: Sequence[str] = ("fused", "tiles"), tokens: int = 65_536, reach: int = 64
) -> list[MemoryRow]:
    """Measure engines on a window graph: every token hears itself and ``reach`` tokens on either side.

    Four heads of width 32; each engine in a fresh process, graph included.
    """
    for engine in engines:
        check_choice("engine", engine, ENGINES)
    context = multiprocessing.get_context("spawn")
    rows = []
    for engine in engines:
        with context.Pool(1) as pool:
            rows.append(pool.apply(_memory_of, (engine, tokens, reach)))
    return rows


def _memory_of(engine: str, tokens: int, reach: int) -> MemoryRow:
    q, k, v = (torch.randn(tokens, 4, 32, requires_grad=True) for _ in range(3))
    small = window(8, 1, 1)
    propagate_attention(small, q[:8], k[:8], v[:8], engine)  # libraries load before the count begins
    before, begin = _peak(), time.perf_counter()
    graph: AttentionGraph = window(tokens, reach, reach)
    propagate_attention(graph, q, k, v, engine).sum().backward()
    return MemoryRow(engine, before, _peak(), time.perf_counter() - begin)


def _peak() -> int:
    """Most memory that this process has held, in bytes.

    Linux keeps it for the program that runs now; ``getrusage`` would include the parent that started it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text("ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def format_engines(rows: Sequence[EngineRow]) -> str:
    """Lay rows of :func:`bench_engines` out as a table: milliseconds, and the ratio to padded attention."""
    workloads = list(dict.fromkeys(row.workload for row in rows))
    cells = {(row.engine, row.workload): f"{row.seconds * 1e3:9.2f} ({row.ratio:6.2f} x)" for row in rows}
    lines = [f"{'ms, forward + backward':24}" + "".join(f"{name:>24}" for name in workloads)]
    for engine in dict.fromkeys(row.engine for row in rows):
        lines.append(f"{engine:24}" + "".join(f"{cells[engine, name]:>24}" for name in workloads))
    return "\n".join(lines)


def format_memory(rows: Sequence[MemoryRow]) -> str:
    """Lay rows of :func:`bench_memory` out as a table."""
    lines = [f"{'engine':10}{'peak MiB':>10}{'of it before':>14}{'seconds':>10}"]
    for row in rows:
        peak, before = row.peak / 2**20, row.before / 2**20
        lines.append(f"{row.engine:10}{peak:10.0f}{before:14.0f}{row.seconds:10.2f}")
    return "\n".join(lines)
