"""One attention layer on long texts, dense and sparse, in a process of its own: time and memory."""

import importlib
import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from attention_on_edges.bench.baselines import LocalAttention
from attention_on_edges.bench.harness import Row, Run
from attention_on_edges.bench.memory import KEEPING, alone, peak
from edgewise.graph_attention import GraphAttention
from edgewise.graphs import AttentionGraph, bigbird, binary_partition, complete, edge_counts, window
from edgewise.message_passing import ENGINES, propagate_attention

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

EDGES: dict[str, Callable[[int], int]] = {
    "dense": lambda n: n * n,
    "complete": lambda n: n * n,
    "window": lambda n: edge_counts.window(n, REACH, REACH),
    "bigbird": lambda n: edge_counts.bigbird(n, REACH, NUM_GLOBAL, NUM_RANDOM),
    "binary partition": lambda n: edge_counts.binary_partition(n, K),
}
"""Edges of the same, in closed form."""

BY_HAND = "blocks by hand"


def long_plan(small: bool = False) -> dict[str, Run]:
    """Dense attention and each graph, on every length."""
    lengths = [64, 128] if small else LENGTHS
    return {name: partial(_growth, name, lengths) for name in EDGES}


def memory_plan(small: bool = False) -> dict[str, Run]:
    """A window by hand, in PyTorch's sparse kernels and in tiles; layers by their edges and heads."""
    tokens = 128 if small else 65_536
    names = [BY_HAND, "csr", "tiles"]
    runs: dict[str, Run] = {name: partial(_window, name, tokens) for name in names}
    for reach, heads in ((8, 4), (32, 4), (32, 16)):
        name = f"{2 * reach + 1} in-edges on {tokens // 4:,} tokens, {heads} heads"
        runs[name] = partial(_layers, name, tokens // 4, reach, heads)
    return runs


def _window(name: str, tokens: int, device: torch.device, repeats: int, only: Sequence[str]) -> list[Row]:
    workload = f"{tokens:,} tokens, {2 * REACH + 1} in-edges each"
    return [{"workload": workload, "contestant": name} | alone(_cost, name, tokens, repeats)]


def _layers(
    name: str, tokens: int, reach: int, heads: int, device: torch.device, repeats: int, only: Sequence[str]
) -> list[Row]:
    return [
        {"workload": name, "contestant": each} | alone(_layer_cost, each, tokens, reach, heads, repeats)
        for each in ("TransformerConv", "scatter", "csr", "tiles")
    ]


def _layer_cost(name: str, tokens: int, reach: int, heads: int, repeats: int) -> Row:
    """A training step of a layer of width 128, projections included, plan or pattern too."""
    graph, x = window(tokens, reach, reach), torch.randn(tokens, 128)
    layer: nn.Module = GraphAttention(128, heads, engine=name if name in ENGINES else "auto")
    where: object = graph
    if name == "TransformerConv":
        conv = importlib.import_module("torch_geometric.nn").TransformerConv
        layer, where = conv(128, 128 // heads, heads, root_weight=False), graph.edge_index
    loaded, seconds = peak(), []
    for _ in range(1 + repeats):
        begin = time.perf_counter()
        (layer(x, where) if name == "TransformerConv" else layer(where, x)).square().sum().backward()
        seconds.append(time.perf_counter() - begin)
    return {"seconds": statistics.median(seconds[1:]), "memory": peak() - loaded}


def _growth(
    name: str, lengths: Sequence[int], device: torch.device, repeats: int, only: Sequence[str]
) -> list[Row]:
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

    ``memory`` is what the process holds at most besides libraries; ``before`` is what it held with queries,
    keys and values alone.
    """
    _passes(name, 64, 1)  # libraries load before the count begins
    loaded = peak()
    held, (first, *later) = _passes(name, n, 1 + repeats)
    most, seconds = peak(), statistics.median(later)
    return {
        "seconds": seconds,
        "first": first,
        "memory": most - loaded,
        "before": loaded + held,
        "peak": most,
    }


def _passes(name: str, n: int, count: int) -> tuple[int, list[float]]:
    """Return the bytes of queries, keys and values, and the seconds of each pass."""
    begin = time.perf_counter()
    tokens, attend = layer(name, n)
    built, seconds = time.perf_counter() - begin, []
    fields = [torch.randn(tokens, HEADS, WIDTH, requires_grad=True) for _ in "qkv"]
    upstream = torch.ones(tokens, HEADS, WIDTH)
    for _ in range(count):
        begin = time.perf_counter()
        torch.autograd.grad(attend(*fields), fields, upstream)
        seconds.append(time.perf_counter() - begin)
    return sum(x.nbytes for x in fields), [seconds[0] + built, *seconds[1:]]


def layer(name: str, n: int) -> tuple[int, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """Return the tokens of a contestant's graph and its attention, [tokens, h, d] each."""
    if name == "dense":
        return n, _dense
    if name == BY_HAND:
        return n, LocalAttention(n, REACH)
    graph = GRAPHS[name if name in GRAPHS else "window"](n)
    engine = name if name in ENGINES else "tiles"
    return graph.num_src, lambda q, k, v: propagate_attention(graph, q, k, v, engine=engine)


def _dense(*fields: Tensor) -> Tensor:
    q, k, v = (x.transpose(0, 1)[None] for x in fields)
    return scaled_dot_product_attention(q, k, v)[0].transpose(0, 1)
