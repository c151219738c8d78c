"""Dependency trees from self-attention."""

from collections.abc import Sequence

import numpy as np

Tree = set[frozenset[int]]
"""Undirected edges between words."""


def gold_tree(heads: Sequence[int]) -> Tree:
    """Link each word to its head; ``heads`` holds the place of each word's head, -1 for the root.

    Raises
    ------
    ValueError
        If the heads are not a tree: not one root, a head outside of the sentence, or a cycle.
    """
    n = len(heads)
    if sum(head == -1 for head in heads) != 1:
        raise ValueError(f"heads must have one root (-1), got {list(heads)}")
    if not all(-1 <= head < n for head in heads):
        raise ValueError(f"heads must be -1 or lie in 0..{n - 1}, got {list(heads)}")
    import networkx as nx  # slow to import, and rarely needed

    tree = {frozenset((word, head)) for word, head in enumerate(heads) if head >= 0}
    graph = nx.Graph(tuple(edge) for edge in tree if len(edge) == 2)
    graph.add_nodes_from(range(n))
    if not nx.is_tree(graph) or len(tree) != n - 1:
        raise ValueError(f"heads must lead to the root from every word, got {list(heads)}")
    return tree


def spanning_tree(weights: np.ndarray) -> Tree:
    """Return the maximum spanning tree of the attention between words, both directions summed.

    Parameters
    ----------
    weights : array
        [receiving words, sending words]

    Raises
    ------
    ValueError
        If the matrix is not square.
    """
    weights = np.asarray(weights, dtype=float)
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
        raise ValueError(f"weights must be [words, words], got {list(weights.shape)}")
    import networkx as nx

    both = weights + weights.T
    graph = nx.Graph()
    graph.add_nodes_from(range(len(both)))
    graph.add_weighted_edges_from((i, j, both[i, j]) for i in range(len(both)) for j in range(i))
    return {frozenset(edge) for edge in nx.maximum_spanning_tree(graph).edges}


def chain(n: int) -> Tree:
    """Link each word to the next: the baseline."""
    return {frozenset((i, i + 1)) for i in range(n - 1)}


def uuas(found: Sequence[Tree], gold: Sequence[Tree]) -> float:
    """Undirected unlabelled attachment score: the share of gold pairs that were found, over all sentences.

    Raises
    ------
    ValueError
        If the two do not pair up or there is no gold pair.
    """
    if len(found) != len(gold):
        raise ValueError(f"found and gold must have one tree per sentence, got {len(found)} and {len(gold)}")
    total = sum(map(len, gold))
    if total == 0:
        raise ValueError("gold must hold at least one pair of words")
    return sum(len(a & b) for a, b in zip(found, gold, strict=True)) / total


def attached(weights: np.ndarray, heads: Sequence[int]) -> np.ndarray:
    """For each word but the root: whether it attends most, itself aside, to its head.

    Parameters
    ----------
    weights : array
        [..., receiving words, sending words]
    heads : sequence of int
        As in :func:`gold_tree`.

    Returns
    -------
    array
        bool [..., words but the root]
    """
    weights = np.array(weights, dtype=float)
    places = np.arange(len(heads))
    weights[..., places, places] = -np.inf
    governed = np.flatnonzero(np.asarray(heads) >= 0)
    return weights.argmax(-1)[..., governed] == np.asarray(heads)[governed]
