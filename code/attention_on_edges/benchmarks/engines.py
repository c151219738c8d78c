"""Engines of message passing against hand-written padded attention and, on CUDA, PyTorch's own kernels."""

import importlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor

from attention_on_edges.benchmarks.baselines import PaddedAttention
from attention_on_edges.benchmarks.timing import interleave, matrix_product, peak_on
from attention_on_edges.figures import Table, table
from edgewise.graphs import AttentionGraph, causal, complete, window
from edgewise.message_passing import ENGINES, available_engines, propagate_attention
from edgewise.message_passing.plan import forget_plans
from edgewise.validation import check_choice

PADDED = "padded"
PADDED_SET_UP = "padded, set-up included"
TILES_SEEN = "tiles, lengths seen before"
TILES_PLANNED = "tiles, plan included"
VARLEN = "varlen_attn"
FLEX = "flex_attention"


@dataclass(frozen=True)
class Workload:
    """A batch of texts and the size of the attention over it; ``reach`` is that of a causal window."""

    name: str
    lengths: tuple[int, ...]
    num_heads: int
    d_k: int
    causal: bool = False
    reach: int | None = None

    def graph(self) -> AttentionGraph:
        """Return the graph of all texts."""
        if self.reach is not None:
            return window(self.lengths, self.reach, 0)
        return causal(self.lengths) if self.causal else complete(self.lengths)


def _drawn(count: int, shortest: int, longest: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randint(shortest, longest + 1, (count,), generator=generator).tolist())


WORKLOADS = (
    Workload("128 x 10, 1 x 128", (10,) * 128, 1, 128),
    Workload("128 x 5-30, 8 x 64", _drawn(128, 5, 30), 8, 64),
    Workload("128 x 5-30, 4 x 32", _drawn(128, 5, 30), 4, 32),
    Workload("8 x 200-300, 8 x 64", _drawn(8, 200, 300), 8, 64),
)
"""Sentences x lengths, heads x their width; lengths are uniform."""

LARGE = (
    Workload("8 x 4,096, 8 x 64", (4096,) * 8, 8, 64),
    Workload("a causal window of 512 on 65,536, 8 x 64", (65_536,), 8, 64, causal=True, reach=511),
    Workload("64 causal documents of 200-1,800, 8 x 64", _drawn(64, 200, 1800), 8, 64, causal=True),
)
"""For a GPU."""


@dataclass(frozen=True)
class EngineRow:
    """Time of one engine on one workload, forward and backward.

    Attributes
    ----------
    workload, engine : str
        What was run, and how.
    seconds, ratio : float or None
        The median, and as a multiple of ``padded``'s; ``None`` if it failed, or nothing was padded.
    dtype : str
        Of queries, keys and values.
    memory : int or None
        Bytes that a pass holds at most besides its input, on CUDA.
    share : float or None
        Of the device's rate on one large matrix product in ``dtype``: products of edges alone.
    error : float or None
        The largest difference of an output from that of ``tiles`` in float32.
    failed : str
        Why there is no time.
    """

    workload: str
    engine: str
    seconds: float | None
    ratio: float | None
    dtype: str = "float32"
    memory: int | None = None
    share: float | None = None
    error: float | None = None
    failed: str = ""


def bench_engines(
    workloads: Sequence[Workload] = WORKLOADS,
    engines: Sequence[str] | None = None,
    repeats: int = 5,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> list[EngineRow]:
    """Time engines against hand-written padded attention, forward and backward, one layer.

    Graphs, plans and DGL's copies are made beforehand. The rows ``"..., set-up included"``, ``"..., plan
    included"`` and ``"..., lengths seen before"`` make theirs each time; the last one's plan is shared.

    Parameters
    ----------
    workloads : sequence of Workload
        What to run.
    engines : sequence of str, optional
        Which engines, ``VARLEN`` and ``FLEX`` among them; if not given, all that can run here without being
        compiled.
    repeats : int
        Measured turns of each.
    device : torch.device or str
        Where; DGL's engines run on the CPU only.
    dtype : torch.dtype
        Of queries, keys and values.
    """
    device = torch.device(device)
    if engines is None:
        half_on_gpu = device.type == "cuda" and dtype != torch.float32
        engines = available_engines(device) + ([VARLEN] if half_on_gpu else [])
    for engine in engines:
        check_choice("engine", engine, [*ENGINES, *KERNELS])
    return [row for each in workloads for row in _rows(each, engines, repeats, device, dtype)]


def _rows(
    workload: Workload, engines: Sequence[str], repeats: int, device: torch.device, dtype: torch.dtype
) -> list[EngineRow]:
    torch.manual_seed(0)
    graph = workload.graph().to(device)
    shape = (graph.num_src, workload.num_heads, workload.d_k)
    q, k, v, upstream = (torch.randn(shape).to(device, dtype) for _ in range(4))
    exact = propagate_attention(graph, q.float(), k.float(), v.float(), "tiles")
    for x in (q, k, v):
        x.requires_grad_()
    running, failed = {}, {}
    known: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, attend in _contestants(workload, graph, engines, device).items():

        def both_ways(attend: Attend = attend) -> None:
            torch.autograd.grad(attend(q, k, v), (q, k, v), upstream)

        try:
            with torch.no_grad():
                found = attend(*(x.detach() for x in (q, k, v)))
            known[name]["error"] = float((found.float() - exact).abs().max())
            known[name]["memory"] = peak_on(device, both_ways)
            running[name] = both_ways
        except RuntimeError as error:  # a kernel that this device does not have, or too much memory
            memory = isinstance(error, torch.OutOfMemoryError)
            failed[name] = "out of memory" if memory else shorten(f"{type(error).__name__}: {error}", 80)
    product, work = matrix_product(device, dtype)
    seconds = interleave(running | {"product": product}, repeats, device)
    rate, padded = work / seconds.pop("product"), seconds.get(PADDED)
    needed = 14 * graph.num_edges * workload.num_heads * workload.d_k  # seven products, five of them backward
    kind = str(dtype).removeprefix("torch.")
    rows = [
        EngineRow(workload.name, name, s, padded and s / padded, kind, share=needed / s / rate, **known[name])
        for name, s in seconds.items()
    ]
    return rows + [
        EngineRow(workload.name, name, None, None, kind, failed=why, **known[name])
        for name, why in failed.items()
    ]


Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries, keys and values [N, h, d] to outputs [N, h, d]."""


def _contestants(
    workload: Workload, graph: AttentionGraph, engines: Sequence[str], device: torch.device
) -> dict[str, Attend]:
    def seen_before(*fields: Tensor) -> Tensor:
        return propagate_attention(workload.graph().to(device), *fields, "tiles")

    def planned_anew(*fields: Tensor) -> Tensor:
        forget_plans()
        return seen_before(*fields)

    def padded() -> Attend:
        return PaddedAttention(workload.lengths, device, causal=workload.causal)

    contestants: dict[str, Attend] = {}
    if workload.reach is None:
        contestants |= {PADDED: padded(), PADDED_SET_UP: lambda *fields: padded()(*fields)}
    for engine in engines:
        if engine in KERNELS:
            contestants[engine] = KERNELS[engine](workload, device)
        else:
            contestants[engine] = partial(_propagate, graph, engine)
    if "tiles" in engines:
        contestants |= {TILES_SEEN: seen_before, TILES_PLANNED: planned_anew}
    return contestants


def _propagate(graph: AttentionGraph, engine: str, *fields: Tensor) -> Tensor:
    return propagate_attention(graph, *fields, engine)


def _varlen(workload: Workload, device: torch.device) -> Attend:
    """PyTorch's kernel for packed texts, in half precision on CUDA."""
    attend = importlib.import_module("torch.nn.attention.varlen").varlen_attn
    ends = torch.tensor([0, *accumulate(workload.lengths)], dtype=torch.int32, device=device)
    before, after = -1 if workload.reach is None else workload.reach, 0 if workload.causal else -1
    limits = (ends, ends, *[max(workload.lengths)] * 2)
    return lambda *fields: attend(*fields, *limits, window_size=(before, after))


def _flex(workload: Workload, device: torch.device) -> Attend:
    """FlexAttention with the mask that its user would write; compiled on CUDA, forward only on a CPU."""
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    lengths = torch.tensor(workload.lengths, device=device)
    text = torch.arange(len(lengths), device=device).repeat_interleave(lengths)

    def attends(batch: Tensor, head: Tensor, receiver: Tensor, sender: Tensor) -> Tensor:
        there = text[receiver] == text[sender]
        if workload.causal:
            there = there & (sender <= receiver)
        return there if workload.reach is None else there & (sender >= receiver - workload.reach)

    mask = flex.create_block_mask(attends, None, None, len(text), len(text), device=device)
    attend = flex.flex_attention
    if device.type == "cuda":
        attend = torch.compile(attend, dynamic=False)

    def run(*fields: Tensor) -> Tensor:
        return attend(*(x.transpose(0, 1)[None] for x in fields), block_mask=mask)[0].transpose(0, 1)

    return run


KERNELS: dict[str, Callable[[Workload, torch.device], Attend]] = {VARLEN: _varlen, FLEX: _flex}
"""PyTorch's own, which take no graph."""


def format_engines(rows: Sequence[EngineRow]) -> Table:
    """Format rows of :func:`bench_engines` as a table: a line per engine, a column per workload."""
    workloads = list(dict.fromkeys(row.workload for row in rows))
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        named = row.engine if row.dtype == "float32" else f"{row.engine}, {row.dtype}"
        cells.setdefault(named, {})[row.workload] = _cell(row)
    lines = [[name, *(found.get(workload, "") for workload in workloads)] for name, found in cells.items()]
    return table(["ms, forward + backward", *workloads], lines)


def _cell(row: EngineRow) -> str:
    if row.seconds is None:
        return row.failed
    notes = [f"{row.ratio:.2f} x"] if row.ratio is not None else []
    if row.memory is not None:
        notes += [f"{row.share:.1%}", f"{row.memory / 2**20:,.0f} MiB"]
    return f"{row.seconds * 1e3:.2f}" + (f" ({', '.join(notes)})" if notes else "")
