"""Layers of PyG as layers of this library."""

from typing import Any

from torch import nn

from edgewise.graph_attention import GraphAttention
from edgewise.interop.torch_modules import copy_linear
from edgewise.validation import check_plain


def from_pyg(conv: Any, engine: str = "auto") -> GraphAttention:
    """Return a layer with the weights of PyG's ``TransformerConv``, equal to it, and in its mode.

    Edges keep their order: ``edge_attr`` is the same; give the graph by
    :meth:`AttentionGraph.from_edge_index`.

    Parameters
    ----------
    conv : TransformerConv
        With or without edge features, skip connection (``root_weight``) and ``concat``.
    engine : str
        How attention is executed.

    Raises
    ------
    TypeError
        If it is no ``TransformerConv``, or one of its maps is quantised, adapted or hooked.
    ValueError
        If it has what this layer has not: a gate (``beta=True``), another sum than PyG's default (``aggr``),
        edges that point the other way (``flow``), or widths that it has not seen yet.
    """
    if type(conv).__name__ != "TransformerConv":
        raise TypeError(f"conv must be a TransformerConv of PyG, got {type(conv).__name__}")
    from torch_geometric.nn import TransformerConv
    from torch_geometric.nn.dense.linear import Linear

    check_plain("conv", conv, TransformerConv)
    if conv.beta:
        raise ValueError("a TransformerConv with beta=True has a gate, which GraphAttention has not")
    sums = type(conv.aggr_module).__name__ == "SumAggregation"
    if not sums or conv.flow != "source_to_target":
        raise ValueError(
            "GraphAttention adds up messages from sources to targets; the TransformerConv has "
            f"aggr={conv.aggr_module} and flow={conv.flow!r}"
        )
    if any(isinstance(p, nn.UninitializedParameter) for p in conv.parameters()):
        raise ValueError("the TransformerConv does not know its widths yet: pass a graph through it first")
    width = conv.out_channels * (conv.heads if conv.concat else 1)
    layer = GraphAttention(
        conv.lin_query.weight.shape[1],
        conv.heads,
        dim_out=width,
        dim_context=conv.lin_key.weight.shape[1],
        edge_dim=conv.edge_dim,
        dropout=conv.dropout,
        output="concat" if conv.concat else "mean",
        skip=conv.root_weight,
        bias=conv.lin_key.bias is not None,
        engine=engine,
        device=conv.lin_key.weight.device,
        dtype=conv.lin_key.weight.dtype,
    )
    pairs = [(layer.query, conv.lin_query), (layer.key, conv.lin_key), (layer.value, conv.lin_value)]
    pairs += [(layer.edge, conv.lin_edge)] if layer.edge is not None else []
    pairs += [(layer.skip, conv.lin_skip)] if layer.skip is not None else []
    for ours, theirs in pairs:
        check_plain("each map of conv", theirs, Linear)
        copy_linear(ours, theirs.weight, theirs.bias)
    return layer.train(conv.training)
