"""The Transformer's layer on any graph: attention along its edges, then a feed-forward network."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.graph_attention import GraphAttention
from edgewise.graphs import AttentionGraph
from edgewise.validation import check_bool, check_count, check_probability


class GraphTransformerLayer(nn.Module):
    r"""An encoder layer whose tokens attend along a graph (Vaswani et al. 2017, sec. 3; Xiong et al. 2020).

    .. math::
        x \leftarrow x + \mathrm{attention}(\mathrm{LN}(x)), \qquad
        x \leftarrow x + W_2\, \sigma(W_1 \mathrm{LN}(x) + b_1) + b_2

    or, with post-norm, a norm after each sum. Parts are called as in ``nn.TransformerEncoderLayer``, from
    which :func:`edgewise.from_torch` makes one.

    Parameters
    ----------
    dim_model, num_heads, dim_ff : int
        Width of the states, heads, inner width of the feed-forward network.
    dropout : float
        Probability in [0, 1) of dropping a feature of what each of the two adds.
    activation : callable
        :math:`\sigma`, the ReLU if not given.
    norm_first : bool
        Pre-norm, else post-norm.
    edge_dim, engine, device, dtype
        As in :class:`edgewise.GraphAttention`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be; the message says which.
    """

    def __init__(
        self,
        dim_model: int,
        num_heads: int,
        dim_ff: int,
        *,
        dropout: float = 0.0,
        activation: Callable[[Tensor], Tensor] = nn.functional.relu,
        norm_first: bool = True,
        edge_dim: int | None = None,
        engine: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.norm_first, self.activation = check_bool("norm_first", norm_first), activation
        check_probability("dropout", dropout)
        where: Any = {"device": device, "dtype": dtype}
        self.self_attn = GraphAttention(dim_model, num_heads, edge_dim=edge_dim, engine=engine, **where)
        self.norm1, self.norm2 = nn.LayerNorm(dim_model, **where), nn.LayerNorm(dim_model, **where)
        self.linear1 = nn.Linear(dim_model, check_count("dim_ff", dim_ff, 1), **where)
        self.linear2 = nn.Linear(dim_ff, dim_model, **where)
        self.dropout, self.dropout1, self.dropout2 = nn.Dropout(0.0), nn.Dropout(dropout), nn.Dropout(dropout)
        for linear in (self.linear1, self.linear2):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(
        self,
        graph: AttentionGraph,
        x: Tensor,
        *,
        edge_bias: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """States [..., n, dim_model] to states; the rest as in :class:`~edgewise.GraphAttention`."""

        def attend(x: Tensor) -> Tensor:
            return self.dropout1(self.self_attn(graph, x, edge_bias=edge_bias, edge_attr=edge_attr))

        def feed_forward(x: Tensor) -> Tensor:
            return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))

        if self.norm_first:
            x = x + attend(self.norm1(x))
            return x + feed_forward(self.norm2(x))
        x = self.norm1(x + attend(x))
        return self.norm2(x + feed_forward(x))
