"""Which word depends on which, as attention has it."""

from collections.abc import Sequence

import numpy as np

Tree = set[frozenset[int]]
"""Pairs of words that are joined, direction left out."""


def gold_tree(heads: Sequence[int]) -> Tree:
    """Join each word to its head; ``heads`` holds the place of each word's head, -1 for the root.

    Raises
    ------
    ValueError
        If the heads are no tree: not one root, a head outside of the sentence, or a circle.
    """
    n = len(heads)
    if sum(head == -1 for head in heads) != 1:
        raise ValueError(f"heads must have one root (-1), got {list(heads)}")
    if not all(-1 <= head < n for head in heads):
        raise ValueError(f"heads must be -1 or lie in 0..{n - 1}, got {list(heads)}")
    import networkx as nx  # slow to import, and most do not need it

    tree = {frozenset((word, head)) for word, head in enumerate(heads) if head >= 0}
    graph = nx.Graph(tuple(edge) for edge in tree if len(edge) == 2)
    graph.add_nodes_from(range(n))
    if not nx.is_tree(graph) or len(tree) != n - 1:
        raise ValueError(f"heads must lead to the root from every word, got {list(heads)}")
    return tree


def spanning_tree(weights: np.ndarray) -> Tree:
    """Return the undirected tree over all words that carries the most attention, both directions added.

    Parameters
    ----------
    weights : array
        [words that listen, words that are heard]

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
    """Join each word to the next: the baseline."""
    return {frozenset((i, i + 1)) for i in range(n - 1)}


def uuas(found: Sequence[Tree], gold: Sequence[Tree]) -> float:
    """Undirected unlabelled attachment score: the share of gold pairs that were found, over all sentences.

    Raises
    ------
    ValueError
        If the two do not pair up or there is no gold pair.
    """
    if len(found) != len(gold):
        raise ValueError(f"found and gold must have one tree a sentence, got {len(found)} and {len(gold)}")
    total = sum(map(len, gold))
    if total == 0:
        raise ValueError("gold must hold at least one pair of words")
    return sum(len(a & b) for a, b in zip(found, gold, strict=True)) / total


def attached(weights: np.ndarray, heads: Sequence[int]) -> np.ndarray:
    """Say for each word but the root whether the word that it hears most, itself apart, is its head.

    Parameters
    ----------
    weights : array
        [..., words that listen, words that are heard]
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
