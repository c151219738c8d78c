import pytest

from attention_on_edges import corpora
from attention_on_edges.corpora.captions import captions, gold_captions
from attention_on_edges.corpora.files import json_digest
from attention_on_edges.studies import gold_tree
from book_support import corpus_of

PAIRS = captions(10_000)

GOLD = {" ".join(aligned.source): (aligned, parse) for aligned, parse in gold_captions(10_000)}


def test_the_captions_are_the_frozen_ones():
    """Models were trained and heads chosen on their order."""
    assert PAIRS[1][0] == "Three policemen are carrying many new dolls to the beautiful station."
    assert json_digest(PAIRS) == "ebd64863f6ba2f5b581cc947e8f90c9c9806a82e231dd68b6f8516d7480c7186"
    assert captions(300) == PAIRS[:300]
    assert [(" ".join(a.source), " ".join(a.target)) for a, _ in GOLD.values()] == PAIRS


def test_splits_share_no_sentence():
    found = corpora.load("captions", train=300, valid=20, test=30)
    sizes = {name: len(split) for name, split in found.splits.items()}
    assert sizes == {"train": 300, "valid": 20, "test": 30}
    for side in (0, 1):
        assert len({pair[side] for pair in PAIRS}) == 10_000
    assert [pair for split in found.splits.values() for pair in split] == PAIRS[:350]


# Sure links, possible ones, each word's head, relations.
BY_HAND = (
    (
        "Three men are quickly taking off the new caps before dinner.",
        "Three-Drei men-Männer quickly-schnell taking-setzen off-ab. the-die new-neuen caps-Mützen "
        "dinner.-Abendessen",
        "are-setzen taking-ab. off-setzen before-vor before-dem before-Abendessen dinner.-vor dinner.-dem",
        (1, 4, 4, 4, -1, 4, 8, 8, 4, 10, 4),
        "det nsubj aux advmod root compound:prt det amod obj case advmod",
    ),
    (
        "The friendly policewoman who is wearing a cap is giving a horse the banana in the garden.",
        "The-Die friendly-freundliche policewoman-Polizistin, who-die wearing-trägt, a-eine cap-Mütze "
        "giving-gibt a-einem horse-Pferd. the-die banana-Banane in-im garden.-Garten",
        "is-trägt, is-gibt the-im",
        (2, 2, 9, 5, 5, 2, 7, 5, 9, -1, 11, 9, 13, 9, 16, 16, 9),
        "det amod nsubj nsubj aux acl:relcl det obj aux root det iobj det obj case det obl",
    ),
)


@pytest.mark.parametrize(("text", "sure", "possible", "heads", "relations"), BY_HAND)
def test_links_and_parses_as_done_by_hand(text, sure, possible, heads, relations):
    aligned, parse = GOLD[text]

    def named(links):
        return " ".join(f"{aligned.source[i]}-{aligned.target[j]}" for i, j in sorted(links))

    assert (named(aligned.sure), named(aligned.possible - aligned.sure)) == (sure, possible)
    assert (parse.words, parse.heads, " ".join(parse.relations)) == (aligned.source, heads, relations)


def test_all_parses_are_trees_and_every_word_has_a_link():
    for aligned, parse in GOLD.values():
        assert len(gold_tree(parse.heads)) == len(parse.words) - 1
        assert aligned.sure <= aligned.possible
        assert {i for i, _ in aligned.possible} == set(range(len(aligned.source)))
        assert {j for _, j in aligned.possible} == set(range(len(aligned.target)))


@pytest.mark.corpus
def test_no_caption_is_a_sentence_of_a_corpus():
    ours = {side.lower() for pair in PAIRS for side in pair}
    for name in ("multi30k", "tatoeba"):
        theirs = {s.lower() for split in corpus_of(name).splits.values() for pair in split for s in pair}
        assert not {s for s in ours & theirs if len(s.split()) > 6}
