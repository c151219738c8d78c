"""Chapter 1: scaled dot-product attention and multi-head attention, dense."""

import math

import torch
from torch import Tensor, nn

from edgewise.validation import check_choice, check_count, is_plain


def attention_scores(query: Tensor, key: Tensor) -> Tensor:
    r"""Score each query against each key: :math:`Q K^\top / \sqrt{d_k}` (Vaswani et al. 2017, eq. 1).

    Parameters
    ----------
    query : Tensor
        [..., n, d_k]
    key : Tensor
        [..., m, d_k]

    Returns
    -------
    Tensor
        [..., n, m]; float32 of float16.

    Raises
    ------
    ValueError
        If the widths differ.
    """
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"query and key must have one width, got {query.shape[-1]} and {key.shape[-1]}")
    if query.dtype == key.dtype == torch.float16:  # large products would overflow
        query, key = query.float(), key.float()
    return query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])


def dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention: a weighted mean of the values for each query.

    Parameters
    ----------
    query : Tensor
        [..., n, d_k]
    key : Tensor
        [..., m, d_k]
    value : Tensor
        [..., m, d_v]
    mask : Tensor, optional
        bool, broadcast to [..., n, m]; True where a query may attend. A query that may attend to nothing
        gets zeros.

    Returns
    -------
    context : Tensor
        [..., n, d_v], each row a weighted mean of the values.
    weights : Tensor
        [..., n, m], each row a probability distribution over the keys, or zeros where all are masked.

    Raises
    ------
    TypeError
        If ``mask`` is not bool.
    ValueError
        If queries and keys differ in width, keys and values in length, or ``mask`` does not fit the scores.
    """
    return attend(attention_scores(query, key), value, mask)


def attend(scores: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Turn any scores [..., n, m] into weights, and return the weighted sum of values [..., m, d_v].

    ``mask``, results and errors as in :func:`dot_product_attention`. A score of minus infinity has weight 0.
    """
    if value.shape[-2] != scores.shape[-1]:
        raise ValueError(f"key and value must have one length, got {scores.shape[-1]} and {value.shape[-2]}")
    weights = masked_softmax(scores, mask)
    return weights.to(value.dtype) @ value, weights


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the last axis where ``mask`` is true, zero elsewhere; a fully masked row is all zeros.

    Where a score is minus infinity is masked, too.

    Raises
    ------
    TypeError
        If ``mask`` is not bool.
    ValueError
        If it cannot be broadcast to the scores.
    """
    there = scores != -math.inf
    if mask is not None:
        _check_mask(scores, mask)
        there = there & mask
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~there, lowest).softmax(-1).masked_fill(~there, 0.0)


def _check_mask(scores: Tensor, mask: Tensor) -> None:
    kind = getattr(mask, "dtype", type(mask).__name__)
    if kind != torch.bool:
        raise TypeError(f"mask must be bool (True = may attend), got {kind}")
    try:
        mask.expand_as(scores)
    except RuntimeError:
        raise ValueError(f"mask must fit the scores {list(scores.shape)}, got {list(mask.shape)}") from None


class MultiHeadAttention(nn.Module):
    """Several attention heads in parallel, each in its own subspace (Vaswani et al. 2017, sec. 3.2.2).

    The graph model calls :meth:`get` before message passing and :meth:`get_o` after it; :meth:`forward` is
    the dense version of the whole.

    Parameters
    ----------
    h : int
        Number of heads.
    dim_model : int
        Width of a token's state; head width is ``d_k = dim_model // h``.

    Raises
    ------
    TypeError, ValueError
        If an argument is not a positive integer or ``dim_model`` is not divisible by ``h``.
    """

    def __init__(self, h: int, dim_model: int):
        super().__init__()
        self.h = check_count("h", h, 1)
        self.dim_model = check_count("dim_model", dim_model, 1)
        if dim_model % h:
            raise ValueError(f"dim_model ({dim_model}) must be divisible by h ({h})")
        self.d_k = dim_model // h
        self.in_proj = nn.Linear(dim_model, 3 * dim_model)  # rows: W_q, W_k, W_v
        self.out_proj = nn.Linear(dim_model, dim_model)  # W_o
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw each of the four matrices from Glorot's uniform distribution; set biases to zero."""
        for block in (*self.in_proj.weight.split(self.dim_model), self.out_proj.weight):
            nn.init.xavier_uniform_(block)
        nn.init.zeros_(self.in_proj.bias)
        nn.init.zeros_(self.out_proj.bias)

    def get(self, x: Tensor, fields: str = "qkv") -> dict[str, Tensor]:
        """Project states to the fields asked for.

        Parameters
        ----------
        x : Tensor
            [..., dim_model]
        fields : str
            ``"qkv"``, ``"q"``, ``"kv"``: a run of those three letters.

        Returns
        -------
        dict of str to Tensor
            Each [..., h, d_k].

        Raises
        ------
        ValueError
            If ``x`` has another width or ``fields`` is not such a run.
        """
        check_choice("fields", fields, ("q", "k", "v", "qk", "kv", "qkv"))
        if x.shape[-1] != self.dim_model:
            raise ValueError(f"x must be [..., {self.dim_model}], got {list(x.shape)}")
        first = "qkv".index(fields)
        rows = slice(first * self.dim_model, (first + len(fields)) * self.dim_model)
        if len(fields) < 3 and is_plain(self.in_proj):
            bias = None if self.in_proj.bias is None else self.in_proj.bias[rows]
            projected = nn.functional.linear(x, self.in_proj.weight[rows], bias)
        else:
            projected = self.in_proj(x)[..., rows]
        heads = projected.unflatten(-1, (len(fields), self.h, self.d_k))  # [..., fields, h, d_k]
        return dict(zip(fields, heads.unbind(-3), strict=True))

    def get_o(self, x: Tensor) -> Tensor:
        """Concatenate the heads' outputs [..., h, d_k] and project them to [..., dim_model].

        Raises
        ------
        ValueError
            If ``x`` has another shape.
        """
        if x.shape[-2:] != (self.h, self.d_k):
            raise ValueError(f"x must be [..., {self.h}, {self.d_k}], got {list(x.shape)}")
        return self.out_proj(x.flatten(-2))

    def forward(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Dense self-attention of ``x``, or cross-attention from ``x`` to ``memory``.

        Parameters
        ----------
        x : Tensor
            [..., n, dim_model], the tokens that attend.
        memory : Tensor, optional
            [..., m, dim_model], the tokens attended to.
        mask : Tensor, optional
            bool, broadcast to [..., h, n, m]; True where a token may attend.

        Returns
        -------
        output : Tensor
            [..., n, dim_model]
        weights : Tensor
            [..., h, n, m]
        """
        fields = self.get(x) if memory is None else self.get(x, "q") | self.get(memory, "kv")
        q, k, v = (fields[f].transpose(-3, -2) for f in "qkv")  # [..., h, n or m, d_k]
        context, weights = dot_product_attention(q, k, v, mask)
        return self.get_o(context.transpose(-3, -2)), weights
