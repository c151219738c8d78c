"""Numbers of edges, without building a graph.

Each function takes the arguments of its constructor that matter: no seeds, no tree shapes.
"""

import torch
from torch import Tensor

from edgewise.graphs.partition import num_levels


def window(n: int, left: int, right: int) -> int:
    """Edges of :func:`edgewise.graphs.window` on one sequence."""
    return n + _side(n, left) + _side(n, right)


def dilated(n: int, reach: int, step: int, causal: bool = False) -> int:
    """Edges of :func:`edgewise.graphs.dilated`."""
    return n + (1 if causal else 2) * _side(n, reach, step)


def _side(n: int, reach: int, step: int = 1) -> int:
    """Pairs whose distance is one of ``step, 2 * step, .., reach * step``: ``n - distance`` of each."""
    there = min(reach, max(n - 1, 0) // step)
    return there * n - step * there * (there + 1) // 2


def global_tokens(n: int, count: int, causal: bool = False) -> int:
    """Edges of :func:`edgewise.graphs.global_tokens`."""
    count = min(count, n)
    return count * n - count * (count - 1) // 2 if causal else 2 * count * n - count**2


def random_links(n: int, per_token: int, causal: bool = False) -> int:
    """Edges of :func:`edgewise.graphs.random_links` without ``besides``."""
    drawn = min(per_token, max(n - 1, 0))
    return n * drawn - (drawn * (drawn + 1) // 2 if causal else 0)


def bigbird(n: int, reach: int, num_global: int, num_random: int, causal: bool = False) -> int:
    """Edges of :func:`edgewise.graphs.bigbird.bigbird`.

    Window edges between tokens that are not global, edges of the global ones, and links: each of ``m`` tokens
    draws from those it does not attend to yet. Tokens near the ends have fewer neighbours in the window.
    """
    m = n - min(num_global, n)
    if causal:
        local, strangers = window(m, reach, 0), max(m - 1 - reach, 0)
        few = min(strangers, num_random)  # the first tokens have 0, .., 0, 1, 2, .. strangers
        links = few * (few + 1) // 2 + (strangers - few) * num_random
    else:
        local, most = window(m, reach, reach), min(2 * reach + 1, m)
        links = sum(
            m if m - drawn >= most else 2 * max(m - drawn - reach, 0)
            for drawn in range(1, min(num_random, m) + 1)
        )  # tokens that have a first, second, .. stranger to draw
    return local + global_tokens(n, num_global, causal) + links


def binary_partition(n: int, k: int, causal: bool = False) -> int:
    """Edges of :func:`edgewise.graphs.binary_partition`.

    Each token attends to itself and is in one span per level, and attends to some on its left and right.
    """
    levels, token = num_levels(n), torch.arange(n)

    def left_ends(level: int) -> Tensor:
        return (((token + k) >> level) - k).clamp(min=0)

    def right_begins(level: int, factor: int, spans: int) -> Tensor:
        return (factor * (k - ((k - 1 - token) >> level))).clamp(max=spans)

    edges = n + levels * n
    for level in range(levels):
        edges += int((left_ends(level) - 2 * left_ends(level + 1)).sum())
        if not causal:
            spans = -(-n // 2**level)
            edges += int((right_begins(level + 1, 2, spans) - right_begins(level, 1, spans)).sum())
    return edges


def dependency_tree(n: int) -> int:
    """Edges of :func:`edgewise.graphs.dependency_tree` on ``n`` words, whatever the tree."""
    return max(3 * n - 2, 0)
