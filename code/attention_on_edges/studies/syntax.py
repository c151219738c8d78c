"""Chapter 9's question: does an encoder's attention follow dependency trees."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from attention_on_edges.corpora.gold_annotations import Parse
from attention_on_edges.corpora.text_dataset import TextDataset
from attention_on_edges.models.transformer import Transformer
from attention_on_edges.pool import GraphPool
from attention_on_edges.runs.study_results import Rows
from attention_on_edges.sparse_graphs import dependency_tree
from attention_on_edges.studies.alignment import pool_words, split_words

Tree = set[frozenset[int]]
"""Undirected edges between words."""


OFFSETS = (-3, -2, -1, 1, 2, 3)
"""Offsets of the baselines that always attend to one relative position."""


COMMON = 100
"""How often a relation must occur in each split to be listed."""


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


def measure_syntax(
    models: Mapping[str, Transformer], data: TextDataset, parses: Mapping[str, Sequence[Parse]]
) -> Rows:
    """Return how well an encoder's spanning trees of attention, and single heads, match a treebank.

    Heads are chosen on the split ``"valid"`` and scored on ``"test"``.

    Parameters
    ----------
    models : mapping
        By name; heads of ``"trained"`` are compared with relations.
    data : TextDataset
        Splits words.
    parses : mapping
        The treebank's splits.

    Returns
    -------
    list of dict
        ``kind`` ``"adjacent"``: undirected attachment score (UUAS) if each word is linked to the next.
        ``"tree"``: of the spanning tree of each ``layer`` and ``head`` of a ``model``. ``"relation"``: for
        each common relation the best head, and the share of dependents that attend most to their own head
        (``accuracy``); ``offset`` and ``baseline`` are those of the best fixed offset.
    """
    gold = {split: [gold_tree(parse.heads) for parse in some] for split, some in parses.items()}
    near = {s: uuas([chain(len(parse.words)) for parse in some], gold[s]) for s, some in parses.items()}
    rows: Rows = [{"kind": "adjacent", "sentences": len(parses["test"])} | near]
    for name, model in models.items():
        attention = {s: [_self_attention(model, data, parse) for parse in some] for s, some in parses.items()}
        for layer, head in np.ndindex(attention["test"][0].shape[:2]):
            scores = {
                s: uuas([spanning_tree(weights[layer, head]) for weights in some], gold[s])
                for s, some in attention.items()
            }
            rows.append({"kind": "tree", "model": name, "layer": layer, "head": head} | scores)
        if name == "trained":
            rows += _relations(attention, parses)
    return rows


def _self_attention(model: Transformer, data: TextDataset, parse: Parse) -> np.ndarray:
    """Return the encoder's attention between words [layers, heads, words, words]."""
    pieces, spans = split_words(data.splitter, parse.words)
    batch = GraphPool()([data.encode(pieces)], [[data.sos_id, data.eos_id]])
    layers = [model.attention_of(batch, 0, layer)[0].numpy() for layer in range(model.encoder.N)]
    return pool_words(np.array(layers), spans, spans)


def _relations(attention: Mapping[str, list[np.ndarray]], parses: Mapping[str, Sequence[Parse]]) -> Rows:
    """Choose the best head and the best offset for each relation on one split, score both on the other."""
    right: dict[str, dict[str, np.ndarray]] = {}
    for split, some in parses.items():
        hits = [
            attached(weights.reshape(-1, *weights.shape[2:]), parse.heads)
            for weights, parse in zip(attention[split], some, strict=True)
        ]
        fixed = [_fixed(parse.heads) for parse in some]
        both = [np.concatenate(pair) for pair in zip(hits, fixed, strict=True)]
        names = np.array([r for p in some for r, h in zip(p.relations, p.heads, strict=True) if h >= 0])
        table = np.concatenate(both, -1)  # [layers * heads + offsets, dependents]
        right[split] = {name: table[:, names == name] for name in Counter(names.tolist())}
    layers, heads = attention["test"][0].shape[:2]
    rows = []
    for name, chosen_on in sorted(right["valid"].items(), key=lambda item: -item[1].shape[1]):
        scored = right["test"].get(name)
        if scored is None or min(chosen_on.shape[1], scored.shape[1]) < COMMON:
            continue
        means = chosen_on.mean(1)
        best, offset = int(means[: layers * heads].argmax()), int(means[layers * heads :].argmax())
        row = {"kind": "relation", "relation": name, "count": scored.shape[1]}
        row |= {"layer": best // heads, "head": best % heads, "accuracy": float(scored[best].mean())}
        baseline = float(scored[layers * heads + offset].mean())
        rows.append(row | {"offset": OFFSETS[offset], "baseline": baseline})
    return rows


def _fixed(heads: Sequence[int]) -> np.ndarray:
    """For each offset and each word but the root: whether its head is there; bool [offsets, words]."""
    governed = np.flatnonzero(np.asarray(heads) >= 0)
    return np.array([governed + offset == np.asarray(heads)[governed] for offset in OFFSETS])
