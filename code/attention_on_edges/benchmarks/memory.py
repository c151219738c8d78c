"""Peak memory of whole processes."""

import multiprocessing
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from attention_on_edges.figures import Table, table
from edgewise.graphs import AttentionGraph, window
from edgewise.message_passing import ENGINES, available_engines, propagate_attention
from edgewise.validation import check_choice


@dataclass(frozen=True)
class MemoryRow:
    """Peak memory of a whole process that ran one engine once, forward and backward, in bytes."""

    engine: str
    before: int
    peak: int
    seconds: float


def bench_memory(
    engines: Sequence[str] | None = None, tokens: int = 65_536, reach: int = 64
) -> list[MemoryRow]:
    """Measure engines on a window graph with ``reach`` tokens on either side.

    Four heads of width 32; each engine in a fresh process, graph included: ``"tiles"`` and, where DGL can be
    imported, its ``"fused"`` kernels, if ``engines`` does not name others.
    """
    if engines is None:
        engines = [engine for engine in ("fused", "tiles") if engine in available_engines()]
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
    before, begin = peak(), time.perf_counter()
    graph: AttentionGraph = window(tokens, reach, reach)
    propagate_attention(graph, q, k, v, engine).sum().backward()
    return MemoryRow(engine, before, peak(), time.perf_counter() - begin)


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
    lines = [(row.engine, row.peak / 2**20, row.before / 2**20, row.seconds) for row in rows]
    return table(["engine", "peak MiB", "before the graph", "seconds"], lines, ["", ".0f", ".0f", ".2f"])
