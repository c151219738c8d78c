"""Text prepared as Multi30k's published files are, and what a model of such text reads and writes."""

from dataclasses import replace

import pytest

from attention_on_edges import corpora, runs
from attention_on_edges.corpora.preparation import moses, plain, prepared
from attention_on_edges.corpora.tokenizer_config import TokenizerConfig
from book_support import TINY_TEXT, corpus_of

LANGUAGES = ("en", "de")


def test_moses_lower_cases_normalises_splits_and_escapes():
    assert moses(["Ein Mann, „der“ A&B-Fahrräder fährt."], "de") == [
        "ein mann , &quot; der &quot; a &amp; b-fahrräder fährt ."
    ]


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["test2016", "test2017"])
def test_moses_reproduces_the_published_references(name):
    found = corpus_of("multi30k")
    ours, published = ([german for _, german in part[name]] for part in (found.splits, found.tokenised))
    assert moses(ours, "de") == published


def test_plain_text_comes_back_but_for_its_case():
    corpus = corpora.load("captions", train=200, valid=1, test=1)
    ours = prepared(corpus, LANGUAGES)
    assert ours.splits.keys() == corpus.splits.keys()
    for number, language in enumerate(LANGUAGES):
        texts, there = ([pair[number] for pair in c.splits["train"]] for c in (corpus, ours))
        assert texts != there
        assert plain(there, language) == [text.lower() for text in texts]


def test_a_model_of_prepared_text_reads_and_writes_plain_text(tmp_path, few, monkeypatch):
    full = corpora.load("captions", train=150, valid=10, test=10)
    published = {"test": prepared(full, LANGUAGES).splits["test"]}
    monkeypatch.setattr(corpora, "load", lambda name: replace(full, tokenised=published))
    tiny = replace(TINY_TEXT, tokenizer=TokenizerConfig(400, moses=LANGUAGES), tests=("test",))
    run = runs.start(tiny, tmp_path)
    run.train()
    assert run.data.corpus.splits["test"] == published["test"]
    artifact = runs.finish(run, tiny)
    assert artifact.metrics["test"]["references_reproduced"] == 1
    translator = runs.load_translator(artifact)
    source = full.splits["test"][0][0]
    assert source != source.lower()
    assert translator.split(source) == run.data.splitter.split(moses([source], "en")[0])
    (found,) = translator([source])
    assert found.text == plain([run.data.splitter.join(found.pieces)], "de")[0]
