"""Chapter 9: how few edges are enough for a translation, and which are needed: in committed translators."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attention_on_edges.models.transformer import Transformer
from attention_on_edges.runs.study_results import Rows
from attention_on_edges.studies.cutting_edges import (
    ABLATIONS,
    KINDS,
    CutTranslation,
    ablating,
    longest_cut,
    mean_values,
    prune,
)

SENTENCES, DRAWS = 200, 3


def measure_circuits(model: Transformer, sources: Sequence[Sequence[int]]) -> Rows:
    """Return for each source how few edges keep its translation, found in several ways.

    Returns
    -------
    list of dict
        Tokens of ``source`` and ``target``; ``edges`` of the whole graph; edges left by pruning
        (``pruned``), by cutting the lightest first (``lightest``) and at random (``random``, one for each
        draw); ``groups``, the pruned graph's edges as [graph, layer, head, count]; the mean
        log-probability of a piece ``whole`` and ``pruned_log_prob``; and the share of pieces still
        predicted without any edge (``nothing``) and in the pruned graph of another sentence of the same
        lengths (``transferred``, missing if there is none); and ``ablations``, of :func:`by_ablation`.
    """
    sentences = [CutTranslation(model, source) for source in sources]
    means = mean_values(model, sentences)
    pruned = [prune(s, s.weights.argsort()) for s in sentences]
    rows: Rows = []
    for sentence, kept in zip(sentences, pruned, strict=True):
        drawn = [torch.randperm(len(kept), generator=torch.Generator().manual_seed(i)) for i in range(DRAWS)]
        orders = sentence.weights.argsort(), *drawn
        lightest, *random = (int(longest_cut(sentence, order).sum()) for order in orders)
        trials = torch.stack([torch.ones_like(kept), kept, torch.zeros_like(kept)])
        whole, left, _ = sentence.chosen(trials).mean(-1).tolist()
        rows.append({
            "source": len(sentence.source), "target": len(sentence.read), "edges": len(kept),
            "pruned": int(kept.sum()), "lightest": lightest, "random": random,
            "groups": _groups(sentence.edges[kept]), "whole": whole, "pruned_log_prob": left,
            "nothing": float(sentence.predicted(trials[2:]).float().mean()),
            "ablations": by_ablation(sentence, kept, means),
        })  # fmt: skip
    for row, share in zip(rows, _transferred(sentences, pruned), strict=True):
        row |= {} if share is None else {"transferred": share}
    return rows


def by_ablation(sentence: CutTranslation, kept: Tensor, means: Sequence[Tensor]) -> dict[str, Any]:
    """Return for each of ``ABLATIONS`` what its own circuit is, and what of it is needed.

    Returns
    -------
    dict of str to dict
        ``edges`` of the circuit that is found by pruning under this ablation; whether ``kept``, found by
        cutting, is ``enough`` under it too; and ``needed``: the parts of its own circuit (all, a graph's or a
        layer's) without which alone, all other edges left, a piece changes.
    """
    found = {}
    for how in ABLATIONS:
        with ablating(sentence.model, how, means):
            own = kept if how == "cut" else prune(sentence, sentence.weights.argsort())
            parts = {"all": own} | {k: own & (sentence.edges[:, 0] == i) for i, k in enumerate(KINDS)}
            parts |= {
                f"layer {i}": own & (sentence.edges[:, 1] == i) for i in range(sentence.model.encoder.N)
            }
            trials = torch.stack([kept, *(~part for part in parts.values())])
            enough, *holds = sentence.unchanged(trials).tolist()
        needed = [name for name, held in zip(parts, holds, strict=True) if not held]
        found[how] = {"edges": int(own.sum()), "enough": enough, "needed": needed}
    return found


def _groups(edges: Tensor) -> list[list[int]]:
    """[graph, layer, head, count] of the groups that have an edge."""
    groups, counts = edges[:, :3].unique(dim=0, return_counts=True)
    return torch.cat([groups, counts[:, None]], 1).tolist()


def _transferred(sentences: Sequence[CutTranslation], pruned: Sequence[Tensor]) -> list[float | None]:
    """Share of a sentence's pieces that are predicted in the pruned graph of the next one of its lengths."""
    alike = defaultdict(list)
    for number, sentence in enumerate(sentences):
        alike[len(sentence.source), len(sentence.read)].append(number)
    found: list[float | None] = [None] * len(sentences)
    for numbers in alike.values():
        for own, other in zip(numbers, [*numbers[1:], numbers[0]], strict=True):
            if own != other:
                found[own] = float(sentences[own].predicted(pruned[other][None]).float().mean())
    return found
