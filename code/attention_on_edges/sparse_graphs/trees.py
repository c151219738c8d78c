"""Attention along a dependency parse."""

from collections.abc import Sequence

import torch
from torch import Tensor

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.constructors import from_pairs
from edgewise.validation import check_count


def dependency_tree(heads: Sequence[int] | Tensor) -> AttentionGraph:
    """Every word attends to itself, to its head and to its dependents: ``3 * n - 2`` edges.

    Parameters
    ----------
    heads : sequence of int
        The place of each word's head, from 0; -1 for the root.

    Raises
    ------
    TypeError
        If a head is not an integer.
    ValueError
        If the heads are not a tree: one is outside the sentence, there is not one root, or there is a cycle.
    """
    heads = heads.tolist() if isinstance(heads, Tensor) else list(heads)
    n = len(heads)
    _check_tree(heads)
    word = torch.arange(n)
    head = torch.tensor(heads, dtype=torch.int64)
    governed, head = word[head >= 0], head[head >= 0]
    return from_pairs(torch.cat([word, head, governed]), torch.cat([word, governed, head]), n)


def _check_tree(heads: list[int]) -> None:
    n = len(heads)
    for word, head in enumerate(heads):
        if check_count(f"heads[{word}]", head, -1) >= n:
            raise ValueError(f"heads[{word}] must lie in 0..{n - 1} or be -1 for the root, got {head}")
    roots = [word for word, head in enumerate(heads) if head == -1]
    if n and len(roots) != 1:
        raise ValueError(f"heads must be a tree with one root (-1), got {len(roots)} roots: {roots}")
    ends = list(range(n))  # of the paths from each word towards the root, a head further each time
    for _ in heads:
        ends = [heads[word] if word >= 0 else word for word in ends]
    if circling := [word for word, end in enumerate(ends) if end >= 0]:
        raise ValueError(f"heads must be a tree, but no path leads from the root to words {circling}")
