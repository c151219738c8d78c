"""Numbers of edges in closed form, without building a graph.

Each function takes the arguments of its constructor that matter: no seeds, no tree shapes.
"""

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

    Each token attends to itself and is in one span per level. On a level, the number of spans attended to on
    the left is a difference of two sums of rounded quotients, which have a closed form; so has the right.
    """
    levels = num_levels(n)
    edges = n + levels * n
    for level in range(levels):
        edges += _left_ends(n, k, level) - 2 * _left_ends(n, k, level + 1)
        if not causal:
            spans = -(-n // 2**level)
            edges += _right_begins(n, k, level + 1, -(-spans // 2), 2, spans) - _right_begins(
                n, k, level, spans, 1, spans
            )
    return edges


def _floors(stop: int, level: int) -> int:
    """Sum of ``j >> level`` over ``0 <= j < stop``; over ``stop <= j < 0``, negated, if that is negative."""
    whole, rest = divmod(stop, 2**level)
    return 2**level * (whole * (whole - 1) // 2) + whole * rest


def _left_ends(n: int, k: int, level: int) -> int:
    """Sum over tokens of ``max(((token + k) >> level) - k, 0)``."""
    first = min(max((k << level) - k, 0), n)  # the first token with a span on its left
    return _floors(n + k, level) - _floors(first + k, level) - k * (n - first)


def _right_begins(n: int, k: int, level: int, most: int, factor: int, spans: int) -> int:
    """Sum over tokens of ``min(factor * begin, spans)``, where ``begin = k - ((k - 1 - token) >> level)``.

    ``begin`` reaches ``most`` where ``factor * begin`` reaches ``spans``.
    """
    below = min(max(k - ((k - most + 1) << level), 0), n)  # tokens whose begin is below most
    floors = _floors(k, level) - _floors(k - below, level)
    return factor * (k * below - floors) + spans * (n - below)


def dependency_tree(n: int) -> int:
    """Edges of :func:`edgewise.graphs.dependency_tree` on ``n`` words, whatever the tree."""
    return max(3 * n - 2, 0)
