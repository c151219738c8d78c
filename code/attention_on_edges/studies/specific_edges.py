"""Chapter 9's controls: whether edges that are enough for a word are special to it, and needed."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from attention_on_edges.runs import artifacts
from attention_on_edges.runs.fitting import Part
from attention_on_edges.runs.running import restore
from attention_on_edges.studies.cutting_edges import MARGIN, CutTranslation, ablating, mean_values, prune
from attention_on_edges.studies.measurements import digest_of_weights

WORDS = ("own", "runner-up", "of the sentence", "random")
"""Whose smallest sets are compared at a place: the model's piece, its second choice, a piece that it writes
at another place of the sentence, and one that it writes in another sentence."""

SETS, CLIMBS, TRIES = 256, 20, 32
"""Sets of edges drawn at first; where none of them makes a piece win, steps from the best, and tries of
each."""

SENTENCES, PART = 200, 10
"""Of a measurement, and of one part of it."""


def measure_part(what: str, artifact: str, first: int, trained: bool = True) -> dict[str, Any]:
    """Measure ``PART`` sentences, from the ``first`` on: ``words`` or ``need`` of each."""
    sentences = translations(artifact, trained)
    means = mean_values(sentences[0].model, sentences) if what == "words" and trained else None
    measure = {"words": lambda i: words(sentences, i, means), "need": lambda i: need(sentences[i])}[what]
    weights = digest_of_weights(artifacts.load(artifact))
    return {"weights": weights, "sentences": [measure(i) for i in range(first, first + PART)]}


@cache
def translations(artifact: str, trained: bool = True) -> list[CutTranslation]:
    """Return what a translator writes for the first sentences of its first test split.

    With weights as they are drawn, the model reads what the trained one writes.
    """
    found = artifacts.load(artifact)
    model, data = restore(found)
    pairs = data.splits[found.experiment.tests[0]][:SENTENCES]
    written = [CutTranslation(model, data.encode(source)) for source, _ in pairs]
    if not trained:
        torch.manual_seed(0)
        untrained = found.experiment.build(data.vocab_size).eval()
        for sentence in written:
            sentence.model = untrained
    return written


def words(sentences: Sequence[CutTranslation], number: int, means: Sequence[Tensor] | None) -> dict[str, Any]:
    """Return for a place drawn at random the smallest set found for each of ``WORDS``.

    Returns
    -------
    dict
        ``place``, ``edges`` of the whole graph; by ablation (cut, and if ``means`` are given, mean) and word
        what :func:`smallest` finds. Where a sentence has no other piece, that word is missing.
    """
    sentence, generator = sentences[number], torch.Generator().manual_seed(number)
    place = int(torch.randint(len(sentence.ids), (), generator=generator))
    pieces = choices(sentences, number, place, generator)
    at_place = {word: sentence.one_place(place, piece) for word, piece in pieces.items()}
    row: dict[str, Any] = {"place": place, "edges": len(at_place["own"].edges)}
    order = at_place["own"].weights.argsort()
    for way in ("cut",) if means is None else ("cut", "mean"):
        with ablating(sentence.model, way, means or ()):
            row |= {f"{way}, {word}": smallest(one, order, number) for word, one in at_place.items()}
    return row


def choices(
    sentences: Sequence[CutTranslation], number: int, place: int, generator: torch.Generator
) -> dict[str, int]:
    """Return the ids of ``WORDS`` at a place of a sentence, all different."""
    sentence = sentences[number]
    everything = torch.ones(1, len(sentence.edges), dtype=torch.bool)
    own, second = sentence.log_probs(everything)[0, place].topk(2).indices.tolist()
    here = set(sentence.ids) - {own, second}
    elsewhere = set(chain(*(one.ids for one in sentences))) - set(sentence.ids) - {own, second}
    drawn = [
        sorted(some)[int(torch.randint(len(some), (), generator=generator))] if some else None
        for some in (here, elsewhere)
    ]
    found = zip(WORDS, (own, second, *drawn), strict=True)
    return {word: piece for word, piece in found if piece is not None}


def smallest(at_place: CutTranslation, order: Tensor, seed: int) -> dict[str, Any]:
    """Search for a small set of edges that makes the piece win: the same search for every piece.

    Sets of all densities are drawn; where the piece wins in none, the one in which it is closest is changed,
    a tenth of its edges and as many others at a time, in ``CLIMBS`` steps. The smallest set in which the
    piece wins is pruned in ``order``.

    Returns
    -------
    dict
        ``whole``, the piece's probability with all edges; ``climbs``, steps; and if a set was found, its
        ``edges`` and the piece's ``probability`` with it.
    """
    start, climbs = winning(at_place, torch.Generator().manual_seed(seed))
    everything = torch.ones(1, len(order), dtype=torch.bool)
    row: dict[str, Any] = {"whole": at_place.chosen(everything).exp().item(), "climbs": climbs}
    if start is not None:
        kept = prune(at_place, order, start)
        row |= {"edges": int(kept.sum()), "probability": at_place.chosen(kept[None]).exp().item()}
    return row


def winning(at_place: CutTranslation, generator: torch.Generator) -> tuple[Tensor | None, int]:
    """Return the smallest set found in which the piece wins, bool [E], if any, and how many steps it took."""
    total = len(at_place.edges)
    density = 2 ** -(7 * torch.rand(SETS, 1, generator=generator))
    sets = torch.rand(SETS, total, generator=generator) < density
    for climbs in range(CLIMBS + 1):
        leads = torch.cat([at_place.leads(part)[:, 0] for part in sets.split(TRIES)])
        if bool((leads > MARGIN).any()):
            found = sets[leads > MARGIN]
            return found[found.sum(1).argmin()], climbs
        best = sets[leads.argmax()]
        share = torch.where(best, 0.1, 0.1 * max(int(best.sum()), 10) / total)
        sets = torch.cat([best[None], best ^ (torch.rand(TRIES, total, generator=generator) < share)])
    return None, CLIMBS


def need(sentence: CutTranslation) -> dict[str, Any]:
    """Tell whether the translation changes without its circuit, and without as many edges that are like it.

    Each edge's match has the same graph, layer, head and receiver, and another sender, outside of the
    circuit: the heaviest such, or a random one. Edges of receivers that have none left are cut in neither
    case.
    """
    kept = prune(sentence, sentence.weights.argsort())
    drawn = torch.rand(len(kept), generator=torch.Generator().manual_seed(0))
    paired, heaviest, any_ = (torch.zeros_like(kept) for _ in range(3))
    for edge in kept.nonzero()[:, 0].tolist():
        alike = (sentence.edges[:, :4] == sentence.edges[edge, :4]).all(1) & ~kept
        for score, matches in ((sentence.weights, heaviest), (drawn, any_)):
            left = alike & ~matches
            if bool(left.any()):
                paired[edge] = True
                matches[score.masked_fill(~left, -1).argmax()] = True
    holds = sentence.unchanged(~torch.stack([kept, paired, heaviest, any_])).tolist()
    changed = zip(("circuit", "paired", "heaviest", "random"), holds, strict=True)
    return {"edges": int(kept.sum()), "pairs": int(paired.sum())} | {name: not held for name, held in changed}


def specific_parts() -> Iterator[Part]:
    """Words and need for each translator, and words in weights as they are drawn."""
    for artifact in ("tatoeba", "multi30k"):
        yield from _parts("words", artifact, SENTENCES)
        yield from _parts("words", artifact, 50, trained=False)
        yield from _parts("need", artifact, SENTENCES)


def _parts(what: str, artifact: str, count: int, trained: bool = True) -> Iterator[Part]:
    name = f"{artifact}, {what}" if trained else f"{artifact}, {what}, untrained"
    for first in range(0, count, PART):
        settings = {"what": what, "artifact": artifact, "first": first, "trained": trained}
        yield Part(name, measure_part, settings)
