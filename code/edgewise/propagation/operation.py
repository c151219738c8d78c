"""The one operation: arguments are checked, an engine is chosen; what is not finite comes from ``csr``."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph
from edgewise.graphs.graph_forms import check_graph
from edgewise.propagation.arguments import check_edge_arguments, check_scale, check_tensors
from edgewise.propagation.csr.csr_engine import csr
from edgewise.propagation.dense_call import all_finite, attend_densely, dense_call_of, dense_if_quickest
from edgewise.propagation.engine_choice import engine_for
from edgewise.propagation.fields import Engine, Fields
from edgewise.propagation.precision import HALF, in_a_transform, run_in_float32, without_autocast
from edgewise.propagation.scatter import edge_softmax, scatter
from edgewise.propagation.tiles.tiles_engine import tiles
from edgewise.propagation.triton.triton_engine import triton
from edgewise.propagation.varlen import varlen
from edgewise.validation import InputError, check_bool, check_choice, check_count, check_probability

ENGINES: dict[str, Engine] = {"scatter": scatter, "csr": csr, "tiles": tiles}
"""How the sum over edges is executed, on any graph."""

GPU_ENGINES: dict[str, Engine] = {"triton": triton, "varlen": varlen}
"""On a GPU alone; ``varlen`` takes packed sequences only, without biases and dropout."""


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
    return_lse: bool = False,
) -> Any:
    r"""Give each receiver the softmax-weighted sum of its senders' values, head by head.

    .. math::
        \mathrm{wv}_j = \sum_{i \to j} w_{ij} \, v_i, \qquad
        w_{ij} = \frac{\exp(q_j^\top k_i / \sqrt{d} + b_{ij})}
                      {\sum_{i' \to j} \exp(q_j^\top k_{i'} / \sqrt{d} + b_{i'j})}

    With attributes :math:`a` of edges and a projection :math:`W`, :math:`W^\top a_{ij}` is added to key and
    value that receiver :math:`j` gets from :math:`i` (Shi et al. 2021, eq. 3 and 4).

    NaN and infinities spread along edges, as they do in a dense softmax over a receiver's senders, and
    nowhere else; in compiled programs, on a GPU and in gradients, ``tiles`` may spread them within a tile.
    Second derivatives come from ``scatter``; the others refuse them.

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
        ``tiles``, ``csr``, ``scatter``; ``triton``, kernels of our own on CUDA; ``varlen``, PyTorch's for
        packed sentences there; or ``"auto"``: see :func:`choice`.
    scale : float, optional
        Of scores, in place of :math:`1 / \sqrt{d}`.
    edge_bias : Tensor, optional
        [E, h], in the order of ``graph.src``: added to the scores (relative positions, ALiBi). It and
        the next two may be float32 where queries are of half precision.
    edge_attr : Tensor, optional
        [E, c], in the order of ``graph.src``. Not for ``tiles`` and ``varlen``; ``d_v`` must be ``d``.
    edge_proj : Tensor, optional
        [c, h, d]; given if ``edge_attr`` is.
    dropout : float
        Probability in [0, 1) of dropping a weight; those kept are scaled up. The draws depend on PyTorch's
        seed, not on the engine; but ``auto`` and ``tiles`` let PyTorch draw for sequences of one length with
        more than 2**24 weights.
    return_lse : bool
        Whether to return the log-sum-exp of each receiver's scores, too; not for ``varlen``.

    Returns
    -------
    output : Tensor
        [num_dst, h, d_v]; zeros for a receiver without in-edges, or whose scores are all minus infinity.
    lse : Tensor
        [num_dst, h], if it is wanted, float32 if the inputs are half precision; minus infinity for such a
        receiver. See :func:`merge_parts` and :func:`add_sinks`.

    Raises
    ------
    TypeError
        If a tensor is no floating-point tensor.
    ValueError
        If shapes, dtypes or devices do not fit, ``dropout`` is no probability below one, or the engine is
        unknown, or does not take what is given; the message names one that does.
    """
    check_choice("engine", engine, ["auto", *ENGINES, *GPU_ENGINES])
    q, k, v = check_tensors(graph, q=q, k=k, v=v)
    attr, proj = check_edge_arguments(graph, q, v, engine, edge_bias, edge_attr, edge_proj)
    fields = Fields(q, k, v, edge_bias, None, attr, proj)
    check_probability("dropout", dropout)
    return attend(graph, fields, engine, check_scale(scale), dropout, check_bool("return_lse", return_lse))


def attend(
    graph: AttentionGraph,
    fields: Fields,
    engine: str = "auto",
    scale: float | None = None,
    dropout: float = 0.0,
    with_lse: bool = False,
) -> Any:
    """:func:`propagate_attention` of what has been checked: [num_dst, h, d_v]."""
    q, k, v, bias, _, attr, _ = fields
    plain = engine in ("auto", "tiles") and bias is None and attr is None and not with_lse
    if plain and (form := dense_if_quickest(graph, q.shape[1], dropout)):
        q = q.view(form.sequences, form.rows, *q.shape[1:])
        k, v = (x.view(form.sequences, form.columns, *x.shape[1:]) for x in (k, v))
        if (output := attend_densely(form, q, k, v, scale, dropout)) is not None:
            return output.flatten(0, 1)
        engine = "csr"
    dtype = fields.q.dtype
    if dropout:
        wide = torch.promote_types(dtype, torch.float32)
        factors = fields.q.new_empty(graph.num_edges, fields.q.shape[1], dtype=wide)
        fields = fields._replace(factors=factors.bernoulli_(1 - dropout).div_(1 - dropout))
    if with_lse:
        output, lse = _run_engine(graph, fields, engine, scale, with_lse)
        return output.to(dtype), lse
    return _run_engine(graph, fields, engine, scale).to(dtype)


def _run_engine(
    graph: AttentionGraph, fields: Fields, engine: str, scale: float | None = None, with_lse: bool = False
) -> Any:
    if engine not in ("auto", "scatter") and in_a_transform():
        raise ValueError(f"engine {engine!r} is not for transforms and forward mode: use 'scatter'")
    if engine == "auto":
        engine = engine_for(graph, fields)
        if with_lse and (engine == "varlen" or torch.compiler.is_compiling()):
            engine = "csr"
    if engine != "triton":
        fields = _with_as_many_heads(fields)
        engine = engine if graph.num_edges else "scatter"
    with without_autocast(fields.q.device.type):
        if engine == "varlen" and with_lse:
            raise InputError("engine 'varlen' returns no log-sum-exp: use 'auto'")
        if engine == "varlen":
            return varlen(graph, fields, scale)
        fields = _scaled(fields, scale)
        execute, options = ENGINES.get(engine) or GPU_ENGINES[engine], {"with_lse": True} if with_lse else {}
        output = execute(graph, fields, **options)
        if engine == "tiles" and not _finite(fields, output[0] if with_lse else output):
            output = csr(graph, fields, **options)
        return output


def merge_parts(outputs: Sequence[Tensor], lses: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Put together what receivers get along parts of their edges, as along all of them at once.

    Parts are graphs over the same receivers, say pieces of a cache; an edge in two of them counts twice.

    Parameters
    ----------
    outputs, lses : sequence of Tensor
        Of each part, as :func:`propagate_attention` returns them: [num_dst, h, d_v] and [num_dst, h].

    Returns
    -------
    output, lse : Tensor
        Of all edges.
    """
    stacked = torch.stack([*lses])
    nothing = (stacked == -torch.inf).all(0)  # to attend to
    shares = stacked.masked_fill(nothing, 0.0).softmax(0).masked_fill(nothing, 0.0)[..., None]
    output = (shares * torch.stack([*outputs])).sum(0).to(outputs[0].dtype)
    lse = stacked.masked_fill(nothing, 0.0).logsumexp(0)
    return output, lse.masked_fill(nothing, -torch.inf)


def add_sinks(output: Tensor, lse: Tensor, sinks: Tensor) -> Tensor:
    """Let each head also attend to a sink: a learned score, a value of zero (gpt-oss; Xiao et al. 2024).

    Parameters
    ----------
    output, lse : Tensor
        As :func:`propagate_attention` returns them.
    sinks : Tensor
        [h]: the learned scores.
    """
    return output * torch.sigmoid(lse - sinks).to(output.dtype)[..., None]


def _with_as_many_heads(fields: Fields) -> Fields:
    """Repeat heads of keys and values for as many as queries have."""
    group = fields.q.shape[1] // fields.k.shape[1]
    if group == 1:
        return fields
    return fields._replace(k=fields.k.repeat_interleave(group, 1), v=fields.v.repeat_interleave(group, 1))


def _scaled(fields: Fields, scale: float | None) -> Fields:
    """Multiply queries so that engines, which divide by the root of d, get ``scale``; half in float32."""
    factor = 1.0 if scale is None else scale * math.sqrt(fields.q.shape[-1])
    if math.isclose(factor, 1, rel_tol=1e-12):
        return fields
    fields = fields.to(torch.float32) if fields.q.dtype in HALF else fields
    return fields._replace(q=factor * fields.q)


def prepare(graph: AttentionGraph, num_heads: int, head_dim: int, edge_dim: int = 0) -> AttentionGraph:
    """Make what ``engine="auto"`` needs of a graph, by attention on zeros; return the graph, which keeps it.

    For a graph that serves many passes, and before a module is compiled or exported; ``edge_dim`` is that of
    attributes. For a prepared graph ``auto`` takes what is fastest once all is made, for a new one of few
    edges what needs the least. Pickles take along what ``csr`` needs of edges in lists; prepare other copies
    anew. Of states [..., n, d] leading dimensions count as heads.
    """
    check_graph(graph)
    heads, width = check_count("num_heads", num_heads, 1), check_count("head_dim", head_dim, 1)
    check_count("edge_dim", edge_dim, 0)
    q, k = (torch.zeros(n, heads, width, device=graph.device) for n in (graph.num_dst, graph.num_src))
    attr = proj = None
    if edge_dim:
        attr, proj = q.new_zeros(graph.num_edges, edge_dim), q.new_zeros(edge_dim, heads, width)
    bias = q.new_zeros(graph.num_edges, heads) if not graph.in_intervals and attr is None else None
    before = "prepared" in graph._known
    graph._known["prepared"] = True
    try:
        with torch.no_grad():
            for engine in ("auto", "tiles") if attr is None and dense_call_of(graph) else ("auto",):
                _run_engine(graph, Fields(q, k, k, bias, None, attr, proj), engine)
    except BaseException:
        if not before:
            del graph._known["prepared"]
        raise
    return graph


def _finite(fields: Fields, output: Tensor) -> bool:
    """Whether all numbers are finite, asked of a CPU alone: it would halt a GPU or end a compiled program.

    Biases of -inf are fine; +inf and NaN show up in the output, except in half precision.
    """
    if fields.q.device.type != "cpu" or torch.compiler.is_compiling() or in_a_transform():
        return True
    if fields.bias is not None and fields.q.dtype in HALF and bool((fields.bias == torch.inf).any()):
        return False
    return all_finite(fields.q, fields.k, output)


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
    q, k = check_tensors(graph, q=q, k=k)
    attr, proj = check_edge_arguments(graph, q, q, "auto", edge_bias, edge_attr, edge_proj)
    return weigh(graph, Fields(q, k, k, edge_bias, None, attr, proj), check_scale(scale))


def weigh(graph: AttentionGraph, fields: Fields, scale: float | None = None) -> Tensor:
    """:func:`attention_weights` of what has been checked: [E, h]."""
    with without_autocast(fields.q.device.type):
        weights = run_in_float32(edge_softmax)(graph, _scaled(_with_as_many_heads(fields), scale))
    return weights.to(fields.q.dtype)
