"""Decoding: speed, savings of the key-value cache, and time by target length."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from attention_on_edges.benchmarks.baselines import Recomputation
from attention_on_edges.benchmarks.timing import interleave
from attention_on_edges.figures import Table, table
from edgewise.decoding import Continuation, Hypothesis, beam_search
from edgewise.models.transformer import Transformer

BEAM = 5

LENGTHS = (10, 20, 40, 80, 160)

Sources = Sequence[Sequence[int]]
"""Ids of source sentences."""

WAYS = {"cached": Continuation, "recomputed": Recomputation}


@dataclass(frozen=True)
class DecodingRow:
    """Time that one way of decoding took for some texts, from text to text.

    Attributes
    ----------
    beam : int
        Hypotheses kept; one is greedy decoding.
    sentences, tokens : int
        Texts, and pieces of their translations.
    seconds : float
        For all of them.
    """

    beam: int
    sentences: int
    tokens: int
    seconds: float


@dataclass(frozen=True)
class CacheRow:
    """Time for the same targets with and without cached keys and values.

    Attributes
    ----------
    sentences : int
        Sources, decoded together with a beam of ``BEAM``.
    length : int
        Tokens of the longest target.
    cached, recomputed : float
        Seconds.
    """

    sentences: int
    length: int
    cached: float
    recomputed: float


def bench_decoding(
    translate: Callable[..., list[list[Any]]], texts: Sequence[str], repeats: int = 3
) -> list[DecodingRow]:
    """Measure translation of texts with a beam of ``BEAM``, and greedily.

    Parameters
    ----------
    translate : callable
        As ``experiments.Translator``: takes texts and a beam, returns lists of translations with ``pieces``.
    texts : sequence of str
        What to translate.
    repeats : int
        Measured turns of each.
    """
    pieces: dict[int, int] = {}

    def run(beam: int) -> None:
        pieces[beam] = sum(len(best.pieces) for best, *_ in translate(texts, beam=beam))

    seconds = interleave({str(beam): lambda beam=beam: run(beam) for beam in (BEAM, 1)}, repeats)
    return [DecodingRow(beam, len(texts), pieces[beam], seconds[str(beam)]) for beam in (BEAM, 1)]


def bench_cache(model: Transformer, sources: Sources, sos_id: int, eos_id: int, repeats: int = 3) -> CacheRow:
    """Time beam search with cached keys and values against one that recomputes them.

    Raises
    ------
    RuntimeError
        If the two results differ.
    """
    return _compare(model, sources, (sos_id, eos_id), repeats)


def bench_lengths(
    model: Transformer,
    sources: Sources,
    sos_id: int,
    eos_id: int,
    lengths: Sequence[int] = LENGTHS,
    repeats: int = 3,
) -> list[CacheRow]:
    """The same for targets of given lengths: the end symbol is made impossible.

    Raises
    ------
    RuntimeError
        If the two results differ.
    """
    endless = copy.deepcopy(model)
    with torch.no_grad():
        endless.generator.proj.bias[eos_id] = torch.finfo(torch.float32).min
    return [_compare(endless, sources, (sos_id, eos_id), repeats, length) for length in lengths]


def _compare(
    model: Transformer, sources: Sources, symbols: tuple[int, int], repeats: int, length: int | None = None
) -> CacheRow:
    found: dict[str, list[Hypothesis]] = {}

    def run(way: str) -> None:
        lists = beam_search(model, sources, *symbols, BEAM, max_len=length, grow=WAYS[way])
        found[way] = [best for best, *_ in lists]

    seconds = interleave({way: lambda way=way: run(way) for way in WAYS}, repeats)
    for number, (one, other) in enumerate(zip(*found.values(), strict=True)):
        if one.ids != other.ids:
            raise RuntimeError(f"source {number}: cached gives {one}, recomputed {other}")
    longest = max(len(hypothesis.ids) for hypothesis in found["cached"])
    return CacheRow(len(sources), longest, **seconds)


def format_decoding(rows: Sequence[DecodingRow]) -> Table:
    """Format rows of :func:`bench_decoding` as a table."""
    lines = [
        (
            f"beam {row.beam}" if row.beam > 1 else "greedy",
            row.sentences,
            row.seconds,
            row.sentences / row.seconds,
            row.tokens / row.seconds,
        )
        for row in rows
    ]
    head = ["", "sentences", "seconds", "sentences/s", "target tokens/s"]
    return table(head, lines, ["", "", ".2f", ".1f", ",.0f"])


def format_cache(rows: Sequence[CacheRow]) -> Table:
    """Format rows of :func:`bench_cache` or :func:`bench_lengths` as a table.

    The columns ``growth`` are ratios of a row's time to that of the row above.
    """
    lines = []
    for above, row in zip([None, *rows], rows, strict=False):
        growth = ["", ""]
        if above is not None and above.sentences == row.sentences:
            growth = [f"{row.cached / above.cached:.2f}", f"{row.recomputed / above.recomputed:.2f}"]
        times = [row.cached, growth[0], row.recomputed, growth[1]]
        lines.append([row.sentences, row.length, *times, f"{row.recomputed / row.cached:.1f} x"])
    head = ["sources", "length", "cached, s", "growth", "recomputed, s", "growth", "ratio"]
    return table(head, lines, ["", "", ".3f", "", ".3f", "", ""])
