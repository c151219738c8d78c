"""Engines of message passing against hand-written padded attention and, on CUDA, PyTorch's own kernels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attention_on_edges.dgl_engines import in_dgl
from attention_on_edges.runs.baselines import PaddedAttention
from attention_on_edges.runs.harness import Case, Run, in_turns
from edgewise.graphs import AttentionGraph, causal, complete, window
from edgewise.propagation import ENGINES, GPU_ENGINES, propagate_attention

PADDED = "padded"

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries, keys and values [N, h, d] to outputs [N, h, d]."""


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


def drawn(count: int, shortest: int, longest: int) -> tuple[int, ...]:
    """Draw lengths."""
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randint(shortest, longest + 1, (count,), generator=generator).tolist())


WORKLOADS = (
    Workload("128 x 10, 1 x 128", (10,) * 128, 1, 128),
    Workload("128 x 5-30, 8 x 64", drawn(128, 5, 30), 8, 64),
    Workload("128 x 5-30, 4 x 32", drawn(128, 5, 30), 4, 32),
    Workload("8 x 200-300, 8 x 64", drawn(8, 200, 300), 8, 64),
)
"""Sentences x lengths, heads x their width; lengths are uniform."""

LARGE = (
    Workload("8 x 4,096, 8 x 64", (4096,) * 8, 8, 64),
    Workload("a causal window of 512 on 65,536, 8 x 64", (65_536,), 8, 64, causal=True, reach=511),
    Workload("64 causal documents of 200-1,800, 8 x 64", drawn(64, 200, 1800), 8, 64, causal=True),
)
"""For a GPU."""


def engines_plan(small: bool = False, large: bool = False) -> dict[str, Run]:
    """All workloads; ``large`` ones too, in bfloat16 as well, at last with FlexAttention, compiled."""

    def runs(workloads: Sequence[Workload], end: str = "", **options: Any) -> dict[str, Run]:
        build = partial(engines_case, **options)
        return {w.name + end: in_turns(partial(build, _reduced(w) if small else w)) for w in workloads}

    if not large:
        return runs(WORKLOADS)
    every, half = WORKLOADS + LARGE, {"dtype": torch.bfloat16}
    kernels = runs(LARGE, ", compiled", engines=["tiles", *GPU_ENGINES, "flex"], **half)
    return runs(every) | runs(every, ", bfloat16", **half) | kernels


def _reduced(workload: Workload) -> Workload:
    """A few texts of at most fifty tokens."""
    reach = workload.reach and min(workload.reach, 7)
    return replace(workload, lengths=tuple(min(n, 50) for n in workload.lengths[:4]), reach=reach)


def flex_attention_on(graph: AttentionGraph) -> Attend:
    """PyTorch's FlexAttention (Dong et al. 2024), compiled, on a graph's block mask."""
    from torch.nn.attention.flex_attention import flex_attention

    compiled: Any = torch.compile(flex_attention)
    attend = partial(compiled, block_mask=graph.to_block_mask())
    return lambda *fields: attend(*(x.transpose(0, 1)[None] for x in fields))[0].transpose(0, 1)


def engines_case(
    workload: Workload,
    device: torch.device | str = "cpu",
    engines: Sequence[str] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Case:
    """Engines beside hand-written padded attention, forward and backward, one layer.

    Graphs, plans, patterns and DGL's copies are made beforehand.
    ``error`` is the largest difference of an output from that of ``tiles`` in float32.

    Parameters
    ----------
    workload : Workload
        What to run.
    device : torch.device or str
        Where; DGL's ways run on the CPU only.
    engines : sequence of str, optional
        Which engines; if not given, all that can run here without being compiled.
    dtype : torch.dtype
        Of queries, keys and values.
    """
    device = torch.device(device)
    if engines is None:
        half_on_gpu = device.type == "cuda" and dtype != torch.float32
        engines = [*in_dgl(device.type), *ENGINES, *["varlen"] * half_on_gpu]
    torch.manual_seed(0)
    graph = workload.graph().to(device)
    shape = (graph.num_src, workload.num_heads, workload.d_k)
    q, k, v, upstream = (torch.randn(shape).to(device, dtype) for _ in range(4))
    exact = propagate_attention(graph, q.float(), k.float(), v.float(), engine="tiles")
    for x in (q, k, v):
        x.requires_grad_()

    def both_ways(attend: Attend) -> Tensor:
        found = attend(q, k, v)
        torch.autograd.grad(found, (q, k, v), upstream)
        return found.detach()

    contestants: dict[str, Attend] = {}
    if workload.reach is None:
        contestants[PADDED] = PaddedAttention(workload.lengths, device, causal=workload.causal)
    for engine in engines:
        other = in_dgl(device.type).get(engine, partial(propagate_attention, engine=engine))
        contestants[engine] = flex_attention_on(graph) if engine == "flex" else partial(other, graph)
    end = "" if dtype == torch.float32 else ", " + str(dtype).removeprefix("torch.")
    return Case(
        workload.name,
        {name + end: partial(both_ways, attend) for name, attend in contestants.items()},
        first=PADDED + end,
        work=14 * graph.num_edges * q[0].numel(),  # seven products, five of them backward
        dtype=dtype,
        facts=lambda found: {"error": float((found.float() - exact).abs().max())},
    )
