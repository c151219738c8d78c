"""One attention layer on ever longer texts: time and memory of dense attention and of sparse graphs."""

import math
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from edgewise.benchmarks.memory import peak
from edgewise.graphs import AttentionGraph, complete
from edgewise.message_passing import propagate_attention
from edgewise.sparse import bigbird, binary_partition, counts, window
from edgewise.validation import check_choice, check_count, check_counts

LENGTHS = tuple(2**power for power in range(10, 19))
"""1,024 to 262,144 tokens."""

MOST_QUADRATIC = 32_768
"""Tokens up to which dense attention and the complete graph are measured; beyond, they are extrapolated."""

MOST_MEMORY = 12 * 2**30
"""Bytes; a length that would need more, by what the ones before it took, is extrapolated as well."""

HEADS, WIDTH = 4, 32


REACH, NUM_GLOBAL, NUM_RANDOM, K = 64, 8, 8, 4

GRAPHS: dict[str, Callable[[int], AttentionGraph]] = {
    "complete": complete,
    "window": lambda n: window(n, REACH, REACH),
    "bigbird": lambda n: bigbird(n, REACH, NUM_GLOBAL, NUM_RANDOM),
    "binary partition": lambda n: binary_partition(n, K),
}
"""Constructors by length; the sparse ones have about as many edges a token."""

EDGES: dict[str, Callable[[int], int]] = {
    "dense": lambda n: n * n,
    "complete": lambda n: n * n,
    "window": lambda n: counts.window(n, REACH, REACH),
    "bigbird": lambda n: counts.bigbird(n, REACH, NUM_GLOBAL, NUM_RANDOM),
    "binary partition": lambda n: counts.binary_partition(n, K),
}
"""Edges of the same, in closed form."""

CONTESTANTS = ("dense", *GRAPHS)
QUADRATIC = ("dense", "complete")


@dataclass(frozen=True)
class LongRow:
    """One layer, four heads of 32, forward and backward, in a process of its own.

    Attributes
    ----------
    name : str
        One of ``CONTESTANTS``; ``dense`` is ``scaled_dot_product_attention`` itself, without a graph.
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


def bench_long(
    names: Iterable[str] = CONTESTANTS,
    lengths: Iterable[int] = LENGTHS,
    repeats: int = 3,
    most_quadratic: int = MOST_QUADRATIC,
    most_memory: float = MOST_MEMORY,
) -> list[LongRow]:
    """Measure contestants at every length, shortest first, as far as time and memory allow.

    A process that the system ends, for want of memory say, gives a row without times.

    Parameters
    ----------
    names : iterable of str
        Some of ``CONTESTANTS``.
    lengths : iterable of int
        Tokens of the texts.
    repeats : int
        Measured passes, after the first one.
    most_quadratic : int
        Longest text on which dense attention and the complete graph are run.
    most_memory : float
        Bytes that a length may need, judged by the one before it, to be run.

    Raises
    ------
    TypeError, ValueError
        If a name is unknown or a number is not positive.
    """
    names, lengths = list(names), check_counts("lengths", list(lengths), 1)
    for name in names:
        check_choice("names", name, CONTESTANTS)
    check_count("repeats", repeats, 1)
    return [
        row for name in names for row in _rows_of(name, sorted(lengths), repeats, most_quadratic, most_memory)
    ]


def _rows_of(
    name: str, lengths: Sequence[int], repeats: int, most_quadratic: int, most_memory: float
) -> list[LongRow]:
    rows: list[LongRow] = []
    for n in lengths:
        measured = [row for row in rows if row.measured]
        too_slow = name in QUADRATIC and n > most_quadratic
        if too_slow or len(measured) < len(rows) or _needed(measured, n) > most_memory:
            rows.append(_extrapolated(name, measured, n))
        else:
            rows.append(_measure(name, n, repeats))
    return rows


def _needed(measured: Sequence[LongRow], n: int) -> float:
    """Guess bytes from the latest length, as if they grew in proportion to it and a tenth more."""
    return 1.1 * measured[-1].memory * n / measured[-1].tokens if measured else 0.0


def _measure(name: str, n: int, repeats: int) -> LongRow:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(_run, name, n, repeats).result()
        except BrokenProcessPool:
            return LongRow(name, n, EDGES[name](n), math.nan, math.nan, math.nan, math.nan)


def _run(name: str, n: int, repeats: int) -> LongRow:
    _passes(name, 64, 1)  # libraries load before the count begins
    before = peak()
    seconds = _passes(name, n, 1 + repeats)
    most = peak()
    return LongRow(name, n, EDGES[name](n), statistics.median(seconds[1:]), seconds[0], most - before, most)


def _passes(name: str, n: int, count: int) -> list[float]:
    """Run a layer forward and backward; seconds of each pass, the graph made within the first."""
    seconds = []
    begin = time.perf_counter()
    graph = None if name == "dense" else GRAPHS[name](n)
    tokens = n if graph is None else graph.num_src
    built = time.perf_counter() - begin
    fields = [torch.randn(tokens, HEADS, WIDTH, requires_grad=True) for _ in "qkv"]
    upstream = torch.ones(tokens, HEADS, WIDTH)
    for _ in range(count):
        begin = time.perf_counter()
        if graph is None:
            q, k, v = (x.transpose(0, 1)[None] for x in fields)
            result = scaled_dot_product_attention(q, k, v)[0].transpose(0, 1)
        else:
            result = propagate_attention(graph, *fields)
        torch.autograd.grad(result, fields, upstream)
        del result
        seconds.append(time.perf_counter() - begin)
    seconds[0] += built
    return seconds


def exponents(
    rows: Sequence[LongRow], name: str, shortest: int = 16_384, longest: int = 131_072
) -> tuple[float, float]:
    """Fit powers of the length to measured time and memory: the slopes of straight lines between logarithms.

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


def _extrapolated(name: str, measured: Sequence[LongRow], n: int) -> LongRow:
    """Follow the power laws of the measured lengths from 4,096 on; no number where there are not two."""
    rows = [row for row in measured if row.tokens >= 4096 and row.seconds > 0]
    figures = dict.fromkeys(("seconds", "first", "memory"), math.nan)
    if len(rows) > 1:
        for figure in figures:
            slope, intercept = _line(rows, figure)
            figures[figure] = math.exp(intercept + slope * math.log(n))
    return LongRow(name, n, EDGES[name](n), **figures, peak=math.nan, measured=False)


def format_long(rows: Sequence[LongRow]) -> str:
    """Lay rows of :func:`bench_long` out as a table, with exponents where they can be fitted below it."""
    head = f"{'':18}{'tokens':>9}{'edges a token':>15}{'seconds':>12}{'with plan':>12}"
    lines = [head + f"{'MiB':>10}{'peak MiB':>10}"]
    for row in rows:
        mark = " " if row.measured else "*"
        peak = f"{row.peak / 2**20:10.0f}" if row.measured else f"{'':10}"
        lines.append(
            f"{row.name:18}{row.tokens:9,}{row.edges / row.tokens:15,.1f}{row.seconds:11.4f}{mark}"
            f"{row.first:11.4f}{mark}{row.memory / 2**20:9.0f}{mark}{peak}"
        )
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
