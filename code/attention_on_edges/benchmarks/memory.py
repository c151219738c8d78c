"""Peak memory and time of whole processes, on a long window."""

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from attention_on_edges.benchmarks.baselines import LocalAttention
from attention_on_edges.figures import Table, table
from edgewise.graphs import window
from edgewise.message_passing import ENGINES, available_engines, propagate_attention
from edgewise.validation import check_choice

BY_HAND = "blocks by hand"


@dataclass(frozen=True)
class MemoryRow:
    """One engine in a process of its own, forward and backward.

    Attributes
    ----------
    engine : str
        Its name, or ``BY_HAND``.
    before, peak : int
        Bytes that the process held at most: before the first pass, and after it.
    first : float
        Seconds of the first pass, in which the graph and its plan, or the mask, are made.
    seconds : float
        Of a later pass: the median.
    """

    engine: str
    before: int
    peak: int
    first: float
    seconds: float


def bench_memory(
    engines: Sequence[str] | None = None, tokens: int = 65_536, reach: int = 64, repeats: int = 5
) -> list[MemoryRow]:
    """Measure engines on a window graph with ``reach`` tokens on either side, four heads of width 32.

    Each runs in a fresh process: by default :class:`LocalAttention`, ``"tiles"`` and, where DGL can be
    imported, its ``"fused"`` kernels.
    """
    if engines is None:
        engines = [BY_HAND, *(engine for engine in ("fused", "tiles") if engine in available_engines())]
    for engine in engines:
        check_choice("engine", engine, [*ENGINES, BY_HAND])
    context = multiprocessing.get_context("spawn")
    rows = []
    for engine in engines:
        with context.Pool(1) as pool:
            rows.append(pool.apply(_memory_of, (engine, tokens, reach, repeats)))
    return rows


def _memory_of(engine: str, tokens: int, reach: int, repeats: int) -> MemoryRow:
    fields = [torch.randn(tokens, 4, 32, requires_grad=True) for _ in "qkv"]
    _attention(engine, 8, 1)(*(x[:8] for x in fields))  # libraries load before the count begins
    before, start = peak(), time.perf_counter()
    attend = _attention(engine, tokens, reach)
    torch.autograd.grad(attend(*fields).sum(), fields)
    first, most, later = time.perf_counter() - start, peak(), []
    for _ in range(repeats):
        start = time.perf_counter()
        torch.autograd.grad(attend(*fields).sum(), fields)
        later.append(time.perf_counter() - start)
    return MemoryRow(engine, before, most, first, statistics.median(later))


def _attention(engine: str, tokens: int, reach: int) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    if engine == BY_HAND:
        return LocalAttention(tokens, reach)
    graph = window(tokens, reach, reach)
    return lambda q, k, v: propagate_attention(graph, q, k, v, engine)


def peak() -> int:
    """Peak memory of this process, in bytes.

    Linux's VmHWM is of this program alone; ``getrusage`` would include the parent that started it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text("ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def format_memory(rows: Sequence[MemoryRow]) -> Table:
    """Format rows of :func:`bench_memory` as a table."""
    lines = [(r.engine, r.peak / 2**20, r.before / 2**20, r.first, r.seconds) for r in rows]
    head = ["engine", "peak MiB", "before the graph", "s, first pass", "s, later pass"]
    return table(head, lines, ["", ".0f", ".0f", ".2f", ".2f"])
