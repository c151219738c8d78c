"""Chapter 5: attention as message passing, one operation with five engines.

Every model in this package calls :func:`propagate_attention`. Its engines give the same values and gradients;
they differ in speed by two orders of magnitude.
"""

import importlib
from collections.abc import Callable

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph, dgl_available
from edgewise.message_passing.plan import plan_tiles
from edgewise.message_passing.scatter import edge_softmax, scatter, softmax_over_in_edges
from edgewise.message_passing.tiles import tiles
from edgewise.validation import check_choice

__all__ = [
    "ENGINES",
    "attention_weights",
    "available_engines",
    "edge_softmax",
    "plan_tiles",
    "propagate_attention",
    "softmax_over_in_edges",
]

Engine = Callable[[AttentionGraph, Tensor, Tensor, Tensor], Tensor]


def _dgl_engine(name: str) -> Engine:
    def engine(graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        engines = importlib.import_module("edgewise.message_passing.dgl_engines")
        return getattr(engines, name)(graph, q, k, v)

    return engine


DGL_ENGINES = ("mailbox", "builtin", "fused")
"""Engines that need DGL, and the CPU."""

ENGINES: dict[str, Engine] = {
    **{name: _dgl_engine(name) for name in DGL_ENGINES},
    "scatter": scatter,
    "tiles": tiles,
}
"""How the sum over edges is executed."""


def available_engines(device: torch.device | str = "cpu") -> list[str]:
    """Return the names of the engines that run here."""
    of_dgl = torch.device(device).type == "cpu" and dgl_available()
    return [name for name in ENGINES if of_dgl or name not in DGL_ENGINES]


def propagate_attention(
    graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor, engine: str = "auto"
) -> Tensor:
    r"""Give each receiver the softmax-weighted sum of its senders' values, head by head.

    .. math::
        \mathrm{wv}_j = \sum_{i \to j} \frac{\exp(q_j^\top k_i / \sqrt{d})}
                        {\sum_{i' \to j} \exp(q_j^\top k_{i'} / \sqrt{d})} \, v_i

    Parameters
    ----------
    graph : AttentionGraph
        Which token attends to which.
    q : Tensor
        Queries [num_dst, h, d].
    k : Tensor
        Keys [num_src, h, d].
    v : Tensor
        Values [num_src, h, d].
    engine : str
        One of ``ENGINES``, or ``"auto"``: ``tiles`` if it wastes few scores, else ``fused`` on a CPU with
        DGL, else ``tiles`` if the graph is within its limits, else ``scatter``.

    Returns
    -------
    Tensor
        [num_dst, h, d]; zeros for a receiver without in-edges.

    Raises
    ------
    TypeError
        If q, k or v is no floating-point tensor.
    ValueError
        If shapes, dtypes or devices do not fit, the engine is unknown, or the graph exceeds ``tiles``'
        limits.
    ImportError
        If the engine needs DGL and it cannot be imported.
    """
    check_choice("engine", engine, ["auto", *ENGINES])
    _check_tensors(graph, q=q, k=k, v=v)
    if graph.num_edges == 0:  # DGL makes no output field where no message is sent
        engine = "scatter"
    with torch.autocast(q.device.type, enabled=False):  # or engines would differ in the dtype they return
        return ENGINES[_choose(graph) if engine == "auto" else engine](graph, q, k, v)


def attention_weights(graph: AttentionGraph, q: Tensor, k: Tensor) -> Tensor:
    """Return the attention weights: one per edge and head, [E, h], in the order of ``graph.src``.

    The weights on each receiver's in-edges sum to one. Parameters and errors as in
    :func:`propagate_attention`.
    """
    _check_tensors(graph, q=q, k=k)
    return edge_softmax(graph, q, k)


def _choose(graph: AttentionGraph) -> str:
    plan = plan_tiles(graph)
    if plan.economical:
        return "tiles"
    if graph.device.type == "cpu" and dgl_available():
        return "fused"
    return "tiles" if plan.affordable else "scatter"


def _check_tensors(graph: AttentionGraph, **tensors: Tensor) -> None:
    if not isinstance(graph, AttentionGraph):
        raise TypeError(f"graph must be an AttentionGraph, got {type(graph).__name__}")
    for name, x in tensors.items():
        if not isinstance(x, Tensor) or not x.is_floating_point():
            kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"{name} must be a floating-point tensor, got {kind}")
    q = tensors["q"]
    if q.dim() != 3 or 0 in q.shape[1:]:
        raise ValueError(f"q must be [num_dst, h, d] with h and d at least 1, got {list(q.shape)}")
    for name, x in tensors.items():
        side, tokens = ("num_dst", graph.num_dst) if name == "q" else ("num_src", graph.num_src)
        expected = torch.Size((tokens, *q.shape[1:]))
        if x.shape != expected:
            raise ValueError(f"{name} must be [{side}, h, d] = {list(expected)}, got {list(x.shape)}")
        if x.dtype != q.dtype:
            raise ValueError(f"{name} must have q's dtype {q.dtype}, got {x.dtype}")
        if x.device != graph.device:
            raise ValueError(f"{name} must be on the graph's device {graph.device}, got {x.device}")
