import json
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from attention_on_edges import corpora, runs
from attention_on_edges.corpora.preparation import moses
from attention_on_edges.corpora.text_dataset import TextDataset
from attention_on_edges.corpora.tokenization import BPE
from attention_on_edges.decoding import Hypothesis
from attention_on_edges.runs import Experiment, Search, Translation, artifacts, scores
from attention_on_edges.runs.metrics import bleu, tokenized_bleu
from book_support import TINY_TEXT


@pytest.fixture(scope="module")
def corpus():
    full = corpora.load("captions", train=150, valid=60, test=60)
    few = {mode: sorted(full.splits[mode], key=lambda pair: len(pair[0]))[:10] for mode in ("valid", "test")}
    full = replace(full, splits=full.splits | few)
    sides = (moses(side, "de") for side in zip(*full.splits["test"], strict=True))
    tokenised = {"test": list(zip(*sides, strict=True))}
    return replace(full, tokenised=tokenised)


@pytest.fixture
def small(corpus, few, monkeypatch):
    monkeypatch.setattr(corpora, "load", lambda name: corpus)


def test_bpe_dropout_may_end_before_training_does(small, tmp_path):
    tokenizer = replace(TINY_TEXT.tokenizer, dropout_epochs=1)
    training = replace(TINY_TEXT.training, epochs=2)
    run = runs.start(replace(TINY_TEXT, training=training, tokenizer=tokenizer), tmp_path)
    run.train()
    tokens = {1: 0, 2: 0}
    for line in map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines()):
        if "rate" in line:
            tokens[line["epoch"]] += line["tokens"]
    as_in_use = sum(len(target) + 1 for _, target in run.data.splits["train"])
    assert tokens[1] > 1.1 * as_in_use == 1.1 * tokens[2]


def test_a_run_on_text_leaves_an_artifact_that_translates_without_the_corpus(small, tmp_path, monkeypatch):
    run = runs.start(TINY_TEXT, tmp_path)
    run.train()
    assert {"loss", "accuracy", "bleu", "chrf"} <= run.epochs[0]["valid"].keys()
    artifact = runs.finish(run, TINY_TEXT)
    assert Experiment.of(artifact.config) == TINY_TEXT
    search = runs.search_of(artifact)
    by_penalty = artifact.metrics["valid_by_penalty"]
    assert (
        by_penalty[str(search.length_penalty)]
        == max(by_penalty.values())
        == artifact.metrics["valid"]["bleu"]
    )
    assert artifact.metrics["test"]["references_reproduced"] == 1.0
    model, data = runs.restore(artifact)
    assert runs.figures(model, data, "test", search=search) == pytest.approx(
        artifact.metrics["test"], rel=1e-5
    )
    texts = ["A man rides a bike.", "🚲"]
    expected = runs.translate(model, data, texts, search)

    def gone(name):
        raise corpora.CorpusError("no corpus here")

    monkeypatch.setattr(corpora, "load", gone)
    with pytest.raises(corpora.CorpusError):
        runs.restore(artifact)
    alone = runs.load_translator(artifact)
    assert [one.text for one in alone(texts)] == expected


@pytest.fixture(scope="module")
def folder(corpus, few, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpora, "load", lambda name: corpus)
        run = runs.start(TINY_TEXT, tmp_path_factory.mktemp("run"))
        run.train()
        return runs.finish(run, TINY_TEXT).folder


WITHOUT_NETWORK = """
import os, runpy, sys
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "urllib.Request"):
        os.write(2, f"{event} {arguments}".encode())
        os._exit(99)
sys.addaudithook(refuse)
runpy.run_module("attention_on_edges", run_name="__main__")
"""


@pytest.fixture
def translator(folder):
    return runs.load_translator(artifacts.load(folder))


class TestTranslator:
    def test_attention_is_that_of_the_rows_that_wrote_the_pieces(self, translator):
        text = "A man rides a bike."
        pieces = translator.splitter.split("Ein Mann")
        ids = tuple(translator.vocabulary.encode(pieces))
        translation = Translation("Ein Mann", pieces, Hypothesis(ids, True, -1.0, -1.0))
        source, crossed, target = translator.attention(text, translation)
        columns, rows = len(translator.splitter.split(text)), len(ids) + 1
        assert source.shape == (2, columns, columns)
        assert crossed.shape == (2, rows, columns)
        assert target.shape == (2, rows, rows)
        torch.testing.assert_close(crossed.sum(-1), torch.ones(2, rows))

    def test_it_answers_from_a_cold_start_without_network_or_corpus(self, folder, tmp_path):
        copy, cache = tmp_path / "copy", tmp_path / "cache"
        made = artifacts.load(folder)
        parts = made.config | {"task": "multi30k"}, made.metrics, made.provenance
        tokenizer = (folder / artifacts.TOKENIZER).read_text("utf-8")
        artifacts.write(copy, artifacts.halved(made.weights), *parts, tokenizer)
        environment = {k: v for k, v in os.environ.items() if k != "EDGEWISE_DATA"}
        environment |= {"EDGEWISE_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", WITHOUT_NETWORK, "translate", "A man.", "--model", str(copy)]
        found = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert (found.returncode, found.stderr) == (0, "")
        assert found.stdout.count("\n") == 1
        assert not cache.exists()


@pytest.fixture(scope="module")
def data(corpus):
    return TextDataset(corpus, BPE.train((t for pair in corpus.splits["train"] for t in pair), 400))


def test_figures_are_those_of_the_translations(corpus, data):
    model = TINY_TEXT.build(data.vocab_size).eval()
    search = Search(3, 1.0, 0)
    found = runs.translate(model, data, [source for source, _ in corpus.splits["test"]], search)
    figures = runs.decoded_figures(model, data, "test", search=search)
    assert figures["bleu"] == bleu(found, [target for _, target in corpus.splits["test"]]).value
    published = [target for _, target in corpus.tokenised["test"]]
    assert figures["bleu_tokenised"] == tokenized_bleu(moses(found, "de"), published).value


def test_validation_chooses_the_length_penalty(corpus, data, few, monkeypatch):
    references = [target for _, target in corpus.splits["valid"]]

    def translate(model, data, texts, search):
        assert texts == [source for source, _ in corpus.splits["valid"]]
        assert search.beam == scores.BEAM
        return references if search.length_penalty == 1.0 else ["Nichts."] * len(texts)

    monkeypatch.setattr(scores, "translate", translate)
    search, by_penalty = scores.choose_search(None, data)
    assert search == Search(5, 1.0)
    assert by_penalty["1.0"] == pytest.approx(100)
    assert by_penalty["0.0"] < 10


def test_scores_are_of_the_model_alone(monkeypatch):
    """Without the guard against loops, and without names that are copied."""
    given = {}

    def translator(*_, **__):
        return lambda texts, beam, **options: given.update(options) or [SimpleNamespace(text="x")]

    monkeypatch.setattr(scores, "Translator", translator)
    assert scores.translate(None, SimpleNamespace(splitter=None), ["a"]) == ["x"]
    assert given == {"max_repeats": None}
