"""What strangers type: pairs varied in training, and names that are copied."""

import numpy as np
import pytest
import torch

from attention_on_edges import corpora, runs
from attention_on_edges.corpora.text_dataset import TextDataset
from attention_on_edges.corpora.tokenization import BPE
from attention_on_edges.corpora.variation import names, varied
from attention_on_edges.runs import artifacts
from attention_on_edges.runs.copied_names import copy_names, lost_names

PAIRS = [
    ("Tom has 3 dogs.", "Tom a 3 chiens."),
    ("The dog is in Berlin!", "Le chien est à Berlin !"),
    ("A cat sleeps", "Un chat dort"),
]


def ways(pair):
    """The two sides of a pair in all ways but with a new name."""
    upper = tuple(text.upper() for text in pair)
    short = tuple(text.rstrip(".!?") for text in pair)
    return {upper, short, tuple(text.lower() for text in short)}


@pytest.mark.parametrize("pair", PAIRS)
def test_both_sides_are_varied_alike_and_every_way_occurs(pair):
    seen = [varied(pair, np.random.default_rng(seed)) for seed in range(200)]
    renamed = [both for both in seen if both not in ways(pair)]
    assert {*seen} - {*renamed} == ways(pair)
    assert 20 < len(renamed) < 90  # a quarter of 200
    for both in renamed:
        (name,) = (names(both[0]) & names(both[1])) - names(pair[0])
        shared = sorted(names(pair[0]) & names(pair[1]))
        undone = [tuple(text.replace(name, old) for text in both) for old in shared]
        assert pair in undone or (not shared and both == tuple(f"{name}: {text}" for text in pair))


def dataset(**options):
    corpus = corpora.load("captions", train=60, valid=5, test=5)
    splitter = BPE.train((side for pair in corpus.splits["train"] for side in pair), 400)
    return TextDataset(corpus, splitter, **options), splitter


def test_a_share_of_training_pairs_is_varied_and_no_other():
    data, splitter = dataset(dropout=0.3, vary=0.25, seed=1)
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


def test_names_are_copied_and_without_copying_pieces_are_the_text():
    translator = runs.load_translator(artifacts.load("tatoeba"))
    texts = {"Fatima reads a book.": "Fatima", "He bought a house in Oslo.": "Oslo", "I have 17 books.": "17"}
    with_names, without = (translator([*texts], 1, copy=copy) for copy in (True, False))
    for (one,), (other,), name in zip(with_names, without, texts.values(), strict=True):
        assert name in one.text
        assert one.pieces == other.pieces
        assert other.text == translator.splitter.join(other.pieces)


class TestCopying:
    """A splitter that knows no merges but those of "the": every other letter is a piece."""

    splitter = BPE.train(["the the"], 259)

    @pytest.mark.parametrize(
        ("source", "target", "heaviest", "sure", "expected"),
        [
            ("Anna saw 17.", "Un vit 100.", {0: 0, 1: 1, 2: 2}, (), "Anna vit 17."),
            ("Anna saw 17.", "Un vit 100.", {0: 0, 1: 1, 2: 2}, (0,), "Un vit 17."),  # sure of Un
            ("see Oslo", "vois là", {0: 0, 1: 0}, (), "vois là"),  # no edge to the name
            ("Tom, Ann", "Tom (Eve)", {0: 2, 1: 2, 2: 2, 3: 2}, (), "Tom (Ann)"),  # Tom and marks stay
        ],
    )
    def test_a_doubtful_word_gives_way_to_the_lost_name_at_its_heaviest_edge(
        self, source, target, heaviest, sure, expected
    ):
        """Weights are one half along the given edges between words, of the rest evenly."""
        read, written = self.splitter.split(source), self.splitter.split(target)
        words = [self.splitter.words_of(side) for side in (read, written)]
        weights = torch.full((len(written), len(read)), 0.5 / len(read))
        for receiver, sender in heaviest.items():
            at = words[0][sender][1]
            weights[words[1][receiver][1], at] += 0.5 / (at.stop - at.start)
        probabilities = torch.full((len(written),), 0.2)
        for word in sure:
            probabilities[words[1][word][1]] = 0.9
        lost = lost_names(self.splitter, read, written)
        assert copy_names(self.splitter, read, written, lost, weights, probabilities.tolist()) == expected

    @pytest.mark.parametrize(
        ("text", "lost"),
        [("Anna the 3 Oslo", ["Anna", "3", "Oslo"]), ("The THE A OSLO", []), ("x1 1x", ["1x"])],
    )
    def test_what_counts_as_a_name(self, text, lost):
        pieces = self.splitter.split(text)
        words = self.splitter.words_of(pieces)
        assert [words[i][0].strip() for i in lost_names(self.splitter, pieces, [])] == lost
