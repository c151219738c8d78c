"""Dependency trees from self-attention."""

from collections.abc import Sequence

import numpy as np

from edgewise.graphs import dependency_tree

Tree = set[frozenset[int]]
"""Undirected edges between words."""


def gold_tree(heads: Sequence[int]) -> Tree:
    """Link each word to its head; ``heads`` holds the place of each word's head, -1 for the root.

    Raises
    ------
    ValueError
        If the heads are not a tree.
    """
    dependency_tree(heads)  # checks them
    return {frozenset((word, head)) for word, head in enumerate(heads) if head >= 0}


def spanning_tree(weights: np.ndarray) -> Tree:
    """Return the maximum spanning tree of the attention between words, both directions summed.

    Parameters
    ----------
    weights : array
        [receiving words, sending words]
    """
    import networkx as nx  # slow to import, and rarely needed

    both = weights + weights.T
    graph = nx.Graph()
    graph.add_nodes_from(range(len(both)))
    graph.add_weighted_edges_from((i, j, both[i, j]) for i in range(len(both)) for j in range(i))
    return {frozenset(edge) for edge in nx.maximum_spanning_tree(graph).edges}


def chain(n: int) -> Tree:
    """Link each word to the next: the baseline."""
    return {frozenset((i, i + 1)) for i in range(n - 1)}


def uuas(found: Sequence[Tree], gold: Sequence[Tree]) -> float:
    """Undirected unlabelled attachment score: the share of gold pairs that were found, over all sentences."""
    return sum(len(a & b) for a, b in zip(found, gold, strict=True)) / sum(map(len, gold))


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
