"""Attention and encoders of ``torch.nn`` on graphs, with their weights."""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.graph_attention import GraphAttention
from edgewise.graphs import AttentionGraph
from edgewise.transformer_layer import GraphTransformerLayer
from edgewise.validation import check_plain, kind_of

PARTS = ("linear1", "linear2", "norm1", "norm2", "dropout", "dropout1", "dropout2", "activation")
"""What a layer has besides its attention, here as there."""


class GraphEncoder(nn.Module):
    """An ``nn.TransformerEncoder`` whose tokens attend along a graph; made by :func:`from_torch`."""

    def __init__(self, layers: Iterable[nn.Module], norm: nn.Module | None):
        super().__init__()
        self.layers, self.norm = nn.ModuleList(layers), norm

    def forward(self, graph: AttentionGraph, x: Tensor, *, edge_bias: Tensor | None = None) -> Tensor:
        """States [..., n, d_model] to states; ``edge_bias`` as in :class:`~edgewise.GraphAttention`."""
        for layer in self.layers:
            x = layer(graph, x, edge_bias=edge_bias)
        return x if self.norm is None else self.norm(x)


def from_torch(module: nn.Module, engine: str = "auto") -> Any:
    """Return a module of ``torch.nn`` that attends along a graph, with copies of its weights and in its mode.

    Equal to the module on each sentence by itself, padding and masks left out. It is called with a graph and
    states [..., n, d_model], without a dimension for padded sentences.

    Parameters
    ----------
    module : nn.MultiheadAttention, nn.TransformerEncoderLayer or nn.TransformerEncoder
        They become :class:`~edgewise.GraphAttention`, :class:`~edgewise.GraphTransformerLayer` and layers.
    engine : str
        How attention is executed.

    Raises
    ------
    TypeError
        If it is none of these, or has been changed: a projection is quantised, adapted or hooked.
    ValueError
        If it has what ``GraphAttention`` has not: ``add_bias_kv``, ``add_zero_attn``, or keys and values of
        different widths.
    """
    if type(module) is nn.MultiheadAttention:
        return _attention(module, engine)
    if type(module) is nn.TransformerEncoderLayer:
        check_plain("module", module, nn.TransformerEncoderLayer)
        sizes = module.self_attn.embed_dim, module.self_attn.num_heads, 1  # the rest comes whole
        layer = GraphTransformerLayer(*sizes, norm_first=module.norm_first)
        layer.self_attn = _attention(module.self_attn, engine)
        return _with_parts(layer, module)
    if type(module) is nn.TransformerEncoder:
        check_plain("module", module, nn.TransformerEncoder)
        made = {layer: from_torch(layer, engine) for layer in module.layers}  # one may be there twice
        encoder = GraphEncoder((made[layer] for layer in module.layers), copy.deepcopy(module.norm))
        encoder.training = module.training
        return encoder
    raise TypeError(
        "module must be an nn.MultiheadAttention, nn.TransformerEncoderLayer or nn.TransformerEncoder, "
        f"got {kind_of(module)}"
    )


def _attention(module: nn.MultiheadAttention, engine: str) -> GraphAttention:
    check_plain("module", module, nn.MultiheadAttention)
    check_plain("out_proj", module.out_proj, nn.modules.linear.NonDynamicallyQuantizableLinear)
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
    for linear, *weight_and_bias in [*parts, (layer.out, module.out_proj.weight, module.out_proj.bias)]:
        copy_linear(linear, *weight_and_bias)
    return layer.train(module.training)


def to_torch(module: nn.Module) -> Any:
    """Return the module of ``torch.nn`` that computes the same on complete graphs: :func:`from_torch` undone.

    It takes what our layers take, the batch first: ``batch_first=True``.

    Parameters
    ----------
    module : GraphAttention, GraphTransformerLayer, or what ``from_torch`` returns
        Its weights are copied, its mode is kept.

    Raises
    ------
    TypeError
        If it is none of these, or a projection is quantised, adapted or hooked.
    ValueError
        If it has what ``nn.MultiheadAttention`` has not, such as grouped heads or attributes of edges.
    """
    if isinstance(module, GraphTransformerLayer):
        check_plain("module", module, GraphTransformerLayer)
        sizes = module.self_attn.dim_model, module.self_attn.num_heads, 1  # the rest comes whole
        options: Any = {
            "activation": module.activation,
            "norm_first": module.norm_first,
        }  # its fast path asks
        layer = nn.TransformerEncoderLayer(*sizes, batch_first=True, **options)
        layer.self_attn = to_torch(module.self_attn)
        return _with_parts(layer, module)
    if isinstance(module, GraphEncoder):
        check_plain("module", module, GraphEncoder)
        made = {layer: to_torch(layer) for layer in module.layers}
        layers = [made[layer] for layer in module.layers]
        norm = copy.deepcopy(module.norm)
        placeholder: Any = nn.Identity()
        encoder = nn.TransformerEncoder(placeholder, 0, norm, enable_nested_tensor=False)
        encoder.layers, encoder.num_layers = nn.ModuleList(layers), len(layers)
        encoder.training = module.training
        return encoder
    if not isinstance(module, GraphAttention):
        raise TypeError(f"module must be a GraphAttention or come from from_torch, got {kind_of(module)}")
    check_plain("module", module, GraphAttention)
    grouped = module.num_kv_heads != module.num_heads or module.dim_out != module.dim_model
    extra = module.scale is not None or module.edge is not None or module.skip is not None
    if grouped or extra or module.out is None:
        raise ValueError(f"nn.MultiheadAttention has no such layer as {module}")
    for name in ("query", "key", "value", "out"):
        check_plain(name, getattr(module, name))
    width, first = module.dim_context, module.query
    new: Any = nn.MultiheadAttention(
        module.dim_model, module.num_heads, module.dropout, first.bias is not None, kdim=width, vdim=width,
        batch_first=True, device=first.weight.device, dtype=first.weight.dtype,
    )  # fmt: skip
    parts = (module.query, module.key, module.value)
    groups: Any = [[x.bias for x in parts], [x.weight for x in parts][: 3 * (new.in_proj_weight is not None)]]
    if any(len({(x.dtype, x.requires_grad) for x in xs if x is not None}) > 1 for xs in groups):
        raise ValueError(
            "query, key and value become one tensor: they must all be learned or none, in one dtype"
        )
    apart = new.q_proj_weight, new.k_proj_weight, new.v_proj_weight
    weights = apart if new.in_proj_weight is None else new.in_proj_weight.chunk(3)
    for theirs, ours in zip(weights, parts, strict=True):
        theirs.data.copy_(ours.weight)
    if new.in_proj_bias is not None:
        new.in_proj_bias.data.copy_(torch.cat([part.bias for part in parts]))
    for name, x in new.named_parameters(recurse=False):
        part = {"k": module.key, "v": module.value}.get(name[0], first)
        x.requires_grad_((first.bias if name.endswith("bias") else part.weight).requires_grad)
    copy_linear(new.out_proj, module.out.weight, module.out.bias)
    return new.train(module.training)


def _with_parts(new: nn.Module, old: nn.Module) -> nn.Module:
    for name in PARTS:
        setattr(new, name, copy.deepcopy(getattr(old, name)))
    new.training = old.training
    return new


def copy_linear(linear: nn.Linear, weight: Tensor, bias: Tensor | None) -> None:
    """Copy what a linear map of another layer has, and whether it is learned."""
    for ours, theirs in ((linear.weight, weight), (linear.bias, bias)):
        if theirs is not None:
            ours.data.copy_(theirs)
            ours.requires_grad_(theirs.requires_grad)
