"""Attention and encoders of ``torch.nn`` on graphs, with their weights."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.graph_attention import GraphAttention
from edgewise.graphs import AttentionGraph
from edgewise.validation import kind_of


class GraphEncoderLayer(nn.TransformerEncoderLayer):
    """An ``nn.TransformerEncoderLayer`` whose tokens attend along a graph; made by :func:`from_torch`."""

    def forward(self, graph: AttentionGraph, x: Tensor, edge_bias: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """States [..., n, d_model] to states; ``edge_bias`` as in :class:`~edgewise.GraphAttention`."""

        def attend(x: Tensor) -> Tensor:
            return self.dropout1(self.self_attn(graph, x, edge_bias=edge_bias))

        if self.norm_first:
            x = x + attend(self.norm1(x))
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + attend(x))
        return self.norm2(x + self._ff_block(x))


class GraphEncoder(nn.TransformerEncoder):
    """An ``nn.TransformerEncoder`` whose tokens attend along a graph; made by :func:`from_torch`."""

    def forward(self, graph: AttentionGraph, x: Tensor, edge_bias: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """States [..., n, d_model] to states; ``edge_bias`` as in :class:`~edgewise.GraphAttention`."""
        for layer in self.layers:
            x = layer(graph, x, edge_bias)
        return x if self.norm is None else self.norm(x)


def from_torch(module: nn.Module, engine: str = "auto") -> Any:
    """Return a module of ``torch.nn`` that attends along a graph, with copies of its weights and in its mode.

    Equal to the module on each sentence by itself, padding and masks left out. It is called with a graph and
    states [..., n, d_model], without a dimension for padded sentences.

    Parameters
    ----------
    module : nn.MultiheadAttention, nn.TransformerEncoderLayer or nn.TransformerEncoder
        The first becomes a :class:`~edgewise.GraphAttention`; the others keep everything but their attention.
    engine : str
        How attention is executed.

    Raises
    ------
    TypeError
        If it is none of these.
    ValueError
        If it has what ``GraphAttention`` has not: ``add_bias_kv``, ``add_zero_attn``, or keys and values of
        different widths.
    """
    if type(module) is nn.MultiheadAttention:
        return _attention(module, engine)
    if type(module) is nn.TransformerEncoderLayer:
        new: Any = copy.deepcopy(module)
        new.self_attn, new.__class__ = _attention(module.self_attn, engine), GraphEncoderLayer
        return new
    if type(module) is nn.TransformerEncoder:
        new = copy.deepcopy(module)
        new.layers = nn.ModuleList(from_torch(layer, engine) for layer in module.layers)
        new.__class__ = GraphEncoder
        return new
    raise TypeError(
        "module must be an nn.MultiheadAttention, nn.TransformerEncoderLayer or nn.TransformerEncoder, "
        f"got {kind_of(module)}"
    )


def _attention(module: nn.MultiheadAttention, engine: str) -> GraphAttention:
    if module.bias_k is not None or module.add_zero_attn or module.kdim != module.vdim:
        raise ValueError(
            "GraphAttention has no add_bias_kv or add_zero_attn, and one width of keys and values; got "
            f"kdim={module.kdim}, vdim={module.vdim}"
        )
    weights: tuple[Tensor, ...] = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    weights = weights if module.in_proj_weight is None else module.in_proj_weight.chunk(3)
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    layer = GraphAttention(
        module.embed_dim,
        module.num_heads,
        dim_context=module.kdim,
        bias=module.in_proj_bias is not None,
        dropout=module.dropout,
        engine=engine,
        device=module.out_proj.weight.device,
        dtype=module.out_proj.weight.dtype,
    )
    parts: list[Any] = [*zip((layer.query, layer.key, layer.value), weights, biases, strict=True)]
    for linear, *given in [*parts, (layer.out, module.out_proj.weight, module.out_proj.bias)]:
        take(linear, *given)
    return layer.train(module.training)


def to_torch(module: nn.Module) -> Any:
    """Return the module of ``torch.nn`` that computes the same on complete graphs: :func:`from_torch` undone.

    It takes what our layers take, the batch first: ``batch_first=True``.

    Parameters
    ----------
    module : GraphAttention, or what ``from_torch`` returns
        Its weights are copied, its mode is kept.

    Raises
    ------
    TypeError
        If it is none of these.
    ValueError
        If it has what ``nn.MultiheadAttention`` has not, such as grouped heads or attributes of edges.
    """
    if isinstance(module, GraphEncoder | GraphEncoderLayer):
        new: Any = copy.deepcopy(module)
        if isinstance(module, GraphEncoder):
            new.layers, new.__class__ = nn.ModuleList(map(to_torch, module.layers)), nn.TransformerEncoder
        else:
            new.self_attn, new.__class__ = to_torch(module.self_attn), nn.TransformerEncoderLayer
        return new
    if not isinstance(module, GraphAttention):
        raise TypeError(f"module must be a GraphAttention or come from from_torch, got {kind_of(module)}")
    grouped = module.num_kv_heads != module.num_heads or module.dim_out != module.dim_model
    extra = module.scale is not None or module.edge is not None or module.own is not None
    if grouped or extra or module.out is None:
        raise ValueError(f"nn.MultiheadAttention has no such layer as {module}")
    width, first = module.dim_context, module.query
    new = nn.MultiheadAttention(
        module.dim_model, module.num_heads, module.dropout, first.bias is not None, kdim=width, vdim=width,
        batch_first=True, device=first.weight.device, dtype=first.weight.dtype,
    )  # fmt: skip
    parts = (module.query, module.key, module.value)
    weights = new.in_proj_weight
    weights = (
        (new.q_proj_weight, new.k_proj_weight, new.v_proj_weight) if weights is None else weights.chunk(3)
    )
    for theirs, ours in zip(weights, parts, strict=True):
        theirs.data.copy_(ours.weight)
    if new.in_proj_bias is not None:
        new.in_proj_bias.data.copy_(torch.cat([part.bias for part in parts]))
    for name, x in new.named_parameters(recurse=False):
        part = {"k": module.key, "v": module.value}.get(name[0], first)
        x.requires_grad_((first.bias if name.endswith("bias") else part.weight).requires_grad)
    take(new.out_proj, module.out.weight, module.out.bias)
    return new.train(module.training)


def take(linear: nn.Linear, weight: Tensor, bias: Tensor | None) -> None:
    """Copy what a linear map of another layer has, and whether it is learned."""
    for ours, theirs in ((linear.weight, weight), (linear.bias, bias)):
        if theirs is not None:
            ours.data.copy_(theirs)
            ours.requires_grad_(theirs.requires_grad)
