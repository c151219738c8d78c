"""Whether tensors fit a graph and each other; messages say what was given and what is allowed."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from edgewise.graphs import AttentionGraph
from edgewise.graphs.held_edges import check_graph
from edgewise.propagation.fields import Fields, OnEdges
from edgewise.propagation.precision import HALF
from edgewise.validation import check_floats, check_real, is_plain


def check_states(
    graph: AttentionGraph, name: str, x: Tensor, query: Tensor, width: int, layer: nn.Module
) -> None:
    """Check the states [..., n, width] of a side, ``query`` or ``context``, for what maps it first."""
    check_floats(name, x)
    side, tokens = ("dst", graph.num_dst) if name == "query" else ("src", graph.num_src)
    shape = [*query.shape[:-2], tokens, width]
    if list(x.shape) != shape:
        hint = _advice(graph, side, x.shape) if x.shape[-2:-1] != (tokens,) else ""
        if not hint and len(x.shape) == 3 and x.shape[0] == tokens:
            hint = "; tokens are the last dimension but one, as with batch_first=True"
        raise ValueError(f"{name} must be {shape} for this graph and layer, got {list(x.shape)}{hint}")
    if x.device != graph.device:
        raise ValueError(f"{name} must be on the graph's device {graph.device}, got {x.device}")
    dtype = getattr(getattr(layer, "weight", None), "dtype", x.dtype)
    if x.dtype != dtype and is_plain(layer) and not torch.is_autocast_enabled(x.device.type):
        raise ValueError(f"{name} must be {dtype} as the layer's weights are, got {x.dtype}")


def check_tensors(graph: AttentionGraph, **tensors: Tensor) -> list[Tensor]:
    """Return the tensors; keys and values may have fewer heads than queries."""
    check_graph(graph)
    for name, x in tensors.items():
        check_floats(name, x)
    q = tensors["q"]
    if q.dim() != 3 or 0 in q.shape[1:]:
        raise ValueError(f"q must be [num_dst, h, d] with h and d at least 1, got {list(q.shape)}")
    k = tensors["k"]
    fewer = k.dim() == 3 and 0 < k.shape[1] < q.shape[1] and q.shape[1] % k.shape[1] == 0
    heads = k.shape[1] if fewer else q.shape[1]
    for name, x in tensors.items():
        side, tokens = ("num_dst", graph.num_dst) if name == "q" else ("num_src", graph.num_src)
        width = x.shape[-1] if name == "v" and x.dim() == 3 and x.shape[-1] else q.shape[-1]
        expected = torch.Size((tokens, q.shape[1] if name == "q" else heads, width))
        if x.shape != expected:
            hint = _advice(graph, side[-3:], x.shape[:2]) if x.dim() == 3 and len(x) != tokens else ""
            raise ValueError(f"{name} must be [{side}, h, d] = {list(expected)}, got {list(x.shape)}{hint}")
        if x.dtype != q.dtype:
            raise ValueError(f"{name} must have q's dtype {q.dtype}, got {x.dtype}")
        if x.device != graph.device:
            raise ValueError(f"{name} must be on the graph's device {graph.device}, got {x.device}")
    return list(tensors.values())


def check_scale(scale: float | None) -> float | None:
    """Return ``scale``, a finite number if it is given."""
    return scale if scale is None else check_real("scale", scale)


def with_as_many_heads(fields: Fields) -> Fields:
    """Repeat heads of keys and values for as many as queries have."""
    group = fields.q.shape[1] // fields.k.shape[1]
    if group == 1:
        return fields
    return fields._replace(k=fields.k.repeat_interleave(group, 1), v=fields.v.repeat_interleave(group, 1))


def scaled(fields: Fields, scale: float | None) -> Fields:
    """Scale queries for engines, whose scores are over the root of d; float32 of half precision, as there."""
    factor = 1.0 if scale is None else scale * math.sqrt(fields.q.shape[-1])
    if math.isclose(factor, 1, rel_tol=1e-12):
        return fields
    fields = fields.to(torch.float32) if fields.q.dtype in HALF else fields
    return fields._replace(q=factor * fields.q)


def check_bias(graph: AttentionGraph, q: Tensor, edge_bias: Tensor | None) -> None:
    """Raise if there are biases that do not fit the graph and queries [n, h, d]."""
    if edge_bias is None:
        return
    check_floats("edge_bias", edge_bias)
    shape, hint = (graph.num_edges, q.shape[1]), ""
    if edge_bias.shape == shape[::-1]:
        hint = "; transpose it"
    elif edge_bias.shape[-2:] == (graph.num_dst, graph.num_src):
        hint = "; graph.gather(matrix) reads a matrix at the edges"
    _check_like(q, "edge_bias", edge_bias, shape, "[E, h]", hint)


def _check_like(q: Tensor, name: str, x: Tensor, shape: Sequence[int], axes: str, hint: str = "") -> None:
    check_floats(name, x)
    if x.shape != torch.Size(shape):
        raise ValueError(f"{name} must be {axes} = {list(shape)}, got {list(x.shape)}{hint}")
    wider = q.dtype in HALF and x.dtype == torch.float32
    if (x.dtype != q.dtype and not wider) or x.device != q.device:
        raise ValueError(f"{name} must be {q.dtype} on {q.device} as q is, got {x.dtype} on {x.device}")


def check_features(
    graph: AttentionGraph, q: Tensor, v: Tensor, engine: str, attr: Tensor | None, weight: Tensor | None
) -> tuple[OnEdges, OnEdges]:
    """Return attributes of edges [E, c] and their projection [c, h, d], or nothing if there are none."""
    if attr is None and weight is None:
        return None, None
    if attr is None or weight is None:
        raise ValueError("edge_attr and edge_proj go together, got one of them")
    width = len(weight) if isinstance(weight, Tensor) and weight.dim() else 0
    _check_like(q, "edge_proj", weight, (width, *q.shape[1:]), "[c, h, d]")
    _check_like(q, "edge_attr", attr, (graph.num_edges, width), "[E, c]")
    if width == 0:
        return None, None
    if v.shape[-1] != q.shape[-1]:
        raise ValueError(
            f"attributes of edges need values of the keys' width {q.shape[-1]}, got {v.shape[-1]}"
        )
    if engine in ("tiles", "varlen"):
        raise ValueError(f"engine {engine!r} takes no attributes of edges: use 'csr', 'scatter' or 'auto'")
    return attr, weight


def _advice(graph: AttentionGraph, side: str, shape: Sequence[int]) -> str:
    """What to do about states [..., n, width] of a ``side``, src or dst, which does not have n tokens."""
    n = shape[-2] if len(shape) > 1 else 0
    counts = graph.packed.senders if graph.packed else ()
    if side == "dst" and n == graph.num_src:
        return "; the two sides are swapped: receivers are the query, senders the context"
    if len(shape) == 3 and shape[0] == len(counts):
        return "; sentences are packed, without padding: states[mask], mask true at real tokens"
    return ""
