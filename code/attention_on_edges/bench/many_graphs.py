"""Graphs of many kinds: what attention on them takes, and the law that says so beforehand."""

import json
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import networkx
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attention_on_edges.bench.harness import Case, Row, Run, in_turns, measure
from attention_on_edges.bench.memory import KEEPING, alone
from attention_on_edges.corpora.graph_data import citations, molecules, symmetric_graph
from edgewise.graphs import AttentionGraph, batch, window
from edgewise.message_passing import ENGINES, cost, plan_tiles, propagate_attention
from edgewise.message_passing.cost_model import TERMS, expand, predict, price
from edgewise.message_passing.pattern import count_edges

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


_grid = partial(_networkx, networkx.grid_2d_graph)
_tree = partial(_networkx, networkx.random_labeled_tree, seed=1)
_scale_free = partial(_networkx, networkx.barabasi_albert_graph, seed=1)


def _random(n: int, degree: float) -> AttentionGraph:
    return _networkx(networkx.fast_gnp_random_graph, n, degree / n, seed=1)


FITTED: dict[str, Make] = {
    "grid, 4,096 nodes": partial(_grid, 64, 64),
    "grid, 400": partial(_grid, 20, 20),
    "tree, 4,000": partial(_tree, 4000),
    "tree, 20,000": partial(_tree, 20_000),
    "geometric, degree 12": partial(_geometric, 4000, 12),
    "geometric, degree 40": partial(_geometric, 4000, 40),
    "geometric, degree 40, shuffled": partial(_shuffled, partial(_geometric, 4000, 40)),
    "communities of 40": partial(_communities, 100, 40),
    "communities of 40, shuffled": partial(_shuffled, partial(_communities, 100, 40)),
    "scale-free, 5 links": partial(_scale_free, 4000, 5),
    "scale-free, 20 links": partial(_scale_free, 4000, 20),
    "random, degree 60": partial(_random, 2000, 60),
    "dense, half of 300 x 300": partial(_random, 300, 150),
    "window of 17 on 8,192": partial(window, 8192, 8, 8),
    "window of 129 on 4,096": partial(window, 4096, 64, 64),
    "200 texts of 8-20": partial(_texts, 8, 20, 200),
    "200 causal texts of 8-20": partial(_texts, 8, 20, 200, causal=True),
    "40 texts of 8-20": partial(_texts, 8, 20, 40),
    "100 texts of 20-40": partial(_texts, 20, 40, 100),
    "100 causal texts of 20-40": partial(_texts, 20, 40, 100, causal=True),
    "60 texts of 40-80": partial(_texts, 40, 80, 60),
    "60 causal texts of 40-80": partial(_texts, 40, 80, 60, causal=True),
    "25 texts of 80-160": partial(_texts, 80, 160, 25),
    "25 causal texts of 80-160": partial(_texts, 80, 160, 25, causal=True),
    "6 texts of 250-350": partial(_texts, 250, 350, 6),
    "6 causal texts of 250-350": partial(_texts, 250, 350, 6, causal=True),
}
"""To which the law is fitted."""


def _cora() -> AttentionGraph:
    pairs, count = citations()
    return symmetric_graph(torch.tensor(pairs), count)


def _molecules(count: int) -> AttentionGraph:
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
    "256 molecules": partial(_molecules, 256),
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
"""Graphs for which the law's predictions were committed before anything was measured on them."""

LARGE = ("roads, 4,800 crossings", "roads, 100,000 crossings", "scale-free, 3 links, 60,000")
"""Of which the order of nodes is timed."""

SMALL: dict[str, Make] = {
    f"{n} tokens, a third of all pairs": partial(_random, n, n / 3) for n in (8, 16, 32)
}
"""One tile each."""

SMALL_ONES = ("grid, 400", "40 texts of 8-20", "60 texts of 10-25, shuffled")

MASK = "a dense mask"

SHAPES = ((4, 32), (8, 48), (2, 128))
"""Heads and their width, to which the law is fitted."""


def graphs_plan(small: bool = False) -> dict[str, Run]:
    """Each graph, 4 heads of 32, by every engine that can run."""
    graphs = _few(SMALL | FITTED, small)
    return {name: in_turns(partial(graph_case, name, make, 4, 32, ())) for name, make in graphs.items()}


def unseen_plan(small: bool = False) -> dict[str, Run]:
    """Graphs that the law has not seen, 4 heads of 32, by the two engines that it prices, and as a mask."""
    engines = (*TERMS, MASK)
    graphs = _few(UNSEEN, small)
    return {n: in_turns(partial(graph_case, n, m, 4, 32, engines)) for n, m in graphs.items()}


def orders_plan(small: bool = False) -> dict[str, Run]:
    """The three orders of a graph in turns, by ``csr``; and where a process keeps the memory that it has."""
    names = ["60 texts of 10-25"] if small else LARGE
    ways = {"": {}, ", memory kept": KEEPING}
    return {f"{n}{way}": partial(_in_orders, n, way, kept) for n in names for way, kept in ways.items()}


def _in_orders(
    name: str, way: str, kept: dict[str, str], device: torch.device, repeats: int, only: Sequence[str]
) -> list[Row]:
    return alone(measure_orders, name, way, repeats, **kept)


def measure_orders(name: str, way: str, repeats: int) -> list[Row]:
    """Time one graph of ``NATURAL`` in its three orders, forward and backward, 4 heads of 32."""
    torch.manual_seed(0)
    contestants = {}
    for order, change in ORDERS.items():
        graph = change(NATURAL[name])
        fields = [torch.randn(graph.num_src, 4, 32).requires_grad_() for _ in range(3)]
        contestants[order] = partial(_both_ways, graph, fields, torch.randn(graph.num_src, 4, 32))
    return measure(Case(f"{name}{way}", contestants, first="as it comes"), repeats=repeats)


def _both_ways(graph: AttentionGraph, fields: Sequence[Tensor], upstream: Tensor, engine: str = "csr") -> str:
    torch.autograd.grad(propagate_attention(graph, *fields, engine=engine), fields, upstream)
    return engine


def predictions_plan(small: bool = False) -> dict[str, Run]:
    """What the law says of them, with nothing measured: to be committed first."""
    return {name: partial(_predicted, name, make) for name, make in _few(UNSEEN, small).items()}


def _predicted(name: str, make: Make, device: torch.device, repeats: int, only: Sequence[str]) -> list[Row]:
    graph = make().to(device)
    counts = {"csr": count_edges(graph, 4)} | (
        {"tiles": plan_tiles(graph).counts} if plan_tiles(graph).affordable else {}
    )
    auto = cost(graph, 4, 32).engine
    return [
        {
            "workload": f"{name}, 4 x 32", "contestant": engine, "auto": auto, "edges": graph.num_edges,
            "nodes": graph.num_dst, "terms": expand(c, 4, 32), "predicted": predict(engine, c, 4, 32),
        }
        for engine, c in counts.items()
    ]  # fmt: skip


def law_plan(small: bool = False) -> dict[str, Run]:
    """Graphs to which the law is fitted, with heads of several widths."""
    runs = {
        f"{name}, {heads} x {width}": in_turns(partial(graph_case, name, make, heads, width, tuple(TERMS)))
        for name, make in _few(FITTED, small).items()
        for heads, width in SHAPES
    }
    order = torch.randperm(len(runs), generator=torch.Generator().manual_seed(0))  # a machine's speed drifts
    return {name: runs[name] for name in (list(runs)[i] for i in order.tolist())}


def _few(graphs: dict[str, Make], small: bool) -> dict[str, Make]:
    names = [name for name in graphs if not small or name in SMALL_ONES]
    return {name: graphs[name] for name in names}


def graph_case(
    name: str,
    make: Make,
    heads: int,
    width: int,
    engines: Sequence[str],
    device: torch.device | str = "cpu",
) -> Case:
    """Attention on a graph, forward and backward, plans and patterns made beforehand.

    Rows hold what the law counts and what it predicts. Without ``engines`` all run,
    and ``auto`` with the graph made anew. Tiles run only if they are affordable, a dense mask only for up to
    5,000 tokens.
    """
    torch.manual_seed(0)
    graph = make().to(device)
    q, k, v, upstream = (torch.randn(graph.num_src, heads, width, device=device) for _ in range(4))
    fields = [x.requires_grad_() for x in (q, k, v)]
    names = [*(engines or (*ENGINES, MASK))]
    if graph.num_src > 5000 and MASK in names:
        names.remove(MASK)
    if "tiles" in names and not plan_tiles(graph).affordable:
        names.remove("tiles")
    predicted = cost(graph, heads, width)
    counts = {"csr": count_edges(graph, heads), "tiles": plan_tiles(graph).counts}

    def facts(engine: str | None) -> Row:
        row: Row = {"auto": predicted.engine}
        if engine in predicted.seconds:
            row["predicted"] = predicted.seconds[engine]
        return row | ({"terms": expand(counts[engine], heads, width)} if engine in counts else {})

    def backwards(output: Tensor) -> None:
        torch.autograd.grad(output, fields, upstream)

    def masked(dense: Callable[..., Tensor]) -> None:
        backwards(dense(*fields))

    contestants: dict[str, Callable[[], Any]] = {
        name: partial(masked, under_a_mask(graph))
        if name == MASK
        else partial(_both_ways, graph, fields, upstream, name)
        for name in names
    }
    if not engines:
        src, dst = graph.src, graph.dst
        contestants["auto"] = lambda: backwards(propagate_attention(graph, *fields))
        contestants["auto, graph made anew"] = lambda: backwards(
            propagate_attention(AttentionGraph(src, dst, graph.num_src), *fields)
        )
    return Case(f"{name}, {heads} x {width}", contestants, first="csr", facts=facts)


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


def fit(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Nanoseconds of each term by engine, none negative, that keep the relative errors small."""
    return {
        engine: dict(zip(names, _fit([r for r in rows if r["contestant"] == engine]), strict=True))
        for engine, names in TERMS.items()
    }


def _fit(rows: Sequence[Row]) -> list[float]:
    """Least squares of relative errors; terms with negative coefficients go, the most negative first."""
    terms = torch.tensor([row["terms"] for row in rows], dtype=torch.float64)
    terms = terms / torch.tensor([[row["seconds"] * 1e9] for row in rows])
    kept = list(range(terms.shape[1]))
    while True:
        found = torch.linalg.lstsq(terms[:, kept], torch.ones(len(rows), 1).double(), driver="gelsd").solution
        if (found >= 0).all():
            whole = torch.zeros(terms.shape[1], dtype=torch.float64)
            whole[kept] = found[:, 0]
            return [float(f"{x:.4g}") for x in whole]
        kept.pop(int(found.argmin()))


def conclude(rows: Sequence[Row], facts: dict[str, Any], out: Path | None) -> str:
    """Fit the law, write it to a folder, and say how well it fits."""
    law = fit(rows)
    document = {"nanoseconds": law, "fitted": facts | {"workloads": len({row["workload"] for row in rows})}}
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "prices.json").write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    lines = [f"{engine}: " + ", ".join(f"{x} ns {name}" for name, x in law[engine].items()) for engine in law]
    off = [abs(price(law[row["contestant"]], row["terms"]) / row["seconds"] - 1) for row in rows]
    lines.append(f"off by {statistics.median(off):.0%} in the median, {max(off):.0%} at worst")
    return "\n".join(lines)
