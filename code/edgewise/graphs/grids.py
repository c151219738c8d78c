"""Products of graphs, and with them images, volumes and videos: tokens on a grid, row by row."""

import math
from functools import reduce

import torch
from torch import Tensor

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.constructors import Sizes, complete, window
from edgewise.graphs.graph_forms import check_graph
from edgewise.graphs.ordering import distinct_pairs
from edgewise.validation import check_counts, check_each


def product(outer: AttentionGraph, inner: AttentionGraph) -> AttentionGraph:
    """Pairs of tokens, of which one attends to another if it does so in both graphs.

    The tensor product, whose mask is the Kronecker product of the masks. The pair of token ``i`` of ``outer``
    and token ``j`` of ``inner`` is token ``i * n + j``, where ``inner`` has ``n`` tokens. Edges occur once,
    ordered by sender; intervals stay intervals where every token attends to all of ``inner``, or to at most
    one of ``outer``. The product is self-attention if both graphs are. Axial attention (Ho et al. 2019) on
    ``h`` rows of ``w`` tokens is
    ``product(window(h, 0, 0), complete(w)) | product(complete(h), window(w, 0, 0))``.
    """
    check_graph(outer, "outer")
    check_graph(inner, "inner")
    n, num_dst = inner.num_src, outer.num_dst * inner.num_dst
    sides = outer.num_src * n, None if outer.self_attention and inner.self_attention else num_dst
    if outer._intervals and inner._intervals:
        (a, b), (c, d) = outer._intervals, inner._intervals
        if bool((b - a <= 1).all()) or bool(((c == 0) & (d == n)).all()):
            start = _pairs(a, c, n).clamp(max=sides[0])
            return AttentionGraph._of(*sides, (start, torch.maximum(start, _pairs(b - 1, d, n))))
    src, dst = _pairs(outer._src, inner._src, n), _pairs(outer._dst, inner._dst, inner.num_dst)
    return AttentionGraph._of(*sides, edges=distinct_pairs(src, dst, num_dst))


def _pairs(outer: Tensor, inner: Tensor, n: int) -> Tensor:
    return (outer[:, None] * n + inner).flatten()


def grid_window(shape: Sizes, radius: Sizes) -> AttentionGraph:
    """Every token of a grid attends to the box around it, itself included.

    The box ends where the grid does; it is not moved inwards, as Hassani et al. 2023 do.

    Parameters
    ----------
    shape : sequence of int
        Tokens along each axis, say rows and columns; token ``(y, x)`` of an image is token
        ``y * columns + x``.
    radius : int or sequence of int
        Tokens attended to on either side along an axis: one number for all axes or one for each.

    Raises
    ------
    TypeError, ValueError
        If a number is not an integer or negative, or there are not as many as axes.
    """
    axes = check_counts("shape", shape)
    reach = check_each("radius", radius, len(axes), "axis")
    return reduce(product, [window(n, r, r) for n, r in zip(axes, reach, strict=True)], complete(1))


def grid_blocks(shape: Sizes, block: Sizes, shift: Sizes = 0) -> AttentionGraph:
    """Every token of a grid attends to the tokens of its block.

    The windows of Swin (Liu et al. 2021, sec. 3.2), shifted and not. Swin rolls a shifted grid, so that the
    windows at its borders hold tokens from both ends, and masks the pairs that are no neighbours. Here these
    are blocks of their own: along each axis the first block has ``shift`` tokens, if any, the next ones have
    ``block``, and the last one has the rest.

    Parameters
    ----------
    shape : sequence of int
        Tokens along each axis, as in :func:`grid_window`.
    block, shift : int or sequence of int
        Tokens of a block along an axis, and of the first one, fewer than ``block``: one number for all axes
        or one for each.

    Raises
    ------
    TypeError, ValueError
        If a number is not an integer or negative, a block has no tokens, a shift is not less than its block,
        or there are not as many as axes.
    """
    axes = check_counts("shape", shape)
    blocks = check_each("block", block, len(axes), "axis", 1)
    shifts = check_each("shift", shift, len(axes), "axis")
    if any(s >= b for s, b in zip(shifts, blocks, strict=True)):
        raise ValueError(f"shift must be less than block on each axis, got {shifts} and {blocks}")
    complete(math.prod(axes))  # more tokens than a graph may have are refused before they are cut
    cuts = [[0, *range(s, n, b), n] for n, b, s in zip(axes, blocks, shifts, strict=True)]
    return reduce(product, [complete(torch.tensor(cut).diff()) for cut in cuts], complete(1))
