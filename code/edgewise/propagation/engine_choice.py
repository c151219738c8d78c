"""Which engine ``auto`` takes: a table, read from top to bottom, whose last row counts work.

On a CPU, where numbers were fitted on graphs of many kinds (*benchmarks* says how well):

1. inside of transforms: ``scatter``, as no other engine goes through them;
2. sequences of one length, with nothing on edges: ``tiles``, which then are one dense call;
3. few edges in lists, or few with attributes: ``scatter``, for which nothing has to be made;
4. attributes of edges, two edges of one pair, lists of a graph that is not prepared: ``csr``;
5. one tile, small or half full: ``tiles``;
6. else ``tiles`` if their work is less, else ``csr``.

On a GPU: ``varlen`` where it is the fastest, ``triton`` where receivers attend to few or edges have
attributes, else ``tiles`` where they waste little.
"""

from typing import NamedTuple

import torch

from edgewise.graphs import AttentionGraph
from edgewise.graphs.graph_forms import check_graph
from edgewise.graphs.per_graph import per_graph
from edgewise.propagation.csr.pattern import has_sparse_kernels, heads_at_once
from edgewise.propagation.dense_call import SHORT, dense_if_quickest
from edgewise.propagation.fields import Fields
from edgewise.propagation.precision import HALF, in_a_transform
from edgewise.propagation.tiles.tile_plan import TOO_FEW, TilePlan, is_one_tile, plan_tiles
from edgewise.propagation.triton.triton_engine import has_triton
from edgewise.propagation.varlen import options
from edgewise.validation import check_count

EDGE_WORK, TOKEN_WORK, SLOT_WORK = 2.7, 20, 40
"""How many scores of a tile cost a CPU as much as an edge or a token in ``csr``, a row or column in tiles."""

CALL_WORK = {"csr": 100_000, "tiles": 20_000}
"""Of a call, in this unit: ``csr`` makes one for all heads or each, ``tiles`` one for each shape of tile."""

FEW = {"new": (400_000, 900_000), "prepared": (100_000, 250_000)}
"""Edges times heads times width below which ``auto`` takes ``scatter`` for lists; and with attributes.

Chosen on random graphs of 200 to 30,000 edges; ``python -m attention_on_edges bench pyg`` has molecules.
"""

FEWEST_IN_EDGES = 8
"""In-edges of a receiver on average, below which lists of edges are not cut into tiles on a GPU."""


class Choice(NamedTuple):
    """Which engine ``engine="auto"`` takes, and why, in words."""

    engine: str
    why: str


def engine_for(graph: AttentionGraph, fields: Fields) -> str:
    """Return what ``engine="auto"`` takes for these tensors."""
    if in_a_transform():
        return "scatter"
    if suits_varlen(graph, fields):
        return "varlen"
    has_attributes = fields.attr is not None
    return _choose(graph, *fields.q.shape[1:], "prepared" in graph._known, has_attributes).engine


def choice(graph: AttentionGraph, num_heads: int, head_dim: int) -> Choice:
    """Say which engine ``"auto"`` takes for a graph, and why.

    Some graphs on a GPU go by ``varlen`` in half precision; this does not say so, since tensors decide.

    Parameters
    ----------
    graph : AttentionGraph
        The answer is kept with it, and so is a plan, if it was needed.
    num_heads, head_dim : int
        Heads, and the width of one.
    """
    check_graph(graph)
    check_count("num_heads", num_heads, 1)
    check_count("head_dim", head_dim, 1)
    if in_a_transform():
        return Choice("scatter", "no other engine goes through torch.func's transforms and forward mode")
    if dense_if_quickest(graph, num_heads, 0.0):
        return Choice("tiles", "its sequences are of one length: they are one dense call")
    return _choose(graph, num_heads, head_dim, "prepared" in graph._known, False)


def suits_varlen(graph: AttentionGraph, fields: Fields) -> bool:
    """Whether ``auto`` takes ``varlen``, on GPUs that have it.

    For sequences of unequal lengths and for windows it was the fastest one in half precision
    (``book/studies/gpu-engines.json``).
    """
    q, v, on_edges = fields.q, fields.v, (fields.bias, fields.factors, fields.attr)
    if q.device.type != "cuda" or q.dtype not in HALF or torch.compiler.is_compiling():
        return False
    packed, width = graph.packed, q.shape[-1]
    if packed is None or any(x is not None for x in on_edges):
        return False
    if width % 8 or not width == v.shape[-1] <= 256:
        return False
    if torch.cuda.get_device_capability(q.device) < (8, 0) or not {"window_size", "scale"} <= options():
        return False
    equal = len(set(packed.senders)) == len(set(packed.receivers or packed.senders)) == 1
    return not equal or packed.left is not None or packed.right not in (None, 0)


def _reach(graph: AttentionGraph) -> int:
    """Senders of a receiver at most, as far as they are known to be side by side; 0 for lists."""
    if graph.packed is None:
        return 0
    left, right, most = graph.packed.left, graph.packed.right, max(graph.packed.senders, default=0)
    return most if left is None or right is None else min(left + 1 + right, most)


def work_in_csr(graph: AttentionGraph, num_heads: int) -> float:
    """Scores of a tile that take a CPU as long as ``csr`` takes."""
    one_head = EDGE_WORK * graph.num_edges + TOKEN_WORK * (graph.num_dst + graph.num_src) / 2
    return num_heads * one_head + CALL_WORK["csr"] * num_heads / heads_at_once(graph, num_heads)


def work_in_tiles(plan: TilePlan, num_heads: int) -> float:
    """Scores of a tile that take a CPU as long as a plan of tiles takes."""
    return num_heads * (plan.scores + SLOT_WORK * plan.slots) + CALL_WORK["tiles"] * plan.calls


@per_graph
def _choose(graph: AttentionGraph, num_heads: int, head_dim: int, prepared: bool, attributes: bool) -> Choice:
    in_lists, on_cpu = not graph.in_intervals, graph.device.type == "cpu"
    on_gpu_with_triton = graph.device.type == "cuda" and has_triton(graph.device)
    if on_gpu_with_triton and (attributes or _reach(graph) <= SHORT):
        return Choice("triton", "on a GPU one kernel reads each edge's sender where it lies")
    if graph.num_edges == 0:
        return Choice("scatter", "there is no edge, which other engines need")
    one_tile = not attributes and is_one_tile(graph)
    few = graph.num_edges * num_heads * head_dim < FEW["prepared" if prepared else "new"][attributes]
    tile_is_ready = prepared and one_tile and not graph.has_multi_edges
    if on_cpu and few and (in_lists or attributes) and not tile_is_ready:
        return Choice("scatter", "so few edges are gathered sooner than sparse matrices are made")
    edge_engine = "csr" if has_sparse_kernels(graph) else "scatter"
    if attributes:
        return Choice("csr", "tiles take no attributes of edges")
    if on_cpu and in_lists and not one_tile and not prepared:
        return Choice(edge_engine, "lists of a new graph are not cut into tiles")
    csr_work = work_in_csr(graph, num_heads)
    if on_cpu and in_lists and not one_tile:
        slots = sum(int((torch.bincount(ends) > 0).sum()) for ends in (graph._dst, graph._src))
        if num_heads * (graph.num_edges + SLOT_WORK * slots) > csr_work:
            return Choice(edge_engine, "tiles would take longer even if there were no pair without an edge")
    if graph.has_multi_edges:
        return Choice(edge_engine, "two edges have the same sender and receiver")
    if one_tile:
        return Choice("tiles", "the graph is one tile, which is small or half full")
    if not on_cpu and in_lists and graph.num_edges < FEWEST_IN_EDGES * graph.num_dst:
        return Choice(edge_engine, "on a GPU so few edges are not cut into tiles")
    plan = plan_tiles(graph)
    if not on_cpu:
        wasteful = not plan.economical and plan.scores > TOO_FEW.get(graph.device.type, 0)
        taken = edge_engine if wasteful else "tiles"
        return Choice(taken, "on a GPU tiles are taken where they are economical or few")
    less = plan.affordable and work_in_tiles(plan, num_heads) < csr_work
    return Choice("tiles" if less else edge_engine, "tiles are less work" if less else "tiles are more work")
