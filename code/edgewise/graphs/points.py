"""Points in space: each attends to those that are near."""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.constructors import Sizes, from_pairs
from edgewise.validation import MissingPackageError, check_count, check_counts, check_floats, check_real


def nearest(points: Tensor, k: int, sizes: Sizes | None = None) -> AttentionGraph:
    """Every point attends to the ``k`` points that are nearest to it, all others if there are fewer.

    It does not attend to itself; see :meth:`AttentionGraph.with_self_loops`. Which of equally distant points
    are taken is not specified. Distances are Euclidean, in float64 on a CPU, by SciPy's k-d tree.

    Parameters
    ----------
    points : Tensor
        Floating point [n, dim]; the graph is on its device.
    k : int
        How many points each attends to.
    sizes : int, sequence of int or Tensor, optional
        Points of each of several clouds, which lie one after the other and have no edges between them.

    Raises
    ------
    TypeError
        If ``points`` is not a floating-point tensor or a count is not an integer.
    MissingPackageError
        If SciPy is not installed.
    ValueError
        If ``points`` is not [n, dim] or not finite, ``k`` is negative, or ``sizes`` do not sum to ``n``.
    """
    k = check_count("k (points that each point attends to)", k)

    def find(cloud: Tensor) -> Tensor:
        most = min(k + 1, len(cloud))
        near = torch.from_numpy(_tree(cloud).query(cloud.numpy(), range(1, most + 1))[1])
        token = torch.arange(len(cloud), device="cpu")
        missing = (near != token[:, None]).all(1)  # the point itself, among more that are in the same place
        near[missing, -1:] = token[missing, None]
        return torch.stack([near.flatten(), token.repeat_interleave(most)])

    return _link(points, sizes, find)


def within(points: Tensor, radius: float, sizes: Sizes | None = None) -> AttentionGraph:
    """Every point attends to the others at a distance of at most ``radius``, a finite number from 0.

    Points, clouds, distances, self-loops and errors are as in :func:`nearest`.
    """
    if check_real("radius", radius) < 0:
        raise ValueError(f"radius must be at least 0, got {radius}")

    def find(cloud: Tensor) -> Tensor:
        pairs = torch.from_numpy(_tree(cloud).query_pairs(radius, output_type="ndarray")).T
        return torch.cat([pairs, pairs.flip(0)], 1)

    return _link(points, sizes, find)


def _link(points: Tensor, sizes: Sizes | None, find: Callable[[Tensor], Tensor]) -> AttentionGraph:
    check_floats("points", points)
    bad = points[~points.isfinite()]
    if points.dim() != 2 or not points.shape[1] or len(bad):
        raise ValueError(f"points must be [n, dim] and finite, got {[*points.shape]} with {bad[:3].tolist()}")
    counts = [len(points)] if sizes is None else check_counts("sizes", sizes)
    if sum(counts) != len(points):
        raise ValueError(f"sizes must sum to the {len(points)} points, got {sum(counts)}")
    clouds = points.detach().cpu().double().split(counts)
    firsts = accumulate(counts, initial=0)
    none = torch.empty(2, 0, dtype=torch.int64, device="cpu")
    found = [first + find(x) if len(x) else none for first, x in zip(firsts, clouds, strict=False)]
    src, dst = torch.cat([none, *found], 1)
    return from_pairs(src, dst, len(points)).without_self_loops().to(points.device)


def _tree(cloud: Tensor) -> Any:
    try:
        from scipy.spatial import cKDTree
    except ImportError as error:
        raise MissingPackageError("SciPy finds what is near: pip install scipy") from error
    return cKDTree(cloud.numpy())
