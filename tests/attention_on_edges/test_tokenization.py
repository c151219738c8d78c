import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges.corpora.tokenization import BPE

LINES = [
    "A man rides a bike.",
    "Ein Mann fährt Fahrrad.",
    "Two men are riding bikes through the park.",
    "Zwei Männer fahren mit Fahrrädern durch den Park.",
    "A woman is riding a horse.",
    "Eine Frau reitet auf einem Pferd.",
] * 3


@pytest.fixture(scope="module")
def bpe():
    return BPE.train(LINES, 330)


text = st.text(st.characters(blacklist_categories=["Cs"]), max_size=30)


@given(text)
def test_any_text_comes_back(bpe, line):
    assert bpe.join(bpe.split(line)) == line


def test_it_learns_frequent_words_and_one_vocabulary_for_both_languages(bpe):
    assert len(bpe.symbols) == len(set(bpe.symbols)) == 330
    pieces = bpe.split("A man is riding a horse.")
    assert len(pieces) < 12
    assert set(pieces) <= set(bpe.symbols)
    assert "_riding" in bpe.show(pieces)
    assert bpe.show(bpe.split("fährt"))[0].startswith("_f")


def test_training_is_deterministic_and_files_hold_all_of_it(bpe, tmp_path):
    assert BPE.train(LINES, 330).symbols == bpe.symbols
    (tmp_path / "tokenizer.json").write_text(bpe.to_json(), "utf-8")
    again = BPE.load(tmp_path / "tokenizer.json")
    assert again.symbols == bpe.symbols
    assert again.split("Zwei Männer reiten.") == bpe.split("Zwei Männer reiten.")


def sampled(bpe, line, dropout, generator):
    return [piece for word in bpe.words(line) for piece in bpe.sample_word(word, dropout, generator)]


@pytest.mark.parametrize("line", LINES[:6])
def test_without_dropout_merges_are_applied_in_the_order_learned(bpe, line):
    assert sampled(bpe, line, 0.0, np.random.default_rng(0)) == bpe.split(line)
    assert max(map(len, bpe.split(line))) > 3


@given(text, st.floats(0, 0.99), st.integers(0, 5))
def test_samples_come_back_and_are_of_known_pieces(bpe, line, dropout, seed):
    pieces = sampled(bpe, line, dropout, np.random.default_rng(seed))
    assert bpe.join(pieces) == line
    assert set(pieces) <= set(bpe.symbols)


def test_samples_are_drawn_from_the_generator_and_grow_longer_with_dropout(bpe):
    def sizes(dropout):
        generator = np.random.default_rng(0)
        return [len(sampled(bpe, LINES[2], dropout, generator)) for _ in range(50)]

    assert sizes(0.2) == sizes(0.2)
    assert len(set(sizes(0.2))) > 3
    means = [sum(sizes(dropout)) for dropout in (0.0, 0.1, 0.5, 0.9)]
    assert all(a < b for a, b in itertools.pairwise(means))


def test_files_that_hold_no_tokenizer(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ValueError, match="holds no tokenizer"):
        BPE.load(tmp_path / "x.json")
