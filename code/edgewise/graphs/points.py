"""Points in space: each attends to those that are near."""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.constructors import Sizes
from edgewise.graphs.edge_lists import from_pairs
from edgewise.validation import check_count, check_counts, check_floats, check_real


def nearest(points: Tensor, k: int, sizes: Sizes | None = None) -> AttentionGraph:
    """Every point attends to the ``k`` points that are nearest to it, all others if there are fewer.

    It does not attend to itself; see :meth:`AttentionGraph.with_self_loops`. Which of equally distant points
    are taken is not specified. Distances are Euclidean and computed in float64: with SciPy's k-d tree, if
    SciPy is installed and the points are on a CPU, otherwise to all points.

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
    ValueError
        If ``points`` is not [n, dim] or not finite, ``k`` is negative, or ``sizes`` do not sum to ``n``.
    """
    k = check_count("k (points that each point attends to)", k)

    def find(cloud: Tensor) -> Tensor:
        most, tree = min(k + 1, len(cloud)), _tree(cloud)
        if tree is None:
            near = _in_parts(cloud, lambda far: far.topk(most, largest=False).indices)
        else:
            near = torch.from_numpy(tree.query(cloud.numpy(), range(1, most + 1))[1])
        token = torch.arange(len(cloud), device=cloud.device)
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
        if (tree := _tree(cloud)) is None:
            return _in_parts(cloud, lambda far: (far <= radius).to_sparse()).coalesce().indices()
        pairs = torch.from_numpy(tree.query_pairs(radius, output_type="ndarray")).T
        return torch.cat([pairs, pairs.flip(0)], 1)

    return _link(points, sizes, find)


def _link(points: Tensor, sizes: Sizes | None, find: Callable[[Tensor], Tensor]) -> AttentionGraph:
    check_floats("points", points)
    bad = points[~points.isfinite()]
    if points.dim() != 2 or not points.shape[1] or len(bad):
        raise ValueError(f"points must be [n, dim] and finite, got {[*points.shape]} with {bad[:3].tolist()}")
    counts = ([len(points)] if sizes is None else check_counts("sizes", sizes)) or [0]
    if sum(counts) != len(points):
        raise ValueError(f"sizes must sum to the {len(points)} points, got {sum(counts)}")
    clouds = (points if points.is_cuda else points.cpu()).detach().double().split(counts)
    firsts = accumulate(counts, initial=0)
    src, dst = torch.cat([first + find(x) for first, x in zip(firsts, clouds, strict=False)], 1)
    return from_pairs(src, dst, len(points)).without_self_loops().to(points.device)


def _tree(cloud: Tensor) -> Any:
    """SciPy's k-d tree of points on a CPU, if there are any and SciPy can be imported."""
    try:
        from scipy.spatial import cKDTree
    except ImportError:
        return None
    return None if cloud.is_cuda or not len(cloud) else cKDTree(cloud.numpy())


def _in_parts(cloud: Tensor, find: Callable[[Tensor], Tensor]) -> Tensor:
    """What is found in rows of the distances between all points, as many at a time as memory allows."""
    exact = "donot_use_mm_for_euclid_dist"
    parts = cloud.split(max(1, 2**24 // max(1, len(cloud))))
    return torch.cat([find(torch.cdist(rows, cloud, compute_mode=exact)) for rows in parts])
