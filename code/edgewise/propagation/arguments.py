"""Whether tensors fit a graph and each other; messages say what was given and what is allowed."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from edgewise.graphs import AttentionGraph
from edgewise.graphs.graph_forms import check_graph
from edgewise.propagation.fields import MaybeTensor
from edgewise.propagation.precision import HALF
from edgewise.validation import check_floats, check_real, is_plain


def check_sides(
    graph: AttentionGraph, query: Tensor, context: Tensor | None, widths: tuple[int, int], layer: nn.Module
) -> None:
    """Check a graph and a layer's states [..., n, width]; ``layer`` is the map of the query."""
    check_graph(graph)
    if (context is None) != graph.self_attention:
        sides = "one set" if graph.self_attention else "two sets"
        given = "not given" if context is None else "given (the rest goes by name)"
        raise ValueError(f"the graph is over {sides} of tokens, but context was {given}")
    _check_states(graph, "query", query, query, widths[0], layer)
    if context is not None:
        _check_states(graph, "context", context, query, widths[1], layer)
    elif widths[0] != widths[1]:
        _check_states(graph, "query", query, query, widths[1], layer)


def _check_states(
    graph: AttentionGraph, name: str, x: Tensor, query: Tensor, width: int, layer: nn.Module
) -> None:
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


def _check_like(q: Tensor, name: str, x: Tensor, shape: Sequence[int], axes: str, hint: str = "") -> None:
    check_floats(name, x)
    if x.shape != torch.Size(shape):
        raise ValueError(f"{name} must be {axes} = {list(shape)}, got {list(x.shape)}{hint}")
    wider = q.dtype in HALF and x.dtype == torch.float32
    if (x.dtype != q.dtype and not wider) or x.device != q.device:
        raise ValueError(f"{name} must be {q.dtype} on {q.device} as q is, got {x.dtype} on {x.device}")


def check_edge_arguments(
    graph: AttentionGraph,
    q: Tensor,
    v: Tensor,
    engine: str,
    bias: MaybeTensor,
    attr: MaybeTensor,
    proj: MaybeTensor,
) -> tuple[MaybeTensor, MaybeTensor]:
    """Check biases [E, h] for queries [n, h, d]; return attributes [E, c] and their projection [c, h, d].

    Attributes of width 0 count as absent.
    """
    if bias is not None:
        check_floats("edge_bias", bias)
        shape, hint = (graph.num_edges, q.shape[1]), ""
        if bias.shape == shape[::-1]:
            hint = "; transpose it"
        elif bias.shape[-2:] == (graph.num_dst, graph.num_src):
            hint = "; graph.gather(matrix) reads a matrix at the edges"
        _check_like(q, "edge_bias", bias, shape, "[E, h]", hint)
    if attr is None and proj is None:
        return None, None
    if attr is None or proj is None:
        raise ValueError("edge_attr and edge_proj go together, got one of them")
    width = len(proj) if isinstance(proj, Tensor) and proj.dim() else 0
    _check_like(q, "edge_proj", proj, (width, *q.shape[1:]), "[c, h, d]")
    _check_like(q, "edge_attr", attr, (graph.num_edges, width), "[E, c]")
    if width == 0:
        return None, None
    if v.shape[-1] != q.shape[-1]:
        raise ValueError(
            f"attributes of edges need values of the keys' width {q.shape[-1]}, got {v.shape[-1]}"
        )
    if engine in ("tiles", "varlen"):
        raise ValueError(f"engine {engine!r} takes no attributes of edges: use 'csr', 'scatter' or 'auto'")
    return attr, proj


def _advice(graph: AttentionGraph, side: str, shape: Sequence[int]) -> str:
    """What to do about states [..., n, width] of a ``side``, src or dst, which does not have n tokens."""
    n = shape[-2] if len(shape) > 1 else 0
    counts = graph.packed.senders if graph.packed else ()
    if side == "dst" and n == graph.num_src:
        return "; the two sides are swapped: receivers are the query, senders the context"
    if len(shape) == 3 and shape[0] == len(counts):
        return "; sentences are packed, without padding: states[mask], mask true at real tokens"
    return ""
