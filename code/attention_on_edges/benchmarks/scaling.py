"""Growth of time and memory with the length of a text: measured rows and fitted power laws."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from attention_on_edges.figures import table

QUADRATIC = ("dense", "complete")
"""Contestants of quadratic time; they are measured on shorter texts."""


@dataclass(frozen=True)
class LongRow:
    """One layer, four heads of 32, forward and backward, in a process of its own.

    Attributes
    ----------
    name : str
        Of the contestant; ``dense`` is ``scaled_dot_product_attention`` itself, without a graph.
    tokens, edges : int
        Of the text, and of its graph.
    seconds : float
        Median of the measured passes.
    first : float
        Of the first pass, in which the graph and its plan of tiles are made.
    memory : float
        Bytes by which the process grew over what it held before: queries, keys and values, graph, plan, pass.
    peak : float
        Bytes that the process held at most.
    measured : bool
        Else extrapolated by the power laws that fit the measured lengths from 4,096 on.
    """

    name: str
    tokens: int
    edges: int
    seconds: float
    first: float
    memory: float
    peak: float
    measured: bool = True

    @property
    def known(self) -> dict[str, str | float]:
        """The fields that have a value, by their names.

        An extrapolated row has no peak, and no time and memory if fewer than two lengths were measured; a
        killed process leaves only the sizes of text and graph.
        """
        return {name: value for name, value in asdict(self).items() if value == value}


def extrapolated(name: str, measured: Sequence[LongRow], n: int, edges: int) -> LongRow:
    """Extrapolate by the power laws of the measured lengths from 4,096 on; NaN if there are not two."""
    rows = [row for row in measured if row.tokens >= 4096 and row.seconds > 0]
    figures = dict.fromkeys(("seconds", "first", "memory"), math.nan)
    if len(rows) > 1:
        for figure in figures:
            slope, intercept = _line(rows, figure)
            figures[figure] = math.exp(intercept + slope * math.log(n))
    return LongRow(name, n, edges, **figures, peak=math.nan, measured=False)


def exponents(
    rows: Sequence[LongRow], name: str, shortest: int = 16_384, longest: int = 131_072
) -> tuple[float, float]:
    """Fit the exponents of time and memory in the length, by lines through the logarithms.

    Raises
    ------
    ValueError
        If fewer than two lengths between the two were measured.
    """
    rows = [r for r in rows if r.name == name and r.measured and r.seconds > 0]
    rows = [r for r in rows if shortest <= r.tokens <= longest]
    if len(rows) < 2:
        raise ValueError(f"rows must hold two lengths of {name!r} in {shortest}..{longest}, got {len(rows)}")
    return tuple(_line(rows, figure)[0] for figure in ("seconds", "memory"))


def _line(rows: Sequence[LongRow], figure: str) -> tuple[float, float]:
    """Slope and intercept of the logarithm of a figure over that of the length."""
    x = [math.log(row.tokens) for row in rows]
    return statistics.linear_regression(x, [math.log(max(getattr(row, figure), 1e-9)) for row in rows])


def format_long(rows: Sequence[LongRow]) -> str:
    """Format rows of ``bench_long`` as a table, with the exponents that can be fitted below it."""
    cells = []
    for row in rows:
        mark = "" if row.measured else "*"
        peak = f"{row.peak / 2**20:.0f}" if row.measured else ""
        times = [f"{seconds:.4f}{mark}" for seconds in (row.seconds, row.first)]
        memory = f"{row.memory / 2**20:.0f}{mark}"
        cells.append([row.name, row.tokens, row.edges / row.tokens, *times, memory, peak])
    head = ["", "tokens", "edges per token", "seconds", "with plan", "MiB", "peak MiB"]
    lines = [str(table(head, cells, ["", "", ",.1f", "", "", "", ""]))]
    if not all(row.measured for row in rows):
        lines.append("* extrapolated, not measured")
    for name in dict.fromkeys(row.name for row in rows):
        shortest = 4096 if name in QUADRATIC else 16_384
        try:
            of_time, of_memory = exponents(rows, name, shortest)
        except ValueError:
            continue
        lines.append(
            f"{name}: time grows as n^{of_time:.2f}, memory as n^{of_memory:.2f} "
            f"(measured lengths from {shortest:,} to 131,072)"
        )
    return "\n".join(lines)
