"""Which engine `auto` takes: what a graph will cost is known before it runs, edge by edge or in tiles.

The coefficients in ``prices.json`` were fitted on the machine that is named there; ``python -m
attention_on_edges bench law --out FOLDER`` writes one that was fitted to yours, to be put in its place.
"""

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from inspect import signature
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from edgewise.graphs import AttentionGraph
from edgewise.graphs.held_edges import check_graph
from edgewise.graphs.per_graph import per_graph
from edgewise.propagation.csr.pattern import count_edges, runs_sparse
from edgewise.propagation.precision import HALF, OnEdges
from edgewise.propagation.tiles.tile_plan import FILLS, is_one_tile, plan_tiles
from edgewise.propagation.triton.triton_engine import has_triton
from edgewise.validation import check_count

TERMS = {
    "csr": ("edges", "edges x d", "nodes", "nodes x d", "turns"),
    "tiles": ("scores", "scores x d", "slots", "slots x d", "calls"),
}
"""What each line counts: all but the last per head, and with ``d`` per number of a head."""

LAW: dict[str, dict[str, float]] = json.loads(
    (files("edgewise.propagation") / "prices.json").read_text("utf-8")
)["nanoseconds"]
"""Nanoseconds of a forward and backward pass in float32 that each term takes, by engine."""

GATHERED = {"new": (400_000, 900_000), "prepared": (100_000, 250_000)}
"""Numbers of edges, E h d, below which ``auto`` takes ``scatter`` for lists on a CPU; and with attributes.

Chosen on random graphs of 200 to 30,000 edges; ``python -m attention_on_edges bench pyg`` has molecules.
"""

SHORT = 128
"""Senders side by side, per receiver at most, up to which a GPU with Triton does without tiles."""

FEW = 8
"""In-edges of a receiver on average, below which lists of edges are not cut into tiles on a GPU."""


class Cost(NamedTuple):
    """What a forward and backward pass takes on a CPU in float32.

    Attributes
    ----------
    seconds : dict of str to float
        Predicted, for the engines between which there was a choice.
    engine : str
        What ``engine="auto"`` takes.
    why : str
        The reason, in words.
    """

    seconds: dict[str, float]
    engine: str
    why: str


def choose(
    graph: AttentionGraph, q: Tensor, v: Tensor, bias: OnEdges, keep: OnEdges, *features: Tensor
) -> str:
    """Return what ``engine="auto"`` takes: what the law says, where there is a choice."""
    if in_a_transform():
        return "scatter"
    new = not graph.in_intervals and "prepared" not in graph._known
    if (features or new) and _are_few(graph, q.shape[1] * q.shape[2], len(features) > 0):
        return "scatter"
    if features:
        return "triton" if _on_gpu_with_triton(graph) else "csr"
    return "varlen" if suits_varlen(graph, q, v, bias, keep) else cost(graph, *q.shape[1:]).engine


def cost(graph: AttentionGraph, num_heads: int, head_dim: int) -> Cost:
    """Predict the seconds of attention on a graph, and say which engine ``"auto"`` takes and why.

    The cheaper one of ``csr`` and ``tiles``, with few exceptions: ``scatter`` inside of ``torch.func``'s
    transforms, which go through no other engine; ``tiles`` if the graph is one tile, small or half full;
    ``csr`` if there are two edges of the same pair; ``scatter`` for ``csr`` where PyTorch has no kernels
    for that, and for few edges in lists; and no prediction on a GPU. Edges with attributes go by ``csr`` or
    ``scatter``, some graphs on a GPU in half precision by ``varlen``.

    Parameters
    ----------
    graph : AttentionGraph
        Its plan and what was predicted are kept with it.
    num_heads, head_dim : int
        Heads, and the width of one.
    """
    check_graph(graph)
    check_count("num_heads", num_heads, 1)
    check_count("head_dim", head_dim, 1)
    if in_a_transform():
        return Cost({}, "scatter", "no other engine goes through torch.func's transforms and forward mode")
    return _cost(graph, num_heads, head_dim, int("prepared" in graph._known))


def _are_few(graph: AttentionGraph, width: int, attributes: bool) -> bool:
    """Whether edges in lists are gathered sooner than sparse matrices are made of them."""
    least = GATHERED["prepared" if "prepared" in graph._known else "new"][attributes]
    return graph.device.type == "cpu" and graph.num_edges * width < least


def suits_varlen(graph: AttentionGraph, q: Tensor, v: Tensor, bias: OnEdges, keep: OnEdges) -> bool:
    """Whether ``auto`` takes ``varlen``, on GPUs that have it.

    For sequences of unequal lengths and for windows it was the fastest one in half precision
    (``book/studies/gpu-engines.json``).
    """
    if q.device.type != "cuda" or q.dtype not in HALF or torch.compiler.is_compiling():
        return False
    packed, width = graph.lengths, q.shape[-1]
    if packed is None or bias is not None or keep is not None or width % 8 or not width == v.shape[-1] <= 256:
        return False
    if torch.cuda.get_device_capability(q.device) < (8, 0) or not _windows():
        return False
    equal = len(set(packed.senders)) == len(set(packed.receivers or packed.senders)) == 1
    return not equal or packed.left is not None or packed.right not in (None, 0)


@cache
def _windows() -> bool:
    """Whether this PyTorch has the kernel, with windows."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    return "window_size" in signature(varlen_attn).parameters


def in_a_transform() -> bool:
    """Whether this runs inside of ``torch.func``'s ``grad``, ``vmap`` and the like, or of forward mode."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def _on_gpu_with_triton(graph: AttentionGraph) -> bool:
    """Its interpreter, on a CPU, is for tests alone."""
    return graph.device.type == "cuda" and has_triton(graph.device)


def _reach(graph: AttentionGraph) -> int:
    """Senders of a receiver at most, as far as they are known to be side by side; 0 for lists."""
    if graph.lengths is None:
        return 0
    left, right, most = graph.lengths.left, graph.lengths.right, max(graph.lengths.senders, default=0)
    return most if left is None or right is None else min(left + 1 + right, most)


@per_graph
def _cost(graph: AttentionGraph, num_heads: int, head_dim: int, prepared: int) -> Cost:
    on_cpu = graph.device.type == "cpu"
    if _on_gpu_with_triton(graph) and _reach(graph) <= SHORT:
        return Cost({}, "triton", "on a GPU one kernel reads each edge's sender where it lies")
    if graph.num_edges == 0:
        return Cost({}, "scatter", "there is no edge, which other engines need")
    few = not graph.in_intervals and _are_few(graph, num_heads * head_dim, attributes=False)
    one = is_one_tile(graph)
    if few and not (prepared and one and not graph.has_multi_edges):
        return Cost({}, "scatter", "so few edges are gathered sooner than sparse matrices are made")
    sparse, seconds = "csr" if runs_sparse(graph) else "scatter", {}
    if on_cpu and sparse == "csr":
        seconds["csr"] = predict("csr", count_edges(graph, num_heads), num_heads, head_dim)
    if seconds and not graph.in_intervals and not one:  # before many edges are cut into tiles
        if not prepared:
            return Cost(seconds, "csr", "lists of a new graph are not cut into tiles")
        slots = sum(int((torch.bincount(ends) > 0).sum()) for ends in (graph._dst, graph._src))
        if predict("tiles", (graph.num_edges, slots, 1), num_heads, head_dim) > seconds["csr"]:
            return Cost(seconds, "csr", "tiles would take longer even if there were no pair without an edge")
    if graph.has_multi_edges:
        return Cost(seconds, sparse, "two edges have the same sender and receiver")
    if one:
        return Cost(seconds, "tiles", "the graph is one tile, which is small or half full")
    if not on_cpu and not graph.in_intervals and graph.num_edges < FEW * graph.num_dst:
        return Cost(seconds, sparse, "on a GPU so few edges are not cut into tiles")
    plan = plan_tiles(graph)
    if not on_cpu:
        taken = "tiles" if plan.economical or plan.scores <= FILLS.get(graph.device.type, 0) else sparse
        return Cost(seconds, taken, "on a GPU tiles are taken where they are economical or few")
    if not plan.affordable:
        return Cost(seconds, "csr", "tiles would compute too many pairs without an edge")
    seconds["tiles"] = predict("tiles", plan.counts, num_heads, head_dim)
    faster = min(seconds, key=lambda engine: seconds[engine])
    return Cost(seconds, faster, "it is predicted to be faster")


def predict(engine: str, counts: tuple[float, float, float], num_heads: int, head_dim: int) -> float:
    """Seconds of a forward and backward pass, from what its line counts."""
    return price(LAW[engine], expand(counts, num_heads, head_dim))


def price(line: dict[str, float], terms: Sequence[float]) -> float:
    """Seconds that a line, nanoseconds of each term, gives to so much of them."""
    return 1e-9 * sum(each * term for each, term in zip(line.values(), terms, strict=True))


def expand(counts: tuple[float, float, float], num_heads: int, head_dim: int) -> list[float]:
    """The five terms of a line from its three counts."""
    inner, outer, calls = counts
    return [num_heads * x for x in (inner, inner * head_dim, outer, outer * head_dim)] + [calls]
