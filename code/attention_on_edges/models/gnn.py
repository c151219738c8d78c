"""Chapter 3: graph neural networks; the Transformer's is ``edgewise.GraphTransformerLayer``.

Every layer passes messages along the edges of an :class:`~edgewise.graphs.AttentionGraph`. They differ in the
message, in the aggregation (:func:`aggregate`) and in the update.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from edgewise.graphs import AttentionGraph
from edgewise.propagation import propagate_attention, softmax_over_in_edges
from edgewise.propagation.precision import HALF
from edgewise.validation import check_choice, check_count, check_real

AGGREGATORS = ("sum", "mean", "max", "attention")
"""Ways to combine the messages that reach a node."""


def aggregate(
    graph: AttentionGraph,
    messages: Tensor,
    how: str = "sum",
    query: Tensor | None = None,
    key: Tensor | None = None,
) -> Tensor:
    r"""Aggregate the senders' messages at each receiver, head by head.

    With :math:`m_i` for the messages of receiver :math:`j`'s :math:`n_j` senders: :math:`\sum_i m_i`,
    :math:`\frac{1}{n_j} \sum_i m_i`, the elementwise :math:`\max_i m_i`, or :math:`\sum_i w_{ij} m_i` with
    the weights of scaled dot-product attention.

    Parameters
    ----------
    graph : AttentionGraph
        Which node attends to which.
    messages : Tensor
        [num_src, h, d_k]: each sender's message, the same to all its receivers.
    how : str
        One of ``AGGREGATORS``.
    query, key : Tensor, optional
        [num_dst, h, d_k] and [num_src, h, d_k]; for attention only.

    Returns
    -------
    Tensor
        [num_dst, h, d_k]; zeros for a receiver without in-edges, whatever ``how`` is.

    Raises
    ------
    ValueError
        If ``how`` is unknown, there is not a message per sender, or attention lacks queries or keys.
    """
    check_choice("how", how, AGGREGATORS)
    if how == "attention":
        if query is None or key is None:
            raise ValueError("attention needs query and key, got None")
        return propagate_attention(graph, query, key, messages)
    _check_rows(graph, "messages", messages)
    return reduce_edges(graph, messages.index_select(0, graph.src), how)


def reduce_edges(graph: AttentionGraph, sent: Tensor, how: str = "sum") -> Tensor:
    """Reduce messages on edges, [E, h, d_k], at the receivers by sum, mean or max: [num_dst, h, d_k]."""
    check_choice("how", how, ["sum", "mean", "max"])
    if how == "mean" and sent.dtype in HALF:  # the sum may be too large, or stall
        return reduce_edges(graph, sent.float(), how).to(sent.dtype)
    silence = sent.new_zeros(graph.num_dst, *sent.shape[1:])
    if how == "max":
        receiver = graph.dst[:, None, None].expand_as(sent)
        return silence.scatter_reduce(0, receiver, sent, "amax", include_self=False)
    total = silence.index_add(0, graph.dst, sent)
    if how == "sum":
        return total
    in_degree = torch.bincount(graph.dst, minlength=graph.num_dst).clamp(min=1)
    return total / in_degree[:, None, None]


class GNNLayer(nn.Module):
    r"""The basic graph layer: own state and aggregated neighbours, each projected, summed and activated.

    .. math::
        x_j' = \sigma\Big( U x_j + \mathrm{aggregate}_{i \to j}\, W_v x_i \Big)

    With ``how="sum"`` this is the layer of Joshi (2020), without a bias; the GCN of Kipf and Welling (2017)
    has one matrix and divides by degrees. With attention, weights come from :math:`W_q x_j` and
    :math:`W_k x_i`. A node without in-edges gets :math:`\sigma(U x_j)`; :math:`\sigma` is the ReLU.

    Parameters
    ----------
    dim_in, dim_out : int
        Widths of the states before and after.
    num_heads : int
        How many parts a message is cut into; ``dim_out`` must be divisible by it.
    how : str
        One of ``AGGREGATORS``.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be; the message says which.
    """

    def __init__(self, dim_in: int, dim_out: int, num_heads: int = 1, how: str = "sum"):
        super().__init__()
        self.num_heads, self.how = _check_heads(dim_out, num_heads), how
        check_choice("how", how, AGGREGATORS)
        self.own, self.value = _matrix(dim_in, dim_out), _matrix(dim_in, dim_out)  # U, W_v
        if how == "attention":
            self.query, self.key = _matrix(dim_in, dim_out), _matrix(dim_in, dim_out)  # W_q, W_k

    def forward(self, graph: AttentionGraph, x: Tensor) -> Tensor:
        """States [n, dim_in] to states [n, dim_out]."""
        _check_states(graph, x)
        maps = (self.value, self.query, self.key) if self.how == "attention" else (self.value,)
        fields = [f(x).unflatten(-1, (self.num_heads, -1)) for f in maps]  # [n, h, d_k]
        total = aggregate(graph, fields[0], self.how, *fields[1:])
        return (self.own(x) + total.flatten(-2)).relu()


class GATLayer(nn.Module):
    r"""Graph attention with an additive score (Veličković et al. 2018, eq. 1 to 5).

    .. math::
        s_{ij} = \mathrm{LeakyReLU}\big(a^\top W_v x_j + b^\top W_v x_i\big), \qquad
        x_j' = \sum_{i \to j} \mathrm{softmax}_i(s_{ij})\, W_v x_i + c

    for each head; heads are concatenated. The paper's vector is the concatenation of :math:`a` and :math:`b`.
    A node without in-edges gets the bias :math:`c`; the paper's graphs have self-loops.

    Parameters
    ----------
    dim_in, dim_out : int
        Widths of the states before and after, all heads together.
    num_heads : int
        ``dim_out`` must be divisible by it.
    negative_slope : float
        Of the LeakyReLU.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be; the message says which.
    """

    def __init__(self, dim_in: int, dim_out: int, num_heads: int = 1, negative_slope: float = 0.2):
        super().__init__()
        self.negative_slope = check_real("negative_slope", negative_slope)
        self.num_heads = _check_heads(dim_out, num_heads)
        self.value = _matrix(dim_in, dim_out)  # W_v
        shape = (num_heads, dim_out // num_heads)
        self.as_receiver, self.as_sender = (nn.Parameter(torch.empty(shape)) for _ in range(2))  # a, b
        self.bias = nn.Parameter(torch.zeros(dim_out))  # c
        for vector in (self.as_receiver, self.as_sender):
            nn.init.xavier_normal_(vector)

    def score(self, graph: AttentionGraph, value: Tensor) -> Tensor:
        """Values [n, h, d_k] to scores on edges [E, h]."""
        receiving, sending = (value * self.as_receiver).sum(-1), (value * self.as_sender).sum(-1)  # [n, h]
        return leaky_relu(receiving[graph.dst] + sending[graph.src], self.negative_slope)

    def forward(self, graph: AttentionGraph, x: Tensor) -> Tensor:
        """States [n, dim_in] to states [n, dim_out]."""
        _check_states(graph, x)
        value = self.value(x).unflatten(-1, (self.num_heads, -1))  # [n, h, d_k]
        weight = softmax_over_in_edges(graph, self.score(graph, value))
        total = reduce_edges(graph, weight[..., None] * value.index_select(0, graph.src))
        return total.flatten(-2) + self.bias


def _matrix(dim_in: int, dim_out: int) -> nn.Linear:
    linear = nn.Linear(check_count("dim_in", dim_in, 1), check_count("dim_out", dim_out, 1), bias=False)
    nn.init.xavier_uniform_(linear.weight)
    return linear


def _check_heads(dim_out: int, num_heads: int) -> int:
    check_count("num_heads", num_heads, 1)
    if check_count("dim_out", dim_out, 1) % num_heads:
        raise ValueError(f"dim_out ({dim_out}) must be divisible by num_heads ({num_heads})")
    return num_heads


def _check_states(graph: AttentionGraph, x: Tensor) -> None:
    if not graph.self_attention:
        raise ValueError("the layer needs a graph over one set of nodes, got one between two sets")
    _check_rows(graph, "x", x)


def _check_rows(graph: AttentionGraph, name: str, x: Tensor) -> None:
    if len(x) != graph.num_src:
        raise ValueError(f"{name} must have a row per node ({graph.num_src}), got {list(x.shape)}")
