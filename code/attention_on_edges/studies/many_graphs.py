"""Graphs of many kinds: what attention on them takes, by which engine, in which order of the nodes."""

from collections.abc import Callable, Sequence
from functools import partial

import networkx
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attention_on_edges.corpora.graph_data import citations, molecules, symmetric_graph
from attention_on_edges.runs.harness import Case, Row, Run, in_turns, measure
from attention_on_edges.studies.memory import KEEPING, alone
from edgewise.graphs import AttentionGraph, batch, window
from edgewise.propagation import choice, plan_tiles, propagate_attention
from edgewise.propagation.csr.pattern import heads_at_once
from edgewise.propagation.engine_choice import work_in_csr, work_in_tiles
from edgewise.propagation.triton.triton_engine import has_triton

Make = Callable[[], AttentionGraph]


def _shuffled(make: Make) -> AttentionGraph:
    graph = make()
    place = torch.randperm(graph.num_src, generator=torch.Generator().manual_seed(0))
    return AttentionGraph(place[graph.src], place[graph.dst], graph.num_src)


def _symmetric(near: Tensor) -> AttentionGraph:
    mask = near | near.T | torch.eye(len(near), dtype=torch.bool)
    return AttentionGraph.from_mask(mask, self_attention=True)


def _geometric(n: int, degree: float) -> AttentionGraph:
    """Points in a unit square, sorted by their column; neighbours are nearer than a radius."""
    points = torch.rand(n, 2, generator=torch.Generator().manual_seed(n))
    points = points[points[:, 0].argsort()]
    return _symmetric(torch.cdist(points, points) < (degree / (torch.pi * n)) ** 0.5)


def _communities(count: int, size: int) -> AttentionGraph:
    """Nine of ten pairs within a community, one pair of two thousand besides."""
    drawn = torch.rand(count * size, count * size, generator=torch.Generator().manual_seed(size)).triu(1)
    block = torch.arange(count * size) // size
    within = (block[:, None] == block) & (drawn < 0.9)
    return _symmetric((within | (drawn < 0.0005)) & (drawn > 0))


def _networkx(make: Callable[..., networkx.Graph], *sizes: float, **options: int) -> AttentionGraph:
    return AttentionGraph.from_networkx(
        networkx.convert_node_labels_to_integers(make(*sizes, **options)), self_loops=True
    )


def _texts(shortest: int, longest: int, count: int, causal: bool = False) -> AttentionGraph:
    drawn = torch.Generator().manual_seed(longest)
    lengths = torch.randint(shortest, longest + 1, (count,), generator=drawn)
    return AttentionGraph.from_lengths(lengths.tolist(), causal=causal)


_tree = partial(_networkx, networkx.random_labeled_tree, seed=1)
_scale_free = partial(_networkx, networkx.barabasi_albert_graph, seed=1)


WITH_ATTRIBUTES: dict[str, Make] = {
    "grid, 4,096 nodes": partial(_networkx, networkx.grid_2d_graph, 64, 64),
    "tree, 4,000": partial(_tree, 4000),
    "geometric, degree 12": partial(_geometric, 4000, 12),
    "geometric, degree 40": partial(_geometric, 4000, 40),
    "scale-free, 20 links": partial(_scale_free, 4000, 20),
}
"""On which a layer with attributes of edges is timed beside PyG's."""


def _cora() -> AttentionGraph:
    pairs, count = citations()
    return symmetric_graph(torch.tensor(pairs), count)


def molecules_side_by_side(count: int) -> AttentionGraph:
    """The first molecules of a file; each atom attends to itself, too."""
    chosen = molecules()[:count]
    ends = [torch.tensor(m.bonds, dtype=torch.int64).reshape(-1, 3)[:, :2] for m in chosen]
    return batch([symmetric_graph(pairs, len(m.atoms)) for pairs, m in zip(ends, chosen, strict=True)])


def _roads(height: int, width: int) -> AttentionGraph:
    """A grid that has lost some of its roads."""
    place = torch.arange(height * width).reshape(height, width)
    ends = [(place[1:], place[:-1]), (place[:, 1:], place[:, :-1])]
    pairs = torch.cat([torch.stack(both, -1).flatten(0, 1) for both in ends])
    drawn = torch.rand(len(pairs), generator=torch.Generator().manual_seed(height))
    return symmetric_graph(pairs[drawn > 0.15], height * width)


NATURAL: dict[str, Make] = {
    "Cora's citations": _cora,
    "256 molecules": partial(molecules_side_by_side, 256),
    "roads, 4,800 crossings": partial(_roads, 60, 80),
    "roads, 100,000 crossings": partial(_roads, 250, 400),
    "scale-free, 3 links, 6,000": partial(_scale_free, 6000, 3),
    "scale-free, 3 links, 60,000": partial(_scale_free, 60_000, 3),
    "communities of 50": partial(_communities, 60, 50),
    "tree, 12,000": partial(_tree, 12_000),
    "window of 65 on 10,000": partial(window, 10_000, 32, 32),
    "window of 401 on 4,000": partial(window, 4000, 200, 200),
    "60 texts of 10-25": partial(_texts, 10, 25, 60),
    "20 texts of 120-200": partial(_texts, 120, 200, 20),
    "communities of 200": partial(_communities, 15, 200),
}
ORDERS: dict[str, Callable[[Make], AttentionGraph]] = {
    "as it comes": lambda make: make(),
    "shuffled": _shuffled,
    "reordered": lambda make: make().reorder()[0],
}
UNSEEN: dict[str, Make] = {
    f"{name}, {order}": partial(change, make)
    for name, make in NATURAL.items()
    for order, change in ORDERS.items()
}
"""Graphs that the prices of ``auto`` were not fitted to."""

KINDS: dict[str, tuple[Callable[..., AttentionGraph], tuple[int, int], tuple[int, int]]] = {
    "texts": (lambda a, b: _texts(a // 2, a, b), (20, 100), (20, 150)),
    "texts, causal": (lambda a, b: _texts(a // 2, a, b, causal=True), (120, 400), (10, 40)),
    "texts of any length": (lambda a, b: _texts(1, a, b), (20, 150), (20, 150)),
    "a window": (lambda a, b: window(20 * b, a // 2, a - a // 2), (50, 150), (50, 250)),
    "a window, causal": (lambda a, b: window(20 * b, a, 0), (50, 150), (50, 250)),
}
"""Kinds of graphs, and from where to where their two sizes are drawn."""

NEAR, EVEN = 12, (0.8, 1.25)
"""Graphs drawn of a kind, for which tiles should take about as long as edges: so many times as long."""


def near_graphs(count: int = NEAR) -> dict[str, AttentionGraph]:
    """Draw graphs of all ``KINDS``, and keep those on which both engines have about as much work."""
    drawn, found = torch.Generator().manual_seed(0), dict[str, AttentionGraph]()
    for kind, (make, *ranges) in KINDS.items():
        kept = len(found) + count
        while len(found) < kept:
            sizes = [int(torch.randint(low, high + 1, (), generator=drawn)) for low, high in ranges]
            graph = make(*sizes)
            plan = plan_tiles(graph)
            ratio = work_in_tiles(plan, 4) / work_in_csr(graph, 4)
            if plan.affordable and EVEN[0] <= ratio <= EVEN[1]:
                found[f"{kind}, {sizes[0]}, {sizes[1]}"] = graph
    return found


LARGE = ("roads, 4,800 crossings", "roads, 100,000 crossings", "scale-free, 3 links, 60,000")
"""Of which the order of nodes is timed."""

MASK = "a dense mask"


def unseen_plan(small: bool = False) -> dict[str, Run]:
    """Graphs that ``auto`` was not fitted to, by each engine that it may take and as a mask."""
    graphs = {name: UNSEEN[name] for name in UNSEEN if not small or name == "60 texts of 10-25, as it comes"}
    return _timed(graphs, ("csr", "tiles", "triton", MASK))


def near_plan(small: bool = False) -> dict[str, Run]:
    """Graphs on which both engines have about as much work."""
    drawn = near_graphs(1 if small else NEAR).items()
    return _timed({name: partial(lambda known: known, graph) for name, graph in drawn}, ("csr", "tiles"))


def _timed(graphs: dict[str, Make], engines: Sequence[str]) -> dict[str, Run]:
    """4 heads of 32."""
    return {
        f"{name}, 4 x 32": in_turns(partial(graph_case, name, make, engines)) for name, make in graphs.items()
    }


def orders_plan(small: bool = False) -> dict[str, Run]:
    """The three orders of a graph in turns, by ``csr``; and where a process keeps the memory that it has."""

    def in_orders(name: str, way: str, device: torch.device, repeats: int) -> list[Row]:
        return alone(measure_orders, name, way, repeats, **(KEEPING if way else {}))

    names = ["60 texts of 10-25"] if small else LARGE
    return {f"{n}{way}": partial(in_orders, n, way) for n in names for way in ("", ", memory kept")}


def measure_orders(name: str, way: str, repeats: int) -> list[Row]:
    """Time one graph of ``NATURAL`` in its three orders, forward and backward, 4 heads of 32."""
    torch.manual_seed(0)
    ways = {order: _both_ways(change(NATURAL[name]), ["csr"])["csr"] for order, change in ORDERS.items()}
    return measure(Case(f"{name}{way}", ways, first="as it comes"), repeats=repeats)


def graph_case(name: str, make: Make, engines: Sequence[str], device: torch.device | str = "cpu") -> Case:
    """Attention on a graph, forward and backward, plans and patterns made beforehand.

    Rows hold what ``auto`` takes and what the work consists of. Tiles run only if they are affordable, a
    dense mask only for up to 5,000 tokens.
    """
    torch.manual_seed(0)
    graph = make().to(device)
    auto, counts = {"auto": choice(graph, 4, 32).engine}, terms_of(graph)
    facts = {engine: auto | {"terms": terms} for engine, terms in counts.items()}
    left_out = {MASK} if graph.num_src > 5000 else set()
    left_out |= set() if "tiles" in counts else {"tiles"}
    left_out |= set() if has_triton(graph.device) else {"triton"}
    ways = _both_ways(graph, [engine for engine in engines if engine not in left_out])
    return Case(f"{name}, 4 x 32", ways, first="csr", facts=lambda engine: facts.get(engine, auto))


def terms_of(graph: AttentionGraph) -> dict[str, list[float]]:
    """What 4 heads of 32 need, by engine that can run: pairs and tokens, bare and times the width, and calls.

    A pair is an edge, of tiles a score; a token of tiles is a row or column.
    """
    plan, calls = plan_tiles(graph), 4 // heads_at_once(graph, 4)
    counts = {"csr": (graph.num_edges, (graph.num_dst + graph.num_src) / 2, calls)}
    if plan.affordable:
        counts["tiles"] = plan.scores, plan.slots, plan.calls
    return {e: [4 * x, 128 * x, 4 * n, 128 * n, calls] for e, (x, n, calls) in counts.items()}


def _both_ways(graph: AttentionGraph, engines: Sequence[str]) -> dict[str, Callable[[], str]]:
    """What runs each engine forward and backward with 4 heads of 32, and returns its name."""
    fields = [torch.randn(graph.num_src, 4, 32, device=graph.device) for _ in range(4)]
    *qkv, upstream = fields
    for x in qkv:
        x.requires_grad_()

    def run(engine: str, attend: Callable[..., Tensor]) -> str:
        torch.autograd.grad(attend(*qkv), qkv, upstream)
        return engine

    ways = {
        engine: under_a_mask(graph) if engine == MASK else partial(propagate_attention, graph, engine=engine)
        for engine in engines
    }
    return {engine: partial(run, engine, attend) for engine, attend in ways.items()}


def under_a_mask(graph: AttentionGraph) -> Callable[..., Tensor]:
    """Dense attention on a graph with self-edges, under its mask: q, k, v [n, h, d] to [n, h, d].

    Parts of the graph that stand side by side, with no edge between them, are padded to the largest, if that
    is less than one mask of all pairs.
    """
    places = torch.arange(graph.num_src, device=graph.device)
    last = places.clone()
    last.scatter_reduce_(0, torch.minimum(graph.src, graph.dst), torch.maximum(graph.src, graph.dst), "amax")
    ends = (last.cummax(0).values == places).nonzero()[:, 0] + 1
    sizes = ends.diff(prepend=ends.new_zeros(1))
    if len(sizes) * int(sizes.max()) ** 2 > graph.num_src**2:  # one mask is smaller
        ends = sizes = sizes.sum()[None]
    part, widest = places[: len(sizes)].repeat_interleave(sizes), int(sizes.max())
    within = places - (ends - sizes)[part]
    slot = part * widest + within
    mask = torch.eye(widest, dtype=torch.bool, device=graph.device).repeat(len(sizes), 1, 1)
    mask[part[graph.dst], within[graph.dst], within[graph.src]] = True

    def attend(*fields: Tensor) -> Tensor:
        _, h, d = fields[0].shape
        padded = [x.new_zeros(len(sizes) * widest, h, d).index_copy(0, slot, x) for x in fields]
        q, k, v = (x.view(len(sizes), widest, h, d).transpose(1, 2) for x in padded)
        found = scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None])
        return found.transpose(1, 2).reshape(-1, h, d)[slot]

    return attend
