"""The one operation: arguments are checked, an engine is chosen, and what is not finite is computed anew."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.linalg import vector_norm

from edgewise.graphs import AttentionGraph
from edgewise.graphs.attention_graph import remedy
from edgewise.message_passing.cost_model import cost, in_a_transform
from edgewise.message_passing.csr import csr
from edgewise.message_passing.flex import flex, suits_varlen, varlen
from edgewise.message_passing.precision import HALF, Engine, in_full_precision, without_autocast
from edgewise.message_passing.scatter import edge_softmax, scatter
from edgewise.message_passing.tiles import tiles
from edgewise.validation import check_choice, check_floats, check_probability, check_real

ENGINES: dict[str, Engine] = {"scatter": scatter, "csr": csr, "tiles": tiles}
"""How the sum over edges is executed, on any graph."""

KERNELS: dict[str, Engine] = {"flex": flex, "varlen": varlen}
"""Executions that take some graphs only, or none of the options."""


def propagate_attention(
    graph: AttentionGraph,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    engine: str = "auto",
    scale: float | None = None,
    edge_bias: Tensor | None = None,
    edge_attr: Tensor | None = None,
    edge_proj: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    r"""Give each receiver the softmax-weighted sum of its senders' values, head by head.

    .. math::
        \mathrm{wv}_j = \sum_{i \to j} w_{ij} \, v_i, \qquad
        w_{ij} = \frac{\exp(q_j^\top k_i / \sqrt{d} + b_{ij})}
                      {\sum_{i' \to j} \exp(q_j^\top k_{i'} / \sqrt{d} + b_{i'j})}

    With attributes :math:`a` of edges and a projection :math:`W`, :math:`W^\top a_{ij}` is added to key and
    value that receiver :math:`j` gets from :math:`i` (Shi et al. 2021, eq. 3 and 4).

    NaN and infinities spread along edges, as they do in a dense softmax over a receiver's senders, and
    nowhere else; in compiled programs, on a GPU and in gradients, ``tiles`` may spread them within a tile.
    ``tiles`` and ``csr`` refuse second derivatives.

    Parameters
    ----------
    graph : AttentionGraph
        Which token attends to which. Two edges between the same tokens are two edges; ``tiles`` refuses them.
    q : Tensor
        Queries [num_dst, h, d].
    k : Tensor
        Keys [num_src, h, d], or fewer heads, each for as many of the queries' (grouped queries).
    v : Tensor
        Values [num_src, h, d_v], with as many heads as keys; ``d_v`` is often ``d``.
    engine : str
        ``tiles``, ``csr``, ``scatter``; ``flex``, PyTorch's FlexAttention, compiled; ``varlen``, its kernel
        for packed sentences on CUDA; or ``"auto"``: see :func:`cost`.
    scale : float, optional
        Of scores, in place of :math:`1 / \sqrt{d}`.
    edge_bias : Tensor, optional
        [E, h], in the order of ``graph.src``: added to the scores (relative positions, ALiBi). It and
        the next two may be float32 where queries are of half precision.
    edge_attr : Tensor, optional
        [E, c], in the order of ``graph.src``. ``csr`` and ``scatter`` take them; ``d_v`` must be ``d``.
    edge_proj : Tensor, optional
        [c, h, d]; given if ``edge_attr`` is.
    dropout : float
        Probability in [0, 1) of dropping a weight; those kept are scaled up. The draws depend on PyTorch's
        seed, not on the engine.

    Returns
    -------
    Tensor
        [num_dst, h, d_v]; zeros for a receiver without in-edges, or whose scores are all minus infinity.

    Raises
    ------
    TypeError
        If a tensor is no floating-point tensor.
    ValueError
        If shapes, dtypes or devices do not fit, ``dropout`` is no probability below one, or the engine is
        unknown, or does not take what is given; the message names one that does.
    """
    check_choice("engine", engine, ["auto", *ENGINES, *KERNELS])
    q, k, v = _check_tensors(graph, scale, q=q, k=k, v=v)
    check_bias(graph, q, edge_bias)
    features = _check_features(graph, q, v, engine, edge_attr, edge_proj)
    keep = None
    if check_probability("dropout", dropout):
        keep = q.new_empty(graph.num_edges, q.shape[1]).bernoulli_(1 - dropout).div_(1 - dropout)
    if engine == "auto" and features:
        engine = "scatter" if in_a_transform() else "csr"
    elif engine == "auto" and suits_varlen(graph, q, v, edge_bias, keep) and not in_a_transform():
        engine = "varlen"
    elif engine == "auto":
        engine = cost(graph, *q.shape[1:]).engine
    if graph.num_edges == 0:
        engine = "scatter"
    with without_autocast(q.device.type):
        output = (ENGINES.get(engine) or KERNELS[engine])(graph, q, k, v, edge_bias, keep, *features)
        if engine not in ("csr", "scatter") and not _finite(output):
            # Tiles multiply what is masked by zero.
            output = csr(graph, q, k, v, edge_bias, keep)
        return output


def _finite(output: Tensor) -> bool:
    """Whether all numbers are finite, asked of a CPU alone: it would halt a GPU or end a compiled program."""
    if output.device.type != "cpu" or torch.compiler.is_compiling() or in_a_transform():
        return True
    return math.isfinite(vector_norm(output.detach(), dtype=torch.promote_types(output.dtype, torch.float32)))


def attention_weights(
    graph: AttentionGraph,
    q: Tensor,
    k: Tensor,
    *,
    scale: float | None = None,
    edge_bias: Tensor | None = None,
    edge_attr: Tensor | None = None,
    edge_proj: Tensor | None = None,
) -> Tensor:
    """Return the attention weights: one per edge and head, [E, h], in the order of ``graph.src``.

    The weights on each receiver's in-edges sum to one. Parameters and errors as in
    :func:`propagate_attention`.
    """
    q, k = _check_tensors(graph, scale, q=q, k=k)
    check_bias(graph, q, edge_bias)
    features = _check_features(graph, q, q, "auto", edge_attr, edge_proj)
    return in_full_precision(edge_softmax)(graph, q, k, edge_bias, *features)


def _check_tensors(graph: AttentionGraph, scale: float | None, **tensors: Tensor) -> list[Tensor]:
    """Return the tensors, scaled and with as many heads as queries have."""
    if not isinstance(graph, AttentionGraph):
        raise TypeError(f"graph must be an AttentionGraph, got {type(graph).__name__}")
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
            hint = remedy(graph, side[-3:], x.shape[:2]) if x.dim() == 3 and len(x) != tokens else ""
            raise ValueError(f"{name} must be [{side}, h, d] = {list(expected)}, got {list(x.shape)}{hint}")
        if x.dtype != q.dtype:
            raise ValueError(f"{name} must have q's dtype {q.dtype}, got {x.dtype}")
        if x.device != graph.device:
            raise ValueError(f"{name} must be on the graph's device {graph.device}, got {x.device}")
    if scale is not None:
        q = q * (check_real("scale", scale) * math.sqrt(q.shape[-1]))
    rest = [x for name, x in tensors.items() if name != "q"]
    return [q, *(x.repeat_interleave(q.shape[1] // heads, 1) if fewer else x for x in rest)]


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


def _check_features(
    graph: AttentionGraph, q: Tensor, v: Tensor, engine: str, attr: Tensor | None, weight: Tensor | None
) -> list[Tensor]:
    if attr is None and weight is None:
        return []
    if attr is None or weight is None:
        raise ValueError("edge_attr and edge_proj go together, got one of them")
    width = len(weight) if isinstance(weight, Tensor) and weight.dim() else 0
    _check_like(q, "edge_proj", weight, (width, *q.shape[1:]), "[c, h, d]")
    _check_like(q, "edge_attr", attr, (graph.num_edges, width), "[E, c]")
    if width == 0:
        return []
    if v.shape[-1] != q.shape[-1]:
        raise ValueError(
            f"attributes of edges need values of the keys' width {q.shape[-1]}, got {v.shape[-1]}"
        )
    if engine not in ("auto", "csr", "scatter"):
        raise ValueError(f"engine {engine!r} takes no attributes of edges: use 'csr', 'scatter' or 'auto'")
    return [attr, weight]
