"""Chapter 5: attention as message passing, one operation with six engines.

Every model in this package calls :func:`propagate_attention`. Its engines give the same values and gradients;
they differ in speed by two orders of magnitude.
"""

import importlib
import math

import torch
from torch import Tensor
from torch.linalg import vector_norm

from edgewise.graphs import AttentionGraph, dgl_available
from edgewise.message_passing.chunks import chunks
from edgewise.message_passing.plan import plan_tiles
from edgewise.message_passing.precision import Engine, in_full_precision
from edgewise.message_passing.scatter import edge_softmax, scatter, softmax_over_in_edges
from edgewise.message_passing.tiles import tiles
from edgewise.validation import check_choice, check_floats, check_probability

__all__ = [
    "ENGINES",
    "attention_weights",
    "available_engines",
    "choose_engine",
    "edge_softmax",
    "plan_tiles",
    "propagate_attention",
    "softmax_over_in_edges",
]


def _dgl_engine(name: str) -> Engine:
    def engine(graph: AttentionGraph, *fields: Tensor | None) -> Tensor:
        engines = importlib.import_module("edgewise.message_passing.dgl_engines")
        return getattr(engines, name)(graph, *fields)

    return engine


DGL_ENGINES = ("mailbox", "builtin", "fused")
"""Engines that need DGL, and the CPU."""

ENGINES: dict[str, Engine] = {
    **{name: _dgl_engine(name) for name in DGL_ENGINES},
    "scatter": scatter,
    "chunks": chunks,
    "tiles": tiles,
}
"""How the sum over edges is executed."""


def available_engines(device: torch.device | str = "cpu") -> list[str]:
    """Return the names of the engines that run here."""
    of_dgl = torch.device(device).type == "cpu" and dgl_available()
    return [name for name in ENGINES if of_dgl or name not in DGL_ENGINES]


def propagate_attention(
    graph: AttentionGraph,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    engine: str = "auto",
    *,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    edge_features: Tensor | None = None,
) -> Tensor:
    r"""Give each receiver the softmax-weighted sum of its senders' values, head by head.

    .. math::
        \mathrm{wv}_j = \sum_{i \to j} w_{ij} \, v_i, \qquad
        w_{ij} = \frac{\exp(q_j^\top k_i / \sqrt{d} + b_{ij})}
                      {\sum_{i' \to j} \exp(q_j^\top k_{i'} / \sqrt{d} + b_{i'j})}

    NaN and infinities spread along edges, as they do in a dense softmax over a receiver's senders, and
    nowhere else; in compiled programs, on a GPU and in the gradient that comes from above, ``tiles`` may
    spread them within a tile. ``tiles``, ``chunks`` and ``fused`` refuse second
    derivatives.

    Parameters
    ----------
    graph : AttentionGraph
        Which token attends to which.
    q : Tensor
        Queries [num_dst, h, d].
    k : Tensor
        Keys [num_src, h, d].
    v : Tensor
        Values [num_src, h, d_v]; ``d_v`` is often ``d``.
    engine : str
        ``tiles``, ``chunks``, ``scatter``; ``fused``, ``builtin`` or ``mailbox``, which need DGL; or
        ``"auto"``: ``scatter`` for edge features, else :func:`choose_engine`.
    bias : Tensor, optional
        [E, h], in the order of ``graph.src``: added to the scores (relative positions, ALiBi).
    dropout : float
        Probability in [0, 1) of dropping a weight; those kept are scaled up. The draws depend on PyTorch's
        seed, not on the engine.
    edge_features : Tensor, optional
        [E, h, d], in the order of ``graph.src``: added to keys and values of an edge's sender (Shi et al.
        2021, eq. 3 and 4). ``scatter`` alone takes them.

    Returns
    -------
    Tensor
        [num_dst, h, d_v]; zeros for a receiver without in-edges.

    Raises
    ------
    TypeError
        If a tensor is no floating-point tensor.
    ValueError
        If shapes, dtypes or devices do not fit, ``dropout`` is no probability below one, or the engine is
        unknown, takes no edge features or has limits that the graph exceeds.
    MissingPackageError
        If the engine needs DGL and it cannot be imported.
    """
    check_choice("engine", engine, ["auto", *ENGINES])
    _check_tensors(graph, q=q, k=k, v=v)
    _check_on_edges(graph, q, "bias", bias, ("h",))
    _check_on_edges(graph, q, "edge_features", edge_features, ("h", "d"))
    if edge_features is not None and v.shape != k.shape:
        raise ValueError(f"edge features need values of the keys' width {k.shape[-1]}, got {v.shape[-1]}")
    if edge_features is not None and engine not in ("auto", "scatter"):
        raise ValueError(f"engine {engine!r} takes no edge features: use 'scatter' or 'auto'")
    keep = None
    if check_probability("dropout", dropout):
        keep = q.new_empty(graph.num_edges, q.shape[1]).bernoulli_(1 - dropout).div_(1 - dropout)
    with torch.autocast(q.device.type, enabled=False):  # or engines would differ in the dtype they return
        if edge_features is not None:
            return scatter(graph, q, k, v, bias, keep, edge_features)
        name = choose_engine(graph) if engine == "auto" else engine
        # DGL makes no output field where no message is sent, and tiles multiply what is masked by zero.
        elsewhere = name not in ("scatter", "chunks") and not (_finite(q, k, v) and _bounded(graph, bias))
        if graph.num_edges == 0 or elsewhere:
            name = "scatter"
        return ENGINES[name](graph, q, k, v, bias, keep)


FEW = 8
"""In-edges of a receiver on average, below which ``chunks`` are mostly faster than tiles, on a CPU."""


def choose_engine(graph: AttentionGraph) -> str:
    """Return the engine that ``"auto"`` takes for a graph whose edges have no features.

    ``tiles`` where receivers have at least ``FEW`` edges on average and its plan computes at most 8 scores
    per edge; else ``chunks``. The plan is kept on the graph.
    """
    many = graph.num_edges >= FEW * graph.num_dst
    return "tiles" if many and plan_tiles(graph).economical else "chunks"


def _finite(*tensors: Tensor) -> bool:
    """Whether all numbers, and all products of two of them, are finite; asked of a CPU alone."""
    if tensors[0].device.type != "cpu" or torch.compiler.is_compiling():
        return True  # to ask would halt a GPU; what a compiled program does cannot depend on numbers
    with torch.no_grad():
        wide = torch.float64 if tensors[0].dtype == torch.float64 else torch.float32
        most = math.sqrt(torch.finfo(wide).max)
        return all(float(vector_norm(x, dtype=wide)) < most for x in tensors)


def _bounded(graph: AttentionGraph, bias: Tensor | None) -> bool:
    """Whether biases leave each receiver with in-edges a finite score; asked of a CPU alone.

    Minus infinity hides an edge, which every engine can do, but not all edges of a receiver.
    """
    if bias is None or bias.device.type != "cpu" or torch.compiler.is_compiling():
        return True
    with torch.no_grad():
        if bool(bias.isfinite().all()):
            return True
        if not bool((bias < math.inf).all()):  # false of NaN too
            return False
        receiver = graph.dst[:, None].expand_as(bias)
        highest = bias.new_zeros(graph.num_dst, bias.shape[1])
        return bool(highest.scatter_reduce(0, receiver, bias, "amax", include_self=False).isfinite().all())


def attention_weights(graph: AttentionGraph, q: Tensor, k: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the attention weights: one per edge and head, [E, h], in the order of ``graph.src``.

    The weights on each receiver's in-edges sum to one. Parameters and errors as in
    :func:`propagate_attention`.
    """
    _check_tensors(graph, q=q, k=k)
    _check_on_edges(graph, q, "bias", bias, ("h",))
    return in_full_precision(edge_softmax)(graph, q, k, bias)


def _check_tensors(graph: AttentionGraph, **tensors: Tensor) -> None:
    if not isinstance(graph, AttentionGraph):
        raise TypeError(f"graph must be an AttentionGraph, got {type(graph).__name__}")
    for name, x in tensors.items():
        check_floats(name, x)
    q = tensors["q"]
    if q.dim() != 3 or 0 in q.shape[1:]:
        raise ValueError(f"q must be [num_dst, h, d] with h and d at least 1, got {list(q.shape)}")
    for name, x in tensors.items():
        side, tokens = ("num_dst", graph.num_dst) if name == "q" else ("num_src", graph.num_src)
        width = x.shape[-1] if name == "v" and x.dim() == 3 and x.shape[-1] else q.shape[-1]
        expected = torch.Size((tokens, q.shape[1], width))
        if x.shape != expected:
            raise ValueError(f"{name} must be [{side}, h, d] = {list(expected)}, got {list(x.shape)}")
        if x.dtype != q.dtype:
            raise ValueError(f"{name} must have q's dtype {q.dtype}, got {x.dtype}")
        if x.device != graph.device:
            raise ValueError(f"{name} must be on the graph's device {graph.device}, got {x.device}")


def _check_on_edges(
    graph: AttentionGraph, q: Tensor, name: str, x: Tensor | None, axes: tuple[str, ...]
) -> None:
    if x is None:
        return
    expected = torch.Size((graph.num_edges, *q.shape[1 : 1 + len(axes)]))
    check_floats(name, x)
    if x.shape != expected:
        raise ValueError(f"{name} must be [E, {', '.join(axes)}] = {list(expected)}, got {list(x.shape)}")
    if x.dtype != q.dtype or x.device != q.device:
        raise ValueError(f"{name} must be {q.dtype} on {q.device} as q is, got {x.dtype} on {x.device}")
