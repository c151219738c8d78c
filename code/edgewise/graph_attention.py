"""Attention on a graph as a layer of anyone's model: projections, attention on edges, output."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from edgewise.graphs import AttentionGraph
from edgewise.propagation.arguments import check_edge_arguments, check_sides
from edgewise.propagation.dense_call import attend_densely, dense_if_quickest
from edgewise.propagation.fields import Fields
from edgewise.propagation.operation import ENGINES, GPU_ENGINES, attend, weigh
from edgewise.propagation.precision import HALF
from edgewise.validation import (
    check_bool,
    check_choice,
    check_count,
    check_floats,
    check_probability,
    check_real,
)

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Where a module keeps its hooks; named, since compilers do not follow ``vars``."""

OUTPUTS = ("project", "concat", "mean")
"""What becomes of the heads: concatenated and projected, concatenated, or their mean."""


class GraphAttention(nn.Module):
    r"""Multi-head attention on the edges of any graph (Vaswani et al. 2017, sec. 3.2; Shi et al. 2021).

    .. math::
        q_j = W_q x_j + b_q, \quad k_i = W_k c_i + b_k, \quad v_i = W_v c_i + b_v, \qquad
        y_j = W_o \sum_{i \to j} w_{ij} v_i + b_o

    with the weights of :func:`edgewise.propagate_attention`, for each head of width ``dim_out / num_heads``
    (``dim_out`` if ``output`` is ``"mean"``). With ``skip``, :math:`W_r x_j + b_r` is added. Senders
    :math:`c` are the receivers themselves, or a context of their own.

    Parameters
    ----------
    dim_model : int
        Width of the receivers' states.
    num_heads : int
        Heads.
    dim_out : int, optional
        Width of the output; ``dim_model`` if not given. Unless ``output`` is ``"mean"``, it must be divisible
        by ``num_heads``.
    dim_context : int, optional
        Width of a context's states; ``dim_model`` if not given.
    num_kv_heads : int, optional
        Heads of keys and values, each for as many heads of queries (grouped queries; Ainslie et al. 2023); as
        many as ``num_heads`` if not given.
    edge_dim : int, optional
        Width of edges' attributes, which are projected, without a bias, and added to keys and values. The
        engines ``csr``, ``scatter`` and ``triton`` take them.
    dropout : float
        Probability in [0, 1) of dropping a weight in training.
    scale : float, optional
        Of scores, in place of one over the root of a head's width.
    output : str
        What becomes of the heads: ``"project"`` concatenates and projects them, ``"concat"`` concatenates
        them, ``"mean"`` averages them.
    skip : bool
        Whether to add a linear map of the receiver's own state.
    bias : bool
        Whether projections have biases.
    engine : str
        How attention is executed; see :func:`edgewise.propagate_attention`.
    device, dtype
        Of the parameters, as of PyTorch's layers.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be; the message says which.
    """

    def __init__(
        self,
        dim_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        dim_context: int | None = None,
        dim_out: int | None = None,
        edge_dim: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        scale: float | None = None,
        output: str = "project",
        skip: bool = False,
        engine: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.dim_model = check_count("dim_model", dim_model, 1)
        self.num_heads = check_count("num_heads", num_heads, 1)
        self.num_kv_heads = check_count(
            "num_kv_heads", num_heads if num_kv_heads is None else num_kv_heads, 1
        )
        if num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads ({num_heads}) must be divisible by num_kv_heads ({num_kv_heads})")
        self.scale = scale if scale is None else check_real("scale", scale)
        self.dim_out = check_count("dim_out", dim_model if dim_out is None else dim_out, 1)
        self.dim_context = check_count("dim_context", dim_model if dim_context is None else dim_context, 1)
        self.edge_dim = None if edge_dim is None else check_count("edge_dim", edge_dim, 1)
        self.dropout = check_probability("dropout", dropout)
        check_choice("output", output, OUTPUTS)
        check_choice("engine", engine, ["auto", *ENGINES, *GPU_ENGINES])
        self.output, self.engine = output, engine
        if output != "mean" and self.dim_out % num_heads:
            name = "dim_model" if dim_out is None else "dim_out"
            raise ValueError(f"{name} ({self.dim_out}) must be divisible by num_heads ({num_heads})")
        inner = self.dim_out * (num_heads if output == "mean" else 1)
        linear = partial(nn.Linear, device=device, dtype=dtype)
        kv_width = inner // num_heads * self.num_kv_heads
        self.query = linear(self.dim_model, inner, check_bool("bias", bias))
        self.key, self.value = (linear(self.dim_context, kv_width, bias) for _ in range(2))
        self.edge = linear(self.edge_dim, inner, False) if self.edge_dim else None
        self.out = linear(inner, self.dim_out, bias) if output == "project" else None
        self.skip = linear(self.dim_model, self.dim_out, bias) if check_bool("skip", skip) else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw each matrix from Glorot's uniform distribution; set biases to zero."""
        for layer in filter(None, (self.query, self.key, self.value, self.edge, self.out, self.skip)):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(
        self,
        graph: AttentionGraph,
        query: Tensor,
        context: Tensor | None = None,
        *,
        edge_bias: Tensor | None = None,
        edge_attr: Tensor | None = None,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Gather along the in-edges of each receiver.

        Parameters
        ----------
        graph : AttentionGraph
            Which token attends to which.
        query : Tensor
            [..., num_dst, dim_model]: states of the receivers; leading dimensions share the graph.
        context : Tensor, optional
            [..., num_src, dim_context]: states of the senders, for a graph between two sets of tokens.
        edge_bias : Tensor, optional
            [E, num_heads], in the order of ``graph.src``: added to the scores.
        edge_attr : Tensor, optional
            [E, edge_dim], in the order of ``graph.src``; needed if ``edge_dim`` was given.
        need_weights : bool
            Whether to return the weights, too, those that dropout has not touched.

        Returns
        -------
        output : Tensor
            [..., num_dst, dim_out]. A receiver without in-edges gets the output of zeros: its bias.
        weights : Tensor
            [..., E, num_heads], if they were asked for.

        Raises
        ------
        TypeError, ValueError
            If something does not fit; the message says what was given and what is allowed.
        """
        map_query, out, skip = self.query, self.out, self.skip  # looked up once, which takes a module long
        check_sides(graph, query, context, (self.dim_model, self.dim_context), map_query)
        senders = query if context is None else context
        if 0 in query.shape[:-2]:  # nobody is there
            y = map_query(query)[..., :1].expand(*query.shape[:-1], self.dim_out)
            return (y, y.new_empty(*query.shape[:-2], graph.num_edges, self.num_heads)) if need_weights else y
        q, k, v = map_query(query), self.key(senders), self.value(senders)
        dropout = self.dropout if self.training else 0.0
        received = None
        if edge_bias is None and edge_attr is None:
            received = self._densely(graph, q, k, v, dropout)
        if received is None or need_weights:
            fields = self._fields(graph, q, k, v, edge_bias, edge_attr)
        if received is None:
            received = self._restore_leading(attend(graph, fields, self.engine, self.scale, dropout), query)
        y = received.mean(-2) if self.output == "mean" else received.flatten(-2)
        y = y if out is None else out(y)
        y = y if skip is None else y + skip(query)
        if not need_weights:
            return y
        return y, self._restore_leading(weigh(graph, fields, self.scale)[..., None], query).squeeze(-1)

    def _densely(
        self, graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor, dropout: float
    ) -> Tensor | None:
        """What receivers get, [*, num_dst, h, d], if one dense call is the shortest way and all is finite."""
        if self.engine not in ("auto", "tiles") or self.edge is not None:
            return None
        form = dense_if_quickest(graph, self.num_heads, dropout)
        if form is None or (q.dim() > 2 and form.sequences > 1 and form.mask is not None):
            return None
        width = q.shape[-1] // self.num_heads
        queries = q.reshape(-1, form.rows, self.num_heads, width)
        keys, values = (x.reshape(-1, form.columns, self.num_kv_heads, width) for x in (k, v))
        received = attend_densely(form, queries, keys, values, self.scale, dropout)
        return None if received is None else received.reshape(*q.shape[:-1], self.num_heads, width)

    def _fields(
        self,
        graph: AttentionGraph,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        edge_bias: Tensor | None,
        edge_attr: Tensor | None,
    ) -> Fields:
        """Split into heads, leading dimensions among them, and check what is given on edges."""
        q, k, v = self._heads(q, self.num_heads), *(self._heads(x, self.num_kv_heads) for x in (k, v))
        times = q.shape[1] // self.num_heads
        attr, proj = self._attributes(edge_attr, q)
        shared = q if times == 1 else q[:, : self.num_heads]
        attr, proj = check_edge_arguments(graph, shared, v, self.engine, edge_bias, attr, proj)
        if times > 1:
            edge_bias = None if edge_bias is None else edge_bias.repeat(1, times)
            proj = None if proj is None else proj.repeat(1, times, 1)
        return Fields(q, k, v, edge_bias, None, attr, proj)

    def _attributes(self, attr: Tensor | None, q: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Attributes of edges, and their projection [c, h, d]."""
        if (attr is None) != (self.edge is None):
            needs = "edge_attr is needed" if attr is None else "it takes no edge_attr"
            raise ValueError(f"the layer was made with edge_dim={self.edge_dim}: {needs}")
        if attr is None or self.edge is None:
            return None, None
        check_floats("edge_attr", attr)
        exact = (torch.float32, q.dtype) if q.dtype in HALF else (q.dtype,)
        attr, proj = (x if x.dtype in exact else x.to(q.dtype) for x in (attr, edge_matrix(self.edge, q)))
        return attr, proj.unflatten(-1, (self.num_heads, -1))

    @staticmethod
    def _heads(x: Tensor, count: int) -> Tensor:
        """[..., n, h * d] to [n, ... times h, d]."""
        heads = x.reshape(*x.shape[:-1], count, x.shape[-1] // count)
        return heads if x.dim() == 2 else heads.flatten(0, -4).movedim(0, 1).flatten(1, 2)

    def _restore_leading(self, x: Tensor, query: Tensor) -> Tensor:
        """[n, ... times h, d] to [..., n, h, d], with the leading dimensions of ``query``."""
        leading = query.shape[:-2]
        return x.unflatten(1, (-1, self.num_heads)).movedim(1, 0).unflatten(0, leading) if leading else x

    def extra_repr(self) -> str:
        """Return the settings, for ``repr``."""
        settings = ("num_heads", "dropout", "output", "engine")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in settings)


def edge_matrix(edge: nn.Module, q: Tensor) -> Tensor:
    """Return what a map of edges multiplies attributes by, [c, h * d]: queries are projected in its place.

    Raises
    ------
    ValueError
        If it is no ``nn.Linear``, as it is, parametrised, or with LoRA; or it has a bias, dropout or hooks.
    """
    adapted: Any = edge
    lora: Any = getattr(edge, "lora_dropout", None)
    linear: Any = edge if lora is None else adapted.get_base_layer()
    kind = type(linear).__mro__[1] if is_parametrized(linear) else type(linear)
    added = [] if lora is None else [*lora.values(), *adapted.lora_A.values(), *adapted.lora_B.values()]
    changed = any(getattr(x, "p", 0) or getattr(x, "bias", None) is not None for x in (linear, *added))
    if (
        kind is not nn.Linear
        or "forward" in linear.__dict__
        or changed
        or any(getattr(x, hooks) for x in (edge, linear, *added) for hooks in HOOKS)
    ):
        raise ValueError(
            "the layer's edge must be an nn.Linear (parametrizations and LoRA are fine) without bias, "
            "dropout or hooks: queries are projected in its place. Pass additive score terms as edge_bias"
        )
    return (
        linear.weight.T
        if lora is None
        else edge(torch.eye(linear.in_features, dtype=q.dtype, device=q.device))
    )
