"""Measurements of chapters 8 to 10: models whose attention is planted, so that the figures are known."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from attention_on_edges.corpora import captions
from attention_on_edges.corpora.gold_annotations import AlignedPair, Parse
from attention_on_edges.corpora.text_dataset import TextDataset
from attention_on_edges.corpora.tokenization import BPE
from attention_on_edges.pool import GraphPool
from attention_on_edges.runs import ModelConfig, artifacts
from attention_on_edges.runs.json_files import read_json
from attention_on_edges.runs.metrics import bleu, tokenized_bleu
from attention_on_edges.runs.study_results import load_study
from attention_on_edges.studies import MEASUREMENTS, alignment, measurements, syntax
from attention_on_edges.studies import heads as heads_study
from attention_on_edges.studies.bleu import measure_bleu


@pytest.fixture(scope="module")
def data():
    corpus = captions.load(train=60, valid=6, test=20)
    return TextDataset(corpus, BPE.train([text for pair in corpus.splits["train"] for text in pair], 300))


@pytest.fixture
def model(data):
    torch.manual_seed(0)
    model = ModelConfig(N=2, dim_model=16, dim_ff=16, h=2, shared=True).build(data.vocab_size).eval()
    model.generator.proj.bias.data[data.eos_id] = 3.0  # translations of one to six pieces
    return model


def test_windows_grow_narrower_and_the_widest_changes_nothing(model, data):
    whole, *rows, silent = measurements.measure_windows(model, data, "test")
    sources, references = zip(*data.corpus.splits["test"], strict=True)
    assert whole["bleu"] == bleu(measurements.translate(model, data, sources), references).value
    assert [row["reach"] for row in rows] == sorted({row["reach"] for row in rows}, reverse=True)
    edges = [row["edges"] for row in (whole, *rows)]
    assert edges == sorted(edges, reverse=True)
    assert edges[-1] == 1  # each attends to itself
    sizes = [len(data.splitter.split(source)) for source in sources]
    assert edges[0] == pytest.approx(sum(n * n for n in sizes) / sum(sizes))
    assert silent["edges"] == 0


def test_an_encoder_without_attention_works_at_each_token_alone(model, data):
    batch = next(data(GraphPool(), "test", 3))
    found = measurements._without_attention(model).encode(batch)["enc"]
    x = model.embed(model.src_embed, *batch.src)
    for layer in model.encoder.layers:
        x = layer.sublayer[1](x, layer.feed_forward)
    torch.testing.assert_close(found, model.encoder.norm(x))


class TestPruning:
    def test_every_order_leaves_out_what_it_says(self, model, data, monkeypatch):
        """A translation is spoiled for each head left out."""
        heads, out = heads_study.heads_of(model), []
        weight = {head: (7 * i) % len(heads) + 1.0 for i, head in enumerate(heads)}  # no two alike

        @contextmanager
        def without_heads(_, left_out):
            out.append(list(left_out))
            yield

        def translate(_, data, sources):
            references = [target for _, target in data.corpus.splits["test"]]
            return ["nichts davon stimmt hier ."] * len(out[-1]) + references[len(out[-1]) :]

        monkeypatch.setattr(heads_study, "without_heads", without_heads)
        monkeypatch.setattr(heads_study, "translate", translate)
        monkeypatch.setattr(heads_study, "importance", lambda *_: weight)
        whole, *rows = heads_study.measure_pruning(model, data, "test", step=5, seeds=2)
        assert whole == {"kind": "whole", "bleu": pytest.approx(100), "heads": 12}
        ones, orders = rows[:12], rows[12:]
        assert out[1:13] == [[head] for head in heads]
        assert [row["importance"] for row in ones] == [*weight.values()]
        assert all(row["bleu"] < 100 for row in ones)
        kinds = (("least first", 0), ("most first", 0), ("random", 0), ("random", 1))
        found = [(r["kind"], r["seed"], r["removed"]) for r in orders]
        assert found == [(*kind, count) for kind in kinds for count in (5, 10)]
        ranked = sorted(heads, key=weight.get)
        assert out[13:17] == [ranked[:5], ranked[:10], ranked[:-6:-1], ranked[:-11:-1]]
        assert set(out[17]) < set(out[18])
        assert out[17] != out[19]


def test_bleu_comes_with_its_interval_and_brevity_penalty():
    published = [f"satz nummer {i} steht @-@ hier ." for i in range(100)]  # 13a would split the sign
    half = ["etwas ganz anderes als das ." if i % 2 else text for i, text in enumerate(published)]
    short = [text.rsplit(" ", 2)[0] for text in published]
    found = {"exact": published, "half": half, "short": short}
    systems = {"a": found, "b": {"half": half, "exact": published}}
    rows = measure_bleu(systems, dict.fromkeys(systems, published))
    assert [(r["test"], r["model"]) for r in rows] == [(t, m) for t in systems for m in systems[t]]
    for row in rows:
        assert row["bleu"] == pytest.approx(tokenized_bleu(found[row["model"]], published).value)
    of = {(row["test"], row["model"]): row for row in rows}
    exact = of["a", "exact"]
    assert (exact["interval"], exact["brevity"], exact["p"]) == (0, 1, None)
    assert 4 < of["a", "half"]["interval"] < 20
    assert of["a", "short"]["brevity"] == pytest.approx(np.exp(1 - 7 / 5))
    assert of["a", "half"]["p"] < 0.01
    assert of["b", "exact"]["p"] < 0.01


def plant(model, data, weights_of):
    """Replace the model's attention weights by ``weights_of(batch, layer)``."""
    model.attention_of = lambda batch, sentence, layer=-1: weights_of(batch, layer)


class TestAlignment:
    def test_planted_links_are_found(self, model, data):
        """Head 0 of layer 1 aligns words in the rows that predict them; head 1 in those that read them."""
        links = frozenset((i, i) for i in range(4))
        source, target = ("two", "dogs", "run", "."), ("zwei", "Hunde", "rennen", ".")
        pairs = [AlignedPair(source, target, links, links)] * 150
        spans = [alignment.split_words(data.splitter, side)[1] for side in (pairs[0].source, pairs[0].target)]

        def planted(batch, layer):
            weights = torch.full((2, batch.tgt_lengths[0], batch.src_lengths[0]), 1e-3)
            if layer == 1:
                for source, written in zip(*spans, strict=True):
                    weights[0, written[0], list(source)] = 1.0
                    weights[1, written[-1] + 1, list(source)] = 1.0
            return [None, weights, None]

        plant(model, data, planted)
        rows = alignment.measure_alignment(model, data, pairs)
        heads = {(r["layer"], r["row"], r["head"]): r for r in rows if r["kind"] == "head"}
        assert len(heads) == 2 * 2 * 3
        assert heads[1, "predicts", 0]["aer"] == heads[1, "reads", 1]["chosen_on"] == 0
        assert heads[1, "reads", 0]["aer"] > 0.3
        assert heads[0, "predicts", "mean"]["aer"] > 0.3
        assert rows[0] == {"kind": "diagonal", "pairs": 150, "chosen_on": 0.0, "aer": 0.0}
        assert [row["text"] for row in rows[-2:]] == ["own test", "aligned"]
        assert all(2 < row["nats"] < 10 for row in rows[-2:])

    def test_the_two_parts_are_scored_apart(self, model, data, monkeypatch):
        monkeypatch.setattr(alignment, "CHOSEN_ON", 10)
        wrong, right = (
            AlignedPair(("two", "dogs"), ("zwei", "Hunde"), frozenset(links), frozenset(links))
            for links in ([(0, 1), (1, 0)], [(0, 0), (1, 1)])
        )
        diagonal = alignment.measure_alignment(model, data, [wrong] * 10 + [right] * 2)[0]
        assert (diagonal["chosen_on"], diagonal["aer"]) == (1, 0)


class TestSyntax:
    PARSE = Parse(("the", "man", "rides", "bikes"), (1, 2, -1, 2), ("det", "nsubj", "root", "obj"))

    def test_planted_trees_are_found(self, model, data, monkeypatch):
        """Head 1 of layer 0 attends to a word's head, the other heads to the word before."""
        monkeypatch.setattr(syntax, "COMMON", 3)
        parse = self.PARSE
        alone = Parse(("yes",), (-1,), ("root",))
        splits = {"valid": [parse] * 4, "test": [parse, alone, parse, parse]}
        _, spans = alignment.split_words(data.splitter, parse.words)

        def planted(batch, layer):
            n = batch.src_lengths[0]
            weights = torch.full((2, n, n), 1e-3)
            words = enumerate(parse.heads if n == spans[-1].stop else [])
            for word, governor in words:
                for row in spans[word]:
                    for head in (0, 1):
                        sender = governor if (layer, head) == (0, 1) else word - 1
                        if sender >= 0:
                            weights[head, row, list(spans[sender])] = 1.0
            return [weights, None, None]

        plant(model, data, planted)
        drawn = ModelConfig(N=2, dim_model=16, dim_ff=16, h=2, shared=True).build(data.vocab_size).eval()
        rows = syntax.measure_syntax({"trained": model, "drawn": drawn}, data, splits)
        assert rows[0] == {"kind": "adjacent", "sentences": 4, "valid": 1.0, "test": 1.0}
        trees = {(r["model"], r["layer"], r["head"]): r["test"] for r in rows if r["kind"] == "tree"}
        assert len(trees) == 8
        assert trees["trained", 0, 1] == 1
        relations = {r["relation"]: r for r in rows if r["kind"] == "relation"}
        assert set(relations) == {"det", "nsubj", "obj"}
        det = relations["det"]
        assert (det["layer"], det["head"], det["accuracy"], det["count"]) == (0, 1, 1.0, 3)
        assert (det["offset"], det["baseline"]) == (1, 1.0)
        assert relations["obj"]["offset"] == -1


def test_figures_are_kept_with_what_they_were_measured_on(tmp_path):
    planted = MEASUREMENTS["pruning"]._replace(measure=lambda artifact: [{"kind": artifact.name}])
    found = read_json(measurements.run_measurement(planted, tmp_path))
    assert found["rows"] == [{"kind": "multi30k"}]
    assert found["config"]["weights"] == measurements.digest_of_weights(artifacts.load("multi30k"))


def test_committed_figures_are_of_the_committed_models():
    for name, measurement in MEASUREMENTS.items():
        results = load_study(name)
        artifact = artifacts.load(measurement.artifact)
        assert results.config["weights"] == measurements.digest_of_weights(artifact), name
        assert not results.provenance["changed"], name
