"""Attention along any graph in one Triton kernel forward and two backward, on a GPU.

No tensor has a row of numbers per edge: kernels read keys and values where they lie. Backward, an edge has
two numbers per head. A graph needs two sorts, and nothing is asked of the GPU.
"""

import os
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph
from edgewise.graphs.graph_forms import ascends
from edgewise.graphs.per_graph import per_graph
from edgewise.propagation.fields import (
    Fields,
    KernelFields,
    MaybeTensor,
    Tensors,
    absent_to_empty,
    empty_to_absent,
)
from edgewise.propagation.operators import make_operator
from edgewise.propagation.precision import without_second_derivatives
from edgewise.validation import InputError

CHUNK = 256
"""Edges of a piece, at most."""

NUMBERS_AT_ONCE = 2048
"""Numbers of keys, or of values, that a program reads at a time; half as many in float64."""

WIDTH = 4
"""Edges that a lane reads at a time."""


class EdgeLists(NamedTuple):
    """Edges listed by node, on one side of the graph.

    Attributes
    ----------
    ranges : Tensor
        [n + 1]: where each node's list begins. Of intervals [2, n]: their first and last position.
    numbers : Tensor
        [E]: each edge's number in the caller's order. Of intervals [num_src]: the edge from s to r has number
        ``numbers[s] + r``.
    others : Tensor, optional
        [E]: the node at the far end. Of intervals positions are the nodes themselves.
    cuts : Tensor, optional
        The node of the last edge before each multiple of ``CHUNK``.
    """

    ranges: Tensor
    numbers: Tensor
    others: MaybeTensor = None
    cuts: MaybeTensor = None


def triton(graph: AttentionGraph, fields: Fields, with_lse: bool = False) -> Any:
    """Attend in kernels that walk along each list of edges; sums are float32, or float64 of float64.

    Keys and values may have fewer heads. Attributes as in :func:`edgewise.propagation.csr.csr_engine.csr`.

    Raises
    ------
    InputError
        If there is no Triton, or the graph is not on a CUDA device.
    """
    if not has_triton(graph.device):
        there = "there" if find_spec("triton") else "not there"
        raise InputError(
            f"engine 'triton' needs a graph on a CUDA device, this is on {graph.device}, and Triton, "
            f"which PyTorch for CUDA brings and is {there}: use 'csr' or 'auto'"
        )
    receivers, senders = _listed(graph)
    num_edges = graph.num_edges if torch.is_grad_enabled() else 0  # for the backward pass alone
    q, k, v, bias, factors, attr, proj = fields
    kernel_fields = KernelFields(q, k, v, bias, factors, None, None)
    if attr is None or proj is None:
        output, _, lse = _attend(kernel_fields, receivers, senders, num_edges)
        return (output, lse.squeeze(-1)) if with_lse else output
    wide = _real(q)
    q_attr = torch.einsum("nhd,chd->nhc", q.to(wide), proj.to(wide))
    output, attr_sums, lse = _attend(
        kernel_fields._replace(q_attr=q_attr, attr=attr), receivers, senders, num_edges
    )
    output = (output + torch.einsum("nhc,chd->nhd", attr_sums, proj.to(wide))).to(q.dtype)
    return (output, lse.squeeze(-1)) if with_lse else output


def has_triton(device: torch.device) -> bool:
    """Whether Triton's kernels run there: on CUDA, or anywhere in its interpreter."""
    runs = device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
    return runs and _kernels() is not None


@cache
def _kernels() -> Any:
    """The kernels, unless Triton is not installed."""
    if find_spec("triton") is None:
        return None
    from edgewise.propagation.triton import triton_kernels

    return triton_kernels


@per_graph
def _listed(graph: AttentionGraph) -> tuple[EdgeLists, EdgeLists]:
    """Edges by receiver, and by sender."""
    if graph._intervals and ascends(graph):
        return _list_intervals(*graph._intervals, graph.num_src)
    ends = torch.stack([graph._dst, graph._src]).int()
    nodes, order = ends.sort(dim=1, stable=True)
    small, counts = ends.shape[1] < 2**31, (graph.num_dst, graph.num_src)
    each = torch.arange(max(counts) + 1, dtype=torch.int32, device=ends.device).repeat(2, 1)
    offsets, others = torch.searchsorted(nodes, each, out_int32=small), ends.flip(0).gather(1, order)
    order, cuts = order.int() if small else order, nodes[:, CHUNK - 1 : -1 : CHUNK].contiguous()
    receivers, senders = (
        EdgeLists(offsets[i, : n + 1], order[i], others[i], cuts[i]) for i, n in enumerate(counts)
    )
    return receivers, senders


def _list_intervals(start: Tensor, stop: Tensor, num_src: int) -> tuple[EdgeLists, EdgeLists]:
    """Of intervals that ascend, without sorting; their edges are numbered by sender."""
    start, stop = start.int(), stop.int()
    senders = torch.arange(num_src, dtype=torch.int32, device=start.device)
    first, last = (torch.searchsorted(x, senders, right=True, out_int32=True) for x in (stop, start))
    degree = (last - first).long()
    numbers = degree.cumsum(0) - degree - first
    return EdgeLists(torch.stack([start, stop]), numbers), EdgeLists(torch.stack([first, last]), numbers)


@lru_cache(maxsize=1024)
def _program_shape(double: bool, together: bool, heads: int, *sizes: int) -> tuple[int, ...]:
    """Heads and sizes of vectors, padded to powers of two; a program's lanes; edges read at a time.

    ``together``: a program has all heads of its nodes.
    """
    padded, *blocks = (1 << max(x - 1, 0).bit_length() for x in (heads, *sizes))
    least, tile = padded if together else 1, NUMBERS_AT_ONCE // (1 + double)
    width = max(min(WIDTH, 2 * tile // (least * max(blocks))), 1)
    return padded, *blocks, max(tile // (width * max(blocks)), least), width


def _launch(
    kernel: Any,
    edges: EdgeLists,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    scalars: Sequence[float],
    heads: int,
    group: int,
    *sizes: int,
    together: bool = False,
) -> None:
    """Run a kernel on all pieces, then ``combine`` on those of lists that were cut."""
    ranges, numbers, others, cuts = edges
    num_nodes, num_cuts = ranges.shape[-1] - (others is not None), 0 if cuts is None else cuts.shape[0]
    real, parts, pair = _real(inputs[0]), None, [0 if x is None else x.shape[2] for x in outputs[:2]]
    if num_cuts:
        parts = inputs[0].new_empty(2 * num_cuts, heads, sum(pair) + 1, dtype=real)
    num_pieces, tiles = num_nodes + num_cuts, _program_shape(real == torch.float64, together, heads, *sizes)
    tensors = ranges, numbers, others, cuts if num_cuts else None, *inputs, *outputs, parts
    constants = heads, group, *sizes, CHUNK, *tiles
    _run(kernel, num_pieces * tiles[0], tensors, scalars, (num_nodes, num_pieces), constants)
    if num_cuts:
        tiles = _program_shape(real == torch.float64, False, heads, sum(pair))
        tensors = ranges, cuts, parts, *outputs, *[None] * (3 - len(outputs))
        _run(_kernels().combine, num_cuts * tiles[0], tensors, (), (num_cuts,), (heads, *pair, CHUNK, *tiles))


_compiled: dict[Any, Any] = {}
"""Kernels by what Triton compiles them for: to find that out takes it longer than all that is done here."""


def _run(
    kernel: Any,
    lanes: int,
    tensors: Sequence[MaybeTensor],
    scalars: Sequence[float],
    counts: Sequence[int],
    constants: Sequence[int],
) -> None:
    """Run a kernel, compiled for the types and alignments of tensors and for all else but ``counts``."""
    kinds = tuple(None if x is None else (x.dtype, x.data_ptr() % 16 == 0) for x in tensors)
    key = kernel.__name__, tensors[0].device, kinds, tuple(scalars), constants  # type: ignore[union-attr]
    programs, args = -(-lanes // constants[-2]), (*tensors, *scalars, *counts, *constants)
    if (compiled := _compiled.get(key)) is None:
        _compiled[key] = kernel[(programs,)](*args)
    else:
        compiled[programs, 1, 1](*args)


def _real(q: Tensor) -> torch.dtype:
    """What numbers are added up in."""
    return torch.promote_types(q.dtype, torch.float32)


def _readable(fields: KernelFields) -> tuple[list[Any], list[float], tuple[int, ...]]:
    """Fields as kernels read them; strides and the scale; the numbers of heads and the sizes of vectors.

    Tokens of q, k and v may lie anywhere, as in parts of one projection; but a stride that is longer for more
    tokens would need a kernel for each of their numbers.
    """
    q, k, v = (x if x.stride(0) >= x.stride(1) >= x.stride(2) == 1 else x.contiguous() for x in fields[:3])
    *others, attr = (None if x is None else x.contiguous() for x in fields[3:])
    strides, (_, heads, d) = [step for x in (q, k, v) for step in x.stride()[:2]], q.shape
    sizes = heads, heads // k.shape[1], d, v.shape[2], 0 if attr is None else attr.shape[1]
    return [q, k, v, *others, attr], [*strides, d**-0.5], sizes


def _results(fields: KernelFields) -> tuple[Tensor, Tensor, Tensor]:
    q, _, v, _, _, q_attr, _ = fields
    (n, heads, _), real = q.shape, _real(q)
    output = q.new_empty(n, heads, v.shape[2], dtype=q.dtype if q_attr is None else real)
    attr_sums = q.new_empty(n, heads, 0 if q_attr is None else q_attr.shape[2], dtype=real)
    return output, attr_sums, q.new_empty(n, heads, 1, dtype=real)


def _forward(fields: KernelFields, receivers: EdgeLists) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs [n, h, d_v], weighted sums of attributes [n, h, c], and log-sum-exps of scores [n, h, 1]."""
    results, (readable, scalars, sizes) = _results(fields), _readable(fields)
    with torch.cuda.device_of(results[0]):
        _launch(_kernels().attend, receivers, readable, results, scalars, *sizes)
    return results


def _backward(
    fields: KernelFields,
    receivers: EdgeLists,
    senders: EdgeLists,
    num_edges: int,
    results: Sequence[Tensor],
    grads: Sequence[MaybeTensor],
    with_attr: bool,
) -> KernelFields:
    """Gradients of fields but for factors of weights; of attributes if they are wanted."""
    differentiable = fields._replace(factors=None, attr=fields.attr if with_attr else None)
    gradients = KernelFields._make(None if x is None else x.new_empty(x.shape) for x in differentiable)
    grad_q, grad_k, grad_v, bias, _, grad_q_attr, grad_attr = gradients
    readable, scalars, (heads, group, *sizes) = _readable(fields)
    grad_results: list[Any] = [
        torch.zeros_like(x) if g is None else g.contiguous() for g, x in zip(grads[:2], results, strict=False)
    ]
    grad_results.append(None if grads[2] is None else grads[2].contiguous())
    weight, grad_score = (results[2].new_empty(num_edges, heads) for _ in range(2))  # handed to the senders
    inputs = *readable, *results, *grad_results, weight, grad_score, grad_attr
    with torch.cuda.device_of(weight):
        _launch(
            _kernels().differentiate_receivers, receivers, inputs, (grad_q, grad_q_attr), scalars,
            heads, group, *sizes, together=with_attr,
        )  # fmt: skip
        _launch(
            _kernels().differentiate_senders, senders, (readable[0], grad_results[0], weight, grad_score),
            (grad_k, grad_v), (*scalars[:2], scalars[-1]), heads // group, group, *sizes[:2],
        )  # fmt: skip
    return gradients._replace(bias=None if bias is None else grad_score.to(bias.dtype))


def _attend(
    fields: KernelFields, receivers: EdgeLists, senders: EdgeLists, num_edges: int
) -> Sequence[Tensor]:
    """See ``_forward``. Programs call an operator, which in eager mode takes longer than a function."""
    if torch.compiler.is_compiling():
        lists = [x for x in (*receivers, *senders) if x is not None]
        return _operator(absent_to_empty(fields), lists, num_edges)
    return _Attention.apply(receivers, senders, num_edges, *fields)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, receivers: EdgeLists, senders: EdgeLists, num_edges: int, *fields: MaybeTensor
    ) -> Any:
        results = _forward(KernelFields._make(fields), receivers)
        ctx.graph = receivers, senders, num_edges
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*fields, *results)
        return results

    @staticmethod
    @without_second_derivatives()
    def backward(ctx: Any, *grads: MaybeTensor) -> Any:
        saved, many = ctx.saved_tensors, len(KernelFields._fields)  # once: checkpoints empty_to_absent it
        receivers, senders, num_edges = ctx.graph
        fields, with_attr = KernelFields._make(saved[:many]), ctx.needs_input_grad[-1]
        found = _backward(fields, receivers, senders, num_edges, saved[many:], grads, with_attr)
        return None, None, None, *found


def _unlist(plan: Tensors) -> tuple[EdgeLists, EdgeLists]:
    return EdgeLists(*plan[: len(plan) // 2]), EdgeLists(*plan[len(plan) // 2 :])


def _of_operator(
    fields: Tensors, plan: Tensors, count: int, results: Tensors, grads: Tensors, wanted: list[bool]
) -> KernelFields:
    grad_results = [x if x.numel() else None for x in grads]
    kernel_fields, with_attr = KernelFields._make(empty_to_absent(fields)), KernelFields._make(wanted).attr
    return _backward(kernel_fields, *_unlist(plan), count, results, grad_results, with_attr)


_operator = make_operator(
    "triton",
    lambda fields, plan, count: _forward(KernelFields._make(empty_to_absent(fields)), _unlist(plan)[0]),
    lambda fields, plan, count: _results(KernelFields._make(empty_to_absent(fields))),
    _of_operator,
    saved=slice(3),
)
