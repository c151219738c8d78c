"""What the repository holds under ``book/artifacts``: the weights, the data, and what is said of them."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median

import pytest
import torch

from attention_on_edges import corpora, runs
from attention_on_edges.corpora.files import json_digest
from attention_on_edges.corpora.preparation import prepared
from attention_on_edges.decoding import greedy
from attention_on_edges.pool import GraphPool
from attention_on_edges.runs import EXPERIMENTS, Experiment, UniversalConfig, artifacts
from attention_on_edges.runs.study_results import load_study
from attention_on_edges.studies.many_graphs import ORDERS
from attention_on_edges.tasks import ANSWERS, get_dataset
from book_support import corpus_of, torch_greedy, torch_twin
from support import assert_equal_as_stated

ROOT = Path(__file__).resolve().parents[2]

KINDS = {"copy", "sort", "sort-universal"}
"""Committed models whose figures are worked out in every run; others take their turn in the scheduled one."""

FIRST_SEEDS = {name for name in artifacts.names() if "seed" not in name}


def committed(daily=None):
    """The committed artifacts, or those of ``daily`` in every run; those of text need their corpus."""
    for name in artifacts.names():
        marks = [pytest.mark.corpus] if artifacts.load(name).config.get("tokenizer") else []
        marks += [] if daily is None or name in daily else [pytest.mark.nightly]
        yield pytest.param(name, marks=marks)


toy_of = cache(get_dataset)


@cache
def restored(name):
    """Model and data of a committed artifact, but no text to train on, which takes long to split."""

    def tested_on(task):
        corpus = corpus_of(task)
        return replace(corpus, splits=corpus.splits | {"train": []})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpora, "load", tested_on)
        patch.setattr("attention_on_edges.runs.loading.get_dataset", toy_of)
        return runs.restore(artifacts.load(name))


DECODED = {"exact_match", "token_accuracy", "bleu", "chrf", "bleu_tokenised", "references_reproduced"}
"""Figures of what a model decodes."""


def test_every_finished_experiment_has_its_artifact():
    assert set(artifacts.names()) == EXPERIMENTS.keys() - runs.LARGE


@pytest.mark.parametrize("name", artifacts.names())
def test_an_artifact_is_of_the_experiment_as_it_is_now(name):
    artifact = artifacts.load(name)
    assert Experiment.of(artifact.config) == EXPERIMENTS[name]
    assert artifact.provenance["commit"]
    assert not artifact.provenance["changed"]
    assert sum(p.stat().st_size for p in artifact.folder.iterdir()) < 8e6


@cache
def digest(task, seed, languages=None):
    """Of a toy task's pairs, or of a corpus, prepared or not, which is the same from any seed."""
    data = toy_of(task, seed) if task in ANSWERS else corpus_of(task)
    return json_digest((prepared(data, languages) if languages else data).splits)


@pytest.mark.parametrize("name", [*committed(FIRST_SEEDS)])
def test_it_was_trained_on_the_data_as_they_are_now(name):
    experiment = EXPERIMENTS[name]
    languages = experiment.tokenizer and experiment.tokenizer.moses
    expected = digest(experiment.task, experiment.training.seed, languages)
    assert artifacts.load(name).provenance["data"] == expected


def found_figures(name, limit=None):
    """Yield each split and figure with what the weights score and what the artifact holds."""
    artifact, experiment = artifacts.load(name), EXPERIMENTS[name]
    search = runs.search_of(artifact)
    found = runs.final_figures(experiment, *restored(name), search, limit)
    assert found.keys() == set(experiment.tests)
    for split, figures in found.items():
        recorded = artifact.metrics[split]
        assert figures.keys() == recorded.keys()
        yield from ((split, figure, value, recorded[figure]) for figure, value in figures.items())


@pytest.mark.parametrize("name", [*committed(KINDS)])
def test_its_figures_hold(name):
    for split, figure, value, recorded in found_figures(name):
        within = 0.1 if figure.startswith(("bleu", "chrf")) else 0.0021
        assert value == pytest.approx(recorded, abs=within), f"{split}: {figure}"


@pytest.mark.parametrize("name", [p for p in committed(FIRST_SEEDS) if p.values[0] not in KINDS])
def test_its_predictions_of_the_next_symbol_hold(name):
    """What the models predict from the truth takes no decoding: it is worked out in every run."""
    for split, figure, value, recorded in found_figures(name, limit=1):
        if figure not in DECODED:
            assert value == pytest.approx(recorded, abs=0.0021), f"{split}: {figure}"


@pytest.mark.parametrize("name", [*committed(KINDS)])
def test_a_committed_run_can_be_repeated(name, tmp_path):
    experiment = EXPERIMENTS[name]
    run = runs.start(experiment, tmp_path)
    run.train(max_steps=5)
    assert len(run.losses) == 5 * experiment.training.grad_accum
    recorded = artifacts.load(name).metrics["losses"][: len(run.losses)]
    assert run.losses == pytest.approx(recorded, rel=1e-2 if experiment.training.autocast else 1e-4)


@pytest.mark.parametrize(
    "name",
    [
        p
        for p in committed({*KINDS, "multi30k-window"})
        if not isinstance(model := EXPERIMENTS[p.values[0]].model, UniversalConfig) and model.norm_first
    ],
)
def test_pytorchs_layers_with_the_same_weights_write_alike(name):
    """The graph costs nothing: the same log-probabilities, the same words, hence the same BLEU."""
    model, data = restored(name)
    split = EXPERIMENTS[name].tests[0]
    twin = torch_twin(model)
    pairs = [[data.encode(side) for side in pair] for pair in data.splits[split][:100]]
    sources = [source for source, _ in pairs]
    targets = [[data.sos_id, *target, data.eos_id] for _, target in pairs]
    with torch.no_grad():
        ids = ([torch.tensor(one) for one in side] for side in (sources, targets))
        (expected, wanted), batch = twin.double()(*ids), GraphPool()(sources, targets)
        assert_equal_as_stated(model(batch), expected.log_softmax(1))
        assert torch.equal(wanted, batch.tgt_y)
    ours = [h.ids for h in greedy(model, sources, data.sos_id, data.eos_id)]
    limits = [2 * len(source) + 10 for source in sources]
    theirs = torch_greedy(twin.float(), sources, data.sos_id, data.eos_id, limits)
    assert ours == [tuple(ids) for ids in theirs]


def test_the_results_of_readme_and_home_page_are_those_of_the_studies():
    specific = {row["variant"]: [] for row in load_study("specific").rows}
    for row in load_study("specific").rows:
        specific[row["variant"]] += row["sentences"]
    needed = specific["tatoeba, need"]
    without = [sum(row[what] for row in needed) for what in ("paired", "heaviest")]
    words = [one for one in specific["tatoeba, words"] if "cut, of the sentence" in one]
    right, wrong = (
        median(one[f"cut, {word}"].get("edges", 999) for one in words) for word in ("own", "of the sentence")
    )
    missing = [
        p["cuts"]
        for row in load_study("language-model").rows
        if row["variant"] == "who is missing"
        for p in row["prompts"]
    ]
    named = {cut: sum(cuts[cut][0] > 0 for cuts in missing) for cut in missing[0]}
    took = {(row["workload"], row["contestant"]): row["seconds"] for row in load_study("bench-unseen").rows}
    mask = {g: took[g, way] / took[g, "csr"] for g, way in took if way == "a dense mask"}
    sparse = [mask[g] for g in mask if g.startswith(("Cora", "roads, 4,800"))]
    molecules, texts = (mask[f"{g}, as it comes, 4 x 32"] for g in ("256 molecules", "20 texts of 120-200"))
    sentence = load_study("first-cuts").config["sentence"]
    assert (right, wrong, len(ORDERS), len(sentence["kept"])) == (1, 3, 3, 10)
    results = (
        f"Ten of {sentence['edges']:,} suffice",
        f"over {len(words)} sentences, the right word wins its place with one edge (the median)",
        f"cut only the edges that suffice, and {without[0]} sentences change",
        f"cut as many others of the same heads, and {without[1]} do",
        f"In {len(missing)} texts such as",
        f"prefers the right name, here *Mary*, {named['nothing']} times",
        f"{named['all into the repeated word']} times, no more than chance, without the lines into",
        f"and {named['all into a word beside it']} times without those into another word",
        f"takes {min(sparse):.0f} to {max(sparse):.0f} times as long as the edges",
        f"on molecules {molecules:.0f} times, on whole texts {texts:.1f} times",
    )
    for page in ("README.md", "book/index.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert [said for said in results if said not in text] == []
    assert f"{len((ROOT / 'code/one_file.py').read_text().splitlines())} lines" in text
