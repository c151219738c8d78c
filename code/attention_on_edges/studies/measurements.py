"""Measurements of chapters 8 to 10: evaluations of committed models."""

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from torch import nn

from attention_on_edges.corpora.captions import gold_captions
from attention_on_edges.corpora.files import sha256_of
from attention_on_edges.corpora.gold_annotations import hansards, treebank
from attention_on_edges.corpora.text_dataset import TextDataset
from attention_on_edges.models.sparse_translator import on_source_graph, source_edges
from attention_on_edges.models.transformer import Transformer
from attention_on_edges.runs import artifacts
from attention_on_edges.runs.artifacts import Artifact
from attention_on_edges.runs.lens import measure_lens
from attention_on_edges.runs.running import restore, search_of
from attention_on_edges.runs.scores import tokenised, translate, validated_search
from attention_on_edges.runs.study_results import Results, Rows
from attention_on_edges.studies.alignment import CHOSEN_ON, measure_alignment
from attention_on_edges.studies.bleu import measure_bleu, paired_tests
from attention_on_edges.studies.enough_edges import SENTENCES, measure_circuits
from attention_on_edges.studies.heads import measure_pruning
from attention_on_edges.studies.syntax import measure_syntax

VALIDATED = ", validated search"
"""Marks a model whose recipe fixes the search, searched as validation would have chosen."""


GOLD_CAPTIONS = 1100
"""How many captions of the grammar are aligned and parsed; heads are chosen on the first hundred."""


class Measurement(NamedTuple):
    """An evaluation: its name, as in ``book/studies``, the question, which model, and its rows of figures."""

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


def measure_windows(model: Transformer, data: TextDataset, split: str = "test2016") -> Rows:
    """Return BLEU of greedy decoding on ``split`` as the trained encoder's window shrinks.

    Returns
    -------
    list of dict
        For each graph over the source: its kind, its reach, edges per token, BLEU, half the width of its
        95 % ``interval``, and ``p`` of its difference from the complete graph, which comes first. In the
        last row the encoder's attention adds nothing.
    """
    sources, references = zip(*data.corpus.splits[split], strict=True)
    sizes = [len(data.splitter.split(source)) for source in sources]
    graphs = [("complete", 0), *(("window", reach) for reach in (12, 8, 5, 4, 3, 2, 1, 0))]
    models = [*(on_source_graph(model, *graph) for graph in graphs), _without_attention(model)]
    whole, *limited = (translate(each, data, sources) for each in models)
    results = paired_tests(whole, limited, references)
    graphs.append(("no attention", 0))
    return [
        {"graph": kind, "reach": reach, "bleu": result.score, "interval": result.ci, "p": result.p_value}
        | {"edges": 0 if kind == "no attention" else source_edges(kind, reach, sizes)}
        for (kind, reach), result in zip(graphs, results, strict=True)
    ]


def _without_attention(model: Transformer) -> Transformer:
    """The model whose encoder's attention adds nothing to a state."""
    silent = copy.deepcopy(model)
    for layer in silent.encoder.layers:
        for parameter in layer.self_attn.out_proj.parameters():
            nn.init.zeros_(parameter)
    return silent


def _of(measure: Callable[..., Rows]) -> Callable[[Artifact], Rows]:
    """Of an artifact's model and data."""
    return lambda artifact: measure(*restore(artifact))


def _alignment(artifact: Artifact) -> Rows:
    return measure_alignment(*restore(artifact), hansards())


def _circuits(artifact: Artifact) -> Rows:
    model, data = restore(artifact)
    return measure_circuits(model, _held_out(artifact, data, SENTENCES))


def _lens(artifact: Artifact, sentences: int) -> Rows:
    model, data = restore(artifact)
    return measure_lens(model, _held_out(artifact, data, sentences))


def _held_out(artifact: Artifact, data: TextDataset, count: int) -> list[list[int]]:
    """The first sources of an artifact's first test split."""
    return [data.encode(source) for source, _ in data.splits[artifact.experiment.tests[0]][:count]]


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


_FEW = "How few edges does a translation need?"

_WRITES = "What would a state write, if the decoder stopped there?"


MEASUREMENTS = {
    name: Measurement(name, about, artifact, measure)
    for name, about, artifact, measure in (
        ("bleu", "How sure is each translator's BLEU?", "multi30k", _bleu),
        ("pruning", "How many of its heads does a translator need?", "multi30k", _of(measure_pruning)),
        ("alignment", "Does cross-attention say which word translates which?", "tatoeba", _alignment),
        ("windows", "How far must a trained encoder attend?", "multi30k", _of(measure_windows)),
        ("gold-captions", "Do heads align and parse the grammar's captions?", "multi30k", _gold_captions),
        ("syntax", "Does an encoder's attention follow syntax?", "multi30k", _syntax),
        ("circuits-tatoeba", _FEW, "tatoeba", _circuits),
        ("circuits-multi30k", _FEW, "multi30k", _circuits),
        ("lens-tatoeba", _WRITES, "tatoeba", lambda artifact: _lens(artifact, 300)),
        ("lens-multi30k", _WRITES, "multi30k", lambda artifact: _lens(artifact, 200)),
    )
}
