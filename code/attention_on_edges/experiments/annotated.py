"""Chapter 9: attention of committed models against gold alignments and parses."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch

from attention_on_edges.analysis.alignment import diagonal_links, links_of, pool_words, split_words
from attention_on_edges.analysis.syntax import attached, chain, gold_tree, spanning_tree, uuas
from attention_on_edges.data.corpora.annotated import AlignedPair, Parse
from attention_on_edges.data.metrics import Links, alignment_error_rate
from attention_on_edges.data.text_dataset import TextDataset
from edgewise.graphs import GraphPool
from edgewise.layers import evaluating
from edgewise.models.transformer import Transformer
from edgewise.training import LabelSmoothing

Rows = list[dict[str, Any]]

CHOSEN_ON = 100
"""Number of aligned pairs, the first ones, on which heads are chosen; the others score them."""

OFFSETS = (-3, -2, -1, 1, 2, 3)
"""Offsets of the baselines that always attend to one relative position."""

COMMON = 100
"""How often a relation must occur in each split to be listed."""


def measure_alignment(
    model: Transformer, data: TextDataset, pairs: Sequence[AlignedPair], own: str = "test"
) -> Rows:
    """Return alignment error rates of cross-attention, and the model's loss on its own and the aligned text.

    Attention is pooled to words by :func:`~attention_on_edges.analysis.pool_words`; a target word is linked
    to the source word that it attends to most: in the rows that predict its pieces (``row`` ``"predicts"``),
    or in those that read them (``"reads"``), one later.

    Returns
    -------
    list of dict
        ``kind`` ``"diagonal"``: the baseline. ``"head"``: one of each layer, row and head, where head
        ``"mean"`` is the mean over heads; ``chosen_on`` is the rate on the first pairs, ``aer`` of the rest.
        ``"loss"``: nats per piece of the model's own test split (named ``own``), and of the aligned pairs.
    """
    splits = {"chosen_on": slice(CHOSEN_ON), "aer": slice(CHOSEN_ON, None)}

    def rates(links: Sequence[Links]) -> dict[str, float]:
        return {
            name: alignment_error_rate(
                links[part], [set(p.sure) for p in pairs[part]], [set(p.possible) for p in pairs[part]]
            )
            for name, part in splits.items()
        }

    diagonal = [diagonal_links(len(pair.source), len(pair.target)) for pair in pairs]
    rows: Rows = [{"kind": "diagonal", "pairs": len(pairs)} | rates(diagonal)]
    attention = [_cross_attention(model, data, pair) for pair in pairs]
    layers, heads = model.decoder.N, model.decoder.layers[0].src_attn.h
    for layer, (row, name) in product(range(layers), enumerate(("predicts", "reads"))):
        for head in (*range(heads), "mean"):
            weights = [x[layer, row].mean(0) if head == "mean" else x[layer, row, head] for x in attention]
            place = {"layer": layer, "row": name, "head": head}
            rows.append({"kind": "head"} | place | rates([links_of(w) for w in weights]))
    home = data.splits[own][:1000]
    there = [[split_words(data.splitter, side)[0] for side in (p.source, p.target)] for p in pairs]
    for name, texts in (("own test", home), ("aligned", there)):
        rows.append({"kind": "loss", "text": name, "nats": _loss(model, data, texts)})
    return rows


def _cross_attention(model: Transformer, data: TextDataset, pair: AlignedPair) -> np.ndarray:
    """Return attention between words [layers, 2, heads, target words, source words]; see above for the 2."""
    (source, src_spans), (target, tgt_spans) = (
        split_words(data.splitter, side) for side in (pair.source, pair.target)
    )
    ids = [data.sos_id, *data.encode(target), data.eos_id]
    batch = GraphPool()([data.encode(source)], [ids])
    found = []
    for layer in range(model.decoder.N):
        weights = model.attention_of(batch, 0, layer)[1].numpy()  # [heads, pieces + 1, pieces]
        found.append([pool_words(rows, tgt_spans, src_spans) for rows in (weights[:, :-1], weights[:, 1:])])
    return np.array(found)


def _loss(model: Transformer, data: TextDataset, pairs: Sequence[Sequence[Sequence[str]]]) -> float:
    """Return the mean loss per target token, in nats."""
    criterion, total, tokens = LabelSmoothing(data.vocab_size, data.pad_id), 0.0, 0
    with evaluating(model), torch.no_grad():
        for first in range(0, len(pairs), 100):
            sources, targets = zip(*pairs[first : first + 100], strict=True)
            ids = [[data.sos_id, *data.encode(target), data.eos_id] for target in targets]
            batch = GraphPool()([data.encode(source) for source in sources], ids)
            total += float(criterion(model(batch), batch.tgt_y))
            tokens += batch.n_tokens
    return total / tokens


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
