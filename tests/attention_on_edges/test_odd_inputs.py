"""What strangers type: pairs varied in training, and names that are copied."""

import numpy as np
import pytest

from attention_on_edges import corpora
from attention_on_edges.corpora.text_dataset import TextDataset
from attention_on_edges.corpora.tokenization import BPE
from attention_on_edges.corpora.variation import names, varied

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
