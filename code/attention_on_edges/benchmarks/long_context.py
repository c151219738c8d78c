"""One attention layer on texts of increasing length: time and memory of dense and sparse attention."""

import math
import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

import torch
from torch.nn.functional import scaled_dot_product_attention

from attention_on_edges.benchmarks.memory import peak
from attention_on_edges.benchmarks.scaling import QUADRATIC, LongRow, extrapolated
from edgewise.graphs import AttentionGraph, bigbird, binary_partition, complete, edge_counts, window
from edgewise.message_passing import propagate_attention
from edgewise.validation import check_choice, check_count, check_counts

LENGTHS = tuple(2**power for power in range(10, 19))
"""1,024 to 262,144 tokens."""

MOST_QUADRATIC = 32_768
"""Tokens up to which dense attention and the complete graph are measured; beyond, they are extrapolated."""

MOST_MEMORY = 12 * 2**30
"""Bytes; a length expected to need more, judged by the previous ones, is extrapolated as well."""

KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**36)}
"""Environment that makes glibc keep freed memory; other systems ignore it."""

_ENVIRONMENT = threading.Lock()

HEADS, WIDTH = 4, 32


REACH, NUM_GLOBAL, NUM_RANDOM, K = 64, 8, 8, 4

GRAPHS: dict[str, Callable[[int], AttentionGraph]] = {
    "complete": complete,
    "window": lambda n: window(n, REACH, REACH),
    "bigbird": lambda n: bigbird(n, REACH, NUM_GLOBAL, NUM_RANDOM),
    "binary partition": lambda n: binary_partition(n, K),
}
"""Constructors by length; the sparse ones have about as many edges per token."""

EDGES: dict[str, Callable[[int], int]] = {
    "dense": lambda n: n * n,
    "complete": lambda n: n * n,
    "window": lambda n: edge_counts.window(n, REACH, REACH),
    "bigbird": lambda n: edge_counts.bigbird(n, REACH, NUM_GLOBAL, NUM_RANDOM),
    "binary partition": lambda n: edge_counts.binary_partition(n, K),
}
"""Edges of the same, in closed form."""

CONTESTANTS = ("dense", *GRAPHS)
"""The contestants: dense attention, and each graph."""


def bench_long(
    names: Iterable[str] = CONTESTANTS,
    lengths: Iterable[int] = LENGTHS,
    repeats: int = 3,
    most_quadratic: int = MOST_QUADRATIC,
    most_memory: float = MOST_MEMORY,
    keep: bool = True,
) -> list[LongRow]:
    """Measure contestants at every length, shortest first, as far as time and memory allow.

    A process killed by the system, for lack of memory say, gives a row without times.

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
    keep : bool
        Whether the processes of all contestants keep freed memory, as PyTorch does on a GPU. Otherwise glibc
        returns and re-acquires large buffers in every pass, which dominates the time on long texts.

    Raises
    ------
    TypeError, ValueError
        If a name is unknown or a number is not positive.
    """
    names, lengths = list(names), check_counts("lengths", list(lengths), 1)
    for name in names:
        check_choice("names", name, CONTESTANTS)
    check_count("repeats", repeats, 1)
    lengths, limits = sorted(set(lengths)), (most_quadratic, most_memory)
    return [row for name in names for row in _rows_of(name, lengths, repeats, keep, *limits)]


def _rows_of(
    name: str, lengths: Sequence[int], repeats: int, keep: bool, most_quadratic: int, most_memory: float
) -> list[LongRow]:
    rows: list[LongRow] = []
    for n in lengths:
        measured = [row for row in rows if row.measured]
        too_slow = name in QUADRATIC and n > most_quadratic
        if too_slow or len(measured) < len(rows) or _needed(measured, n) > most_memory:
            rows.append(extrapolated(name, measured, n, EDGES[name](n)))
        else:
            rows.append(_measure(name, n, repeats, keep))
    return rows


def _needed(measured: Sequence[LongRow], n: int) -> float:
    """Estimate bytes from the latest length: proportional, plus a tenth."""
    return 1.1 * measured[-1].memory * n / measured[-1].tokens if measured else 0.0


def _measure(name: str, n: int, repeats: int, keep: bool) -> LongRow:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            with _environment(KEEPING if keep else {}):
                answer = pool.submit(_run, name, n, repeats)  # this starts the process
            return answer.result()
        except BrokenProcessPool:
            return LongRow(name, n, EDGES[name](n), math.nan, math.nan, math.nan, math.nan)


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for this process and those it starts; one user at a time."""
    with _ENVIRONMENT:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


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
