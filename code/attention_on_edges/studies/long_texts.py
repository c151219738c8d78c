"""One attention layer on long texts, dense and sparse, in a process of its own: time and memory."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attention_on_edges.runs.harness import Row, Run
from attention_on_edges.sparse_graphs.partition import binary_partition, num_levels
from attention_on_edges.studies.memory import KEEPING, alone, peak
from edgewise.graphs import AttentionGraph, bigbird, complete, window
from edgewise.propagation import propagate_attention

LENGTHS = tuple(2**power for power in range(10, 19))
"""1,024 to 262,144 tokens."""

QUADRATIC = ("dense", "complete")
"""Contestants of quadratic time, measured on at most ``MOST_QUADRATIC`` tokens."""

MOST_QUADRATIC = 32_768

MOST_MEMORY = 12 * 2**30
"""Bytes; a length expected to need more, judged by the one before, is extrapolated as well."""

HEADS, WIDTH = 4, 32

REACH, NUM_GLOBAL, NUM_RANDOM, K = 64, 8, 8, 4

GRAPHS: dict[str, Callable[[int], AttentionGraph]] = {
    "complete": complete,
    "window": lambda n: window(n, REACH, REACH),
    "bigbird": lambda n: bigbird(n, REACH, NUM_GLOBAL, NUM_RANDOM),
    "binary partition": lambda n: binary_partition(n, K),
}
"""Constructors by length; the sparse ones have about as many edges per token."""


def bigbird_edges(n: int) -> int:
    """The closed form of :func:`~edgewise.graphs.bigbird`; short texts are counted."""
    m, each = n - NUM_GLOBAL, 2 * REACH + 1 + NUM_RANDOM
    if m < each:
        return GRAPHS["bigbird"](n).num_edges
    return m * each - REACH * (REACH + 1) + NUM_GLOBAL * (2 * n - NUM_GLOBAL)


def partition_edges(n: int, k: int) -> int:
    """Each token attends to itself, is in one span per level, and attends to some on its left and right."""
    levels, token = num_levels(n), torch.arange(n)
    edges = n + levels * n
    for level in range(levels):
        left, next_left = ((((token + k) >> each) - k).clamp(min=0) for each in (level, level + 1))
        spans = -(-n // 2**level)
        right, next_right = (
            (factor * (k - ((k - 1 - token) >> each))).clamp(max=spans)
            for each, factor in ((level, 1), (level + 1, 2))
        )
        edges += int((left - 2 * next_left + next_right - right).sum())
    return edges


EDGES: dict[str, Callable[[int], int]] = {
    "dense": lambda n: n * n,
    "complete": lambda n: n * n,
    "window": lambda n: GRAPHS["window"](n).num_edges,
    "bigbird": bigbird_edges,
    "binary partition": lambda n: partition_edges(n, K),
}
"""Edges of the same, in closed form."""


def long_plan(small: bool = False) -> dict[str, Run]:
    """Dense attention and each graph, on every length."""
    lengths = [64, 128] if small else LENGTHS
    return {name: partial(_growth, name, lengths) for name in EDGES}


def _growth(name: str, lengths: Sequence[int], device: torch.device, repeats: int) -> list[Row]:
    """Measure a contestant at every length, shortest first, as far as time and memory allow."""
    rows: list[Row] = []
    for n in lengths:
        sizes = {"workload": f"{n:,} tokens", "contestant": name, "tokens": n, "edges": EDGES[name](n)}
        needed = 1.1 * rows[-1].get("memory", 0.0) * n / rows[-1]["tokens"] if rows else 0.0
        stopped = rows and not rows[-1]["measured"]
        found: Row = {}
        if not stopped and needed <= MOST_MEMORY and not (name in QUADRATIC and n > MOST_QUADRATIC):
            try:
                found = alone(_cost, name, n, repeats, **KEEPING) | {"measured": True}
            except RuntimeError as error:
                found = {"failed": type(error).__name__, "measured": False}
        rows.append(sizes | (found or extrapolated(rows, n)))
    return rows


def extrapolated(rows: Sequence[Row], n: int) -> Row:
    """Extrapolate by the power laws of the measured lengths from 4,096 on; nothing if there are not two."""
    rows = [row for row in rows if row["measured"] and row["tokens"] >= 4096]
    figures: Row = {"measured": False}
    if len(rows) > 1:
        for figure in ("seconds", "first", "memory"):
            slope, intercept = _line(rows, figure)
            figures[figure] = math.exp(intercept + slope * math.log(n))
    return figures


def exponents(rows: Sequence[Row], name: str, shortest: int = 16_384) -> tuple[float, float]:
    """Fit the exponents of time and memory in the length, by lines through the logarithms."""
    rows = [row for row in rows if row["contestant"] == name and row["measured"]]
    rows = [row for row in rows if shortest <= row["tokens"] <= 131_072]
    return _line(rows, "seconds")[0], _line(rows, "memory")[0]


def _line(rows: Sequence[Row], figure: str) -> tuple[float, float]:
    """Slope and intercept of the logarithm of a figure over that of the length."""
    x = [math.log(row["tokens"]) for row in rows]
    return statistics.linear_regression(x, [math.log(row[figure]) for row in rows])


def _cost(name: str, n: int, repeats: int) -> Row:
    """Run a layer forward and backward, graph and plan, or mask, made within the first pass.

    ``memory`` is what the process holds at most besides libraries.
    """
    _passes(name, 64, 1)  # libraries load before the count begins
    loaded = peak()
    first, *later = _passes(name, n, 1 + repeats)
    return {"seconds": statistics.median(later), "first": first, "memory": peak() - loaded}


def _passes(name: str, n: int, count: int) -> list[float]:
    """Return the seconds of each pass."""
    begin = time.perf_counter()
    tokens, attend = layer(name, n)
    built, seconds = time.perf_counter() - begin, []
    fields = [torch.randn(tokens, HEADS, WIDTH, requires_grad=True) for _ in "qkv"]
    upstream = torch.ones(tokens, HEADS, WIDTH)
    for _ in range(count):
        begin = time.perf_counter()
        torch.autograd.grad(attend(*fields), fields, upstream)
        seconds.append(time.perf_counter() - begin)
    return [seconds[0] + built, *seconds[1:]]


def layer(name: str, n: int) -> tuple[int, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """Return the tokens of a contestant's graph and its attention, [tokens, h, d] each."""
    if name == "dense":
        return n, _dense
    graph = GRAPHS[name](n)
    return graph.num_src, partial(propagate_attention, graph, engine="tiles")


def _dense(*fields: Tensor) -> Tensor:
    q, k, v = (x.transpose(0, 1)[None] for x in fields)
    return scaled_dot_product_attention(q, k, v)[0].transpose(0, 1)
