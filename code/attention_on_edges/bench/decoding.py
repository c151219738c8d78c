"""Decoding: speed from text to text, and the same targets with and without cached keys and values."""

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from attention_on_edges import runs
from attention_on_edges.bench.baselines import Recomputation
from attention_on_edges.bench.harness import Case, Row, Run, in_turns
from attention_on_edges.decoding import Continuation, Hypothesis, beam_search
from attention_on_edges.runs import artifacts

BEAM = 5

LENGTHS = (10, 20, 40, 80, 160)

WAYS = {"cached": Continuation, "recomputed": Recomputation}


def decoding_plan(small: bool = False) -> dict[str, Run]:
    """The committed translator on the sentences of Multi30k's test2016."""
    artifact = artifacts.load("multi30k")
    translator = runs.load_translator(artifact)
    texts = ["A man rides a bike.", "A dog."] if small else runs.test_sources(artifact)[:1000]
    symbols = translator.vocabulary.sos_id, translator.vocabulary.eos_id
    sources = [translator.encode(text) for text in texts[:100]]
    model = translator.model
    endless = copy.deepcopy(model)
    with torch.no_grad():
        endless.generator.proj.bias[symbols[1]] = torch.finfo(torch.float32).min
    lengths = {f"{n} tokens": (endless, sources[:2], symbols, n) for n in (LENGTHS[:1] if small else LENGTHS)}
    cached = {"cached": (model, sources, symbols)} | lengths
    return {"text to text": in_turns(lambda _: translation_case(translator, texts))} | {
        name: in_turns(lambda _, setting=setting: cache_case(*setting)) for name, setting in cached.items()
    }


def translation_case(translator: runs.Translator, texts: Sequence[str]) -> Case:
    """Translations of texts, with a beam and greedily."""

    def translate(beam: int) -> Row:
        found = translator(texts, beam=beam, max_repeats=None, copy=False)
        return {"sentences": len(texts), "tokens": sum(len(best.pieces) for best, *_ in found)}

    ways = {f"beam {BEAM}": partial(translate, BEAM), "greedy": partial(translate, 1)}
    return Case(
        f"{len(texts):,} sentences, from text to text", ways, first="greedy", facts=lambda found: found
    )


def cache_case(
    model: Any, sources: Sequence[Sequence[int]], symbols: tuple[int, int], length: int | None = None
) -> Case:
    """The same targets, of a given length at most, with and without a cache; ``error``: how many differ."""

    def search(way: str) -> list[Hypothesis]:
        found = beam_search(model, sources, *symbols, BEAM, max_len=length, grow=WAYS[way])
        return [best for best, *_ in found]

    expected = [best.ids for best in search("cached")]

    def differ(found: list[Hypothesis]) -> Row:
        return {"error": float(sum(best.ids != ids for best, ids in zip(found, expected, strict=True)))}

    workload = f"{len(sources)} sources, targets of up to {max(map(len, expected))} tokens"
    return Case(workload, {way: partial(search, way) for way in WAYS}, first="cached", facts=differ)
