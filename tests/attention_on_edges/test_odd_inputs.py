"""What strangers type: pairs varied in training, how unlike an input is, and the committed set."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges import corpora, runs
from attention_on_edges.corpora.text_dataset import TextDataset
from attention_on_edges.corpora.tokenization import BPE
from attention_on_edges.corpora.tokenizer_config import TokenizerConfig
from attention_on_edges.corpora.variation import invented, names, varied
from attention_on_edges.runs import artifacts
from attention_on_edges.runs.copied_names import copy_names, lost_names
from attention_on_edges.runs.familiarity import Familiarity
from attention_on_edges.runs.loading import load_data
from attention_on_edges.runs.translator import Translator
from attention_on_edges.studies.odd_inputs import longest_run, measure_odd_inputs, odd_inputs

PAIRS = [
    ("Tom has 3 dogs.", "Tom a 3 chiens."),
    ("The dog is in Berlin!", "Le chien est à Berlin !"),
    ("A cat sleeps", "Un chat dort"),
]

MODELS = "multi30k", "tatoeba"


def ways(pair, seed):
    """The two sides of a pair in all ways but with a new name."""
    upper = tuple(text.upper() for text in pair)
    short = tuple(text.rstrip(".!?") for text in pair)
    return {upper, short, tuple(text.lower() for text in short)}


@pytest.mark.parametrize("pair", PAIRS)
def test_both_sides_are_varied_alike_and_every_way_occurs(pair):
    seen = [varied(pair, np.random.default_rng(seed)) for seed in range(200)]
    renamed = [both for both in seen if both not in ways(pair, 0)]
    assert {*seen} - {*renamed} == ways(pair, 0)
    assert 20 < len(renamed) < 90  # a quarter of 200
    for both in renamed:
        (name,) = (names(both[0]) & names(both[1])) - names(pair[0])
        shared = sorted(names(pair[0]) & names(pair[1]))
        undone = [tuple(text.replace(name, old) for text in both) for old in shared]
        assert pair in undone or (not shared and both == tuple(f"{name}: {text}" for text in pair))


@given(st.integers(0, 10**6))
def test_invented_names_are_names_or_numbers(seed):
    name = invented(np.random.default_rng(seed))
    assert names(f"so {name}, it is") == {name}
    assert name.isdigit() or (name.isalpha() and name.istitle())


def dataset(**options):
    corpus = corpora.load("captions", train=60, valid=5, test=5)
    splitter = BPE.train((side for pair in corpus.splits["train"] for side in pair), 400)
    return TextDataset(corpus, splitter, **options), splitter


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_share_of_training_pairs_is_varied_and_no_other(dropout):
    data, splitter = dataset(dropout=dropout, vary=0.25, seed=1)
    drawn = [data.draw_pair(i % 60, "train") for i in range(600)]
    texts = [tuple(map(splitter.join, pair)) for pair in drawn]
    changed = sum(pair != data.corpus.splits["train"][i % 60] for i, pair in enumerate(texts))
    assert 110 < changed < 190
    assert [data.draw_pair(i, "valid") for i in range(5)] == data.splits["valid"]


def test_without_variation_batches_are_as_ever_and_with_it_a_state_repeats_them():
    (plain, _), (none, _), (some, _) = dataset(dropout=0.1), dataset(dropout=0.1, vary=0.0), dataset(vary=0.5)
    assert [plain.draw_pair(i, "train") for i in range(60)] == [none.draw_pair(i, "train") for i in range(60)]
    state = some.order_state
    first = [some.draw_pair(i, "train") for i in range(60)]
    some.order_state = state
    assert [some.draw_pair(i, "train") for i in range(60)] == first


def test_merges_are_learned_from_varied_text_too(monkeypatch):
    full = corpora.load("captions", train=300, valid=5, test=5)
    monkeypatch.setattr(corpora, "load", lambda name: full)
    experiment = replace(runs.EXPERIMENTS["multi30k"], tokenizer=TokenizerConfig(600))
    capitals = "A MAN IS RIDING A BIKE."
    pieces = []
    for vary in (0.0, 0.5):
        config = replace(experiment.tokenizer, vary=vary)
        data = load_data(replace(experiment, tokenizer=config))
        assert data.vary == vary
        pieces.append(len(data.splitter.split(capitals)))
    assert pieces[1] < 0.75 * pieces[0]


class TestFamiliarity:
    known = Familiarity.of([[3, 3, 4], [3, 4, 5], [3, 3, 3], []], 8)

    def test_counts_and_surprisal(self):
        assert self.known.counts == [0, 0, 0, 6, 2, 1, 0, 0]
        assert self.known.surprisal([3, 5]) == pytest.approx(-np.log([7 / 17, 2 / 17]).mean())
        assert self.known.surprisal([]) == 0

    def test_frequent_pieces_are_familiar_and_unseen_ones_are_not(self):
        found = [self.known.unlikeness(text) for text in ([3, 3], [3, 4], [7, 6])]
        assert found == sorted(found)
        assert found[0] == 0
        assert found[-1] == 1

    @given(st.integers(0, 10**6))
    def test_of_training_texts_the_unlikeness_is_uniform(self, seed):
        rng = random.Random(seed)
        texts = [[min(rng.getrandbits(5), rng.getrandbits(5)) for _ in range(9)] for _ in range(400)]
        known = Familiarity.of(texts, 32)
        found = sorted(known.unlikeness(text) for text in texts)
        assert found == pytest.approx(np.linspace(0, 1, 400), abs=0.03)


def test_a_translator_says_how_unlike_a_text_is_if_it_knows():
    told = runs.load_translator(artifacts.load("multi30k-one-layer"))
    untold = Translator(told.model, told.splitter)
    texts = ["A man.", "Qzx!"]
    known = Familiarity.of([told.encode(texts[0])] * 3, told.vocabulary.vocab_size)
    told = Translator(told.model, told.splitter, known=known)
    assert [best.unlikeness for best, *_ in told(texts, 1)] == [0, 1]
    assert [best.unlikeness for best, *_ in untold(texts, 1)] == [None, None]


def test_the_committed_set_names_what_to_keep_and_runs_are_counted():
    assert [longest_run(x) for x in ([], ["a"], ["a", "b", "b", "a", "a", "a"])] == [0, 1, 3]
    for one in odd_inputs():
        assert one.keep is None or len(one.keep) == len(one.texts)
        for text, words in zip(one.texts, one.keep or [], strict=False):
            assert all(word in text for word in words)


@pytest.mark.parametrize("name", MODELS)
def test_no_translation_of_an_odd_input_loops_or_runs_on(name):
    translator = runs.load_translator(artifacts.load(name))
    assert sum(row.loops for row in measure_odd_inputs(translator, beam=1)) == 0
    texts = [text for one in odd_inputs() for text in one.texts if len(text) < 30]
    for text, (best,) in zip(texts, translator(texts, beam=1), strict=True):
        assert len(best.pieces) <= 2 * len(translator.split(text)) + 10


@pytest.mark.parametrize("name", MODELS)
def test_names_and_numbers_are_copied_and_without_copying_most_are_lost(name):
    translator = runs.load_translator(artifacts.load(name))
    share = []
    for copy in (True, False):
        rows = measure_odd_inputs(translator, copy=copy)
        share.append(sum(row.kept for row in rows) / sum(row.to_keep for row in rows))
    assert share[0] >= 0.8
    assert share[1] <= 0.6
    texts = [text for one in odd_inputs() if one.keep for text in one.texts]
    with_names, without = (translator(texts, 1, copy=copy) for copy in (True, False))
    assert [best.pieces for best, *_ in with_names] == [best.pieces for best, *_ in without]
    for best, *_ in without:
        assert best.text == translator.splitter.join(best.pieces)


class TestCopying:
    """A splitter that knows no merges but those of "the": every other letter is a piece."""

    splitter = BPE.train(["the the"], 259)

    def edges(self, source, target, heaviest):
        """Weights of one half along the given edges between words, of the rest evenly."""
        pieces = self.splitter.split(source), self.splitter.split(target)
        words = [self.splitter.words_of(side) for side in pieces]
        weights = torch.full((len(pieces[1]), len(pieces[0])), 0.5 / len(pieces[0]))
        for receiver, sender in heaviest.items():
            at = words[0][sender][1]
            weights[words[1][receiver][1], at] += 0.5 / (at.stop - at.start)
        return *pieces, weights

    def copied(self, source, target, heaviest, sure=()):
        read, written, weights = self.edges(source, target, heaviest)
        probabilities = torch.full((len(written),), 0.2)
        for word in sure:
            probabilities[self.splitter.words_of(written)[word][1]] = 0.9
        lost = lost_names(self.splitter, read, written)
        return copy_names(self.splitter, read, written, lost, weights, probabilities.tolist())

    def test_a_doubtful_word_gives_way_to_the_name_at_its_heaviest_edge(self):
        assert self.copied("Anna saw 17.", "Un vit 100.", {0: 0, 1: 1, 2: 2}) == "Anna vit 17."

    def test_a_word_that_the_model_is_sure_of_stays(self):
        assert self.copied("Anna saw 17.", "Un vit 100.", {0: 0, 1: 1, 2: 2}, sure=[0]) == "Un vit 17."

    def test_a_name_without_an_edge_stays_lost(self):
        assert self.copied("see Oslo", "vois là", {0: 0, 1: 0}) == "vois là"

    def test_of_two_words_that_point_at_a_name_one_is_replaced(self):
        assert self.copied("see Oslo", "Os lo !", {0: 1, 1: 1}) in ("Oslo lo !", "Os Oslo !")

    def test_names_that_are_there_marks_and_spaces_stay(self):
        assert self.copied("Tom, Ann", "Tom (Eve)", {0: 2, 1: 2, 2: 2, 3: 2}) == "Tom (Ann)"

    @pytest.mark.parametrize(
        ("text", "lost"),
        [("Anna the 3 Oslo", ["Anna", "3", "Oslo"]), ("The THE A OSLO", []), ("x1 1x", ["1x"])],
    )
    def test_what_counts_as_a_name(self, text, lost):
        pieces = self.splitter.split(text)
        words = self.splitter.words_of(pieces)
        assert [words[i][0].strip() for i in lost_names(self.splitter, pieces, [])] == lost
        assert lost_names(self.splitter, pieces, pieces) == []

    @given(st.text())
    def test_words_make_up_the_text_and_each_piece_is_in_one(self, text):
        pieces = self.splitter.split(text)
        words = self.splitter.words_of(pieces)
        assert [i for _, span in words for i in range(len(pieces))[span]] == [*range(len(pieces))]
        assert all(" " not in word[1:] for word, _ in words)
        if text.isascii():
            assert "".join(word for word, _ in words) == f" {text}"
