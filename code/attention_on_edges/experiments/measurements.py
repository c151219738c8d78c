"""Measurements of chapters 9 and 10: evaluations of committed models."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest, Result

from attention_on_edges.analysis.heads import Head, heads_of, importance, without_heads
from attention_on_edges.analysis.long_context import on_source_graph, source_edges
from attention_on_edges.data.corpora.annotated import hansards, treebank
from attention_on_edges.data.corpora.captions import gold_captions
from attention_on_edges.data.corpora.files import sha256_of
from attention_on_edges.data.metrics import bleu
from attention_on_edges.data.text_dataset import TextDataset
from attention_on_edges.experiments import artifacts
from attention_on_edges.experiments.annotated import CHOSEN_ON, Rows, measure_alignment, measure_syntax
from attention_on_edges.experiments.artifacts import Artifact
from attention_on_edges.experiments.circuits import SENTENCES, measure_circuits, measure_golf
from attention_on_edges.experiments.runs import restore, search_of
from attention_on_edges.experiments.scores import tokenised, translate, validated_search
from attention_on_edges.experiments.studies import Results
from edgewise.graphs import GraphPool
from edgewise.models.transformer import Transformer
from edgewise.training import LabelSmoothing

Translations = Mapping[str, list[str]]
"""Each model's translations of one test set."""

TRIALS, RESAMPLES = 10_000, 1000
"""Of a paired test, and of an interval."""

VALIDATED = ", validated search"
"""Marks a model whose recipe fixes the search, searched as validation would have chosen."""

GOLD_CAPTIONS = 1100
"""How many captions of the grammar are aligned and parsed; heads are chosen on the first hundred."""


@dataclass(frozen=True)
class Measurement:
    """An evaluation of a committed model.

    Attributes
    ----------
    name : str
        Its name on the command line and in ``book/studies``.
    about : str
        The question.
    artifact : str
        Which model.
    measure : callable
        Takes the artifact; returns rows of figures.
    """

    name: str
    about: str
    artifact: str
    measure: Callable[[Artifact], Rows]


def run_measurement(measurement: Measurement, folder: Path) -> Path:
    """Measure; write ``NAME.json``, in the format of a study's results, into a folder.

    Raises
    ------
    InputError
        If there is no such artifact.
    CorpusError
        If the data cannot be had or used.
    """
    artifact = artifacts.load(measurement.artifact)
    began, facts = time.monotonic(), artifacts.facts("cpu")
    rows = measurement.measure(artifact)
    config = {"name": measurement.name, "about": measurement.about, "artifact": artifact.name}
    config["weights"] = digest_of_weights(artifact)
    provenance = facts | {"seconds": time.monotonic() - began}
    return Results(config, rows, provenance).write(folder)


def digest_of_weights(artifact: Artifact) -> str:
    """Return the sha256 of an artifact's weights file."""
    return sha256_of(artifact.folder / artifacts.WEIGHTS)


def measure_pruning(
    model: Transformer, data: TextDataset, split: str = "test2016", step: int = 4, seeds: int = 3
) -> Rows:
    """Return BLEU with each head pruned, and with heads pruned cumulatively in three orders.

    Heads are ranked by :func:`~attention_on_edges.analysis.importance` on the validation split; BLEU is that
    of greedy decoding on ``split``. A single head's loss comes with its p-value by :func:`paired_tests`.

    Returns
    -------
    list of dict
        First the whole model's (``kind`` ``"whole"``); for each head one of kind ``"one"``; then, with
        ``kind`` ``"least first"``, ``"most first"`` or ``"random"``, one for each number pruned.
    """
    criterion = LabelSmoothing(data.vocab_size, data.pad_id)
    weight = importance(model, data(GraphPool(), "valid", 100), criterion)
    ranked = sorted(weight, key=lambda head: (weight[head], head))
    sources, references = zip(*data.corpus.splits[split], strict=True)

    def without(heads: list[Head]) -> list[str]:
        with without_heads(model, heads):
            return translate(model, data, sources)

    whole = without([])
    rows: Rows = [{"kind": "whole", "bleu": bleu(whole, references).value, "heads": len(ranked)}]
    heads = heads_of(model)
    found = [without([head]) for head in heads]
    results = paired_tests(whole, found, references)[1:]
    for head, written, result in zip(heads, found, results, strict=True):
        place = {"graph": head.graph, "layer": head.layer, "head": head.number}
        figures = {"importance": weight[head], "bleu": bleu(written, references).value, "p": result.p_value}
        rows.append({"kind": "one"} | place | figures)
    drawn = [np.random.default_rng(seed).permutation(len(ranked)) for seed in range(seeds)]
    orders = [("least first", 0, ranked), ("most first", 0, ranked[::-1])]
    orders += [("random", seed, [ranked[i] for i in order]) for seed, order in enumerate(drawn)]
    for kind, seed, order in orders:
        for count in range(step, len(order) + 1, step):
            score = bleu(without(order[:count]), references).value
            rows.append({"kind": kind, "seed": seed, "removed": count, "bleu": score})
    return rows


def measure_windows(model: Transformer, data: TextDataset, split: str = "test2016") -> Rows:
    """Return BLEU of greedy decoding on ``split`` as the trained encoder's window shrinks.

    Returns
    -------
    list of dict
        For each graph over the source: its kind, its reach, edges per token, BLEU, half the width of its
        95 % ``interval``, and ``p`` of its difference from the complete graph, which comes first.
    """
    sources, references = zip(*data.corpus.splits[split], strict=True)
    sizes = [len(data.splitter.split(source)) for source in sources]
    graphs = [("complete", 0), *(("window", reach) for reach in (12, 8, 5, 4, 3, 2, 1, 0))]
    whole, *limited = (translate(on_source_graph(model, *graph), data, sources) for graph in graphs)
    results = paired_tests(whole, limited, references)
    return [
        {"graph": kind, "reach": reach, "edges": source_edges(kind, reach, sizes), "bleu": result.score}
        | {"interval": result.ci, "p": result.p_value}
        for (kind, reach), result in zip(graphs, results, strict=True)
    ]


def measure_bleu(found: Mapping[str, Translations], published: Mapping[str, Sequence[str]]) -> Rows:
    """Return BLEU of several models' translations, lower-cased and tokenised, with bootstrap intervals.

    Parameters
    ----------
    found : mapping
        For each test set each model's translations, tokenised; others are compared with the first.
    published : mapping
        The references of each test set.

    Returns
    -------
    list of dict
        For each ``test`` and ``model``: ``bleu``, half the width of its 95 % ``interval``, ``brevity`` (the
        brevity penalty), and ``p`` of its difference from the first model, which has none.
    """
    rows: Rows = []
    for test, by_model in found.items():
        first, *others = by_model
        systems = [by_model[name] for name in others]
        results = paired_tests(by_model[first], systems, published[test], tokenised=True)
        for name, result in zip(by_model, results, strict=True):
            brevity = _metric(True).corpus_score(by_model[name], [published[test]]).bp
            row = {"test": test, "model": name, "bleu": result.score, "interval": result.ci}
            rows.append(row | {"brevity": brevity, "p": result.p_value})
    return rows


def paired_tests(
    baseline: list[str], systems: list[list[str]], references: Sequence[str], tokenised: bool = False
) -> list[Result]:
    """Return BLEU, half of its 95 % interval, and two-sided p-values of the differences from a baseline.

    Intervals are by bootstrap (Koehn 2004), of 1,000 resamples; p-values by approximate randomisation
    (Riezler and Maxwell 2005), of 10,000 trials. The baseline's result, which has no p-value, comes first.
    """
    named = [("baseline", baseline), *((str(i), written) for i, written in enumerate(systems))]
    metrics = {"BLEU": _metric(tokenised, references)}
    _, scores = PairedTest(named, metrics, None, "ar", TRIALS, n_ar_confidence=RESAMPLES)()
    results: list[Result] = scores["BLEU"]
    for result in results[1:]:
        if result.score == results[0].score:
            result.p_value = 1.0  # for sacreBLEU, no difference is the most significant
    return results


def _metric(tokenised: bool, references: Sequence[str] | None = None) -> BLEU:
    settings = {"tokenize": "none", "force": True} if tokenised else {}
    return BLEU(references=None if references is None else [list(references)], **settings)


def _circuits(artifact: Artifact) -> Rows:
    model, data = restore(artifact)
    texts = data.splits[artifact.experiment.tests[0]][:SENTENCES]
    return measure_circuits(model, [data.encode(source) for source, _ in texts])


def _syntax(artifact: Artifact) -> Rows:
    model, data = restore(artifact)
    drawn = artifact.experiment.build(data.vocab_size).eval()
    splits = {split: treebank(split) for split in ("valid", "test")}
    return measure_syntax({"trained": model, "drawn": drawn}, data, splits)


def _bleu(artifact: Artifact) -> Rows:
    names = [artifact.name, *(name for name in artifacts.names() if name.startswith("multi30k-"))]
    found: dict[str, dict[str, list[str]]] = {test: {} for test in artifact.experiment.tests}
    weights: dict[str, str] = {}
    for name in names:
        other = artifacts.load(name)
        model, data = restore(other)
        searches = {name: search_of(other)}
        if other.experiment.search is not None:
            searches[name + VALIDATED] = validated_search(other.metrics["valid_by_penalty"])
        weights |= dict.fromkeys(searches, digest_of_weights(other))
        for test, by_model in found.items():
            sources = [source for source, _ in data.corpus.splits[test]]
            for label, search in searches.items():
                by_model[label] = tokenised(data, translate(model, data, sources, search))
    published = {test: [target for _, target in data.corpus.tokenised[test]] for test in found}
    return [row | {"weights": weights[row["model"]]} for row in measure_bleu(found, published)]


def _gold_captions(artifact: Artifact) -> Rows:
    model, data = restore(artifact)
    drawn = artifact.experiment.build(data.vocab_size).eval()
    pairs, parses = zip(*gold_captions(GOLD_CAPTIONS), strict=True)
    splits = {"valid": parses[:CHOSEN_ON], "test": parses[CHOSEN_ON:]}
    rows = measure_alignment(model, data, pairs, own=artifact.experiment.tests[0])
    return rows + measure_syntax({"trained": model, "drawn": drawn}, data, splits)


_FEW, _KEEP = "How few edges does a translation need?", "How few edges keep these translations?"

MEASUREMENTS = {
    name: Measurement(name, about, artifact, measure)
    for name, about, artifact, measure in (
        ("bleu", "How sure is each translator's BLEU?", "multi30k", _bleu),
        (
            "pruning",
            "How many of its heads does a translator need?",
            "multi30k",
            lambda artifact: measure_pruning(*restore(artifact)),
        ),
        (
            "alignment",
            "Does cross-attention say which word translates which?",
            "tatoeba",
            lambda artifact: measure_alignment(*restore(artifact), hansards()),
        ),
        (
            "windows",
            "How far must a trained encoder attend?",
            "multi30k",
            lambda artifact: measure_windows(*restore(artifact)),
        ),
        ("gold-captions", "Do heads align and parse the grammar's captions?", "multi30k", _gold_captions),
        ("syntax", "Does an encoder's attention follow syntax?", "multi30k", _syntax),
        ("circuits-tatoeba", _FEW, "tatoeba", _circuits),
        ("golf-tatoeba", _KEEP, "tatoeba", measure_golf),
        ("circuits-multi30k", _FEW, "multi30k", _circuits),
        ("golf-multi30k", _KEEP, "multi30k", measure_golf),
    )
}
