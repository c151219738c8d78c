import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges import corpora, runs
from attention_on_edges.corpora.cleaning import cleaned
from attention_on_edges.corpora.text_dataset import TextDataset
from attention_on_edges.corpora.text_on_disk import PairsOnDisk, TextOnDisk, made_once, write_pairs
from attention_on_edges.corpora.tokenization import BPE
from attention_on_edges.pool import GraphPool
from attention_on_edges.runs import EXPERIMENTS, load_data
from attention_on_edges.training.checkpoint_files import CheckpointError

TINY = runs.reduced(EXPERIMENTS["wmt14-base"])


@pytest.fixture
def own_cache(tmp_path, monkeypatch, few):
    monkeypatch.setenv("EDGEWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("attention_on_edges.runs.running.VALIDATED", 2)
    return tmp_path / "cache"


def test_what_is_kept():
    words = {n: " ".join(["w"] * n) for n in range(12)}
    kept = [(1, 1), (1, 4), (4, 1), (3, 8), (10, 10), (4, 10)]
    left_out = [(0, 1), (1, 0), (0, 0), (1, 5), (5, 1), (3, 9), (11, 10), (10, 11)]
    pairs = [(words[a], words[b]) for a, b in [*kept, *left_out]]
    assert list(cleaned(pairs, longest=10, ratio=2)) == pairs[: len(kept)]


ids = st.lists(st.integers(0, 299), max_size=6)


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=25))
def test_what_goes_to_disk_comes_back(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("pairs")
    if not any(map(len, sum(pairs, ()))):
        pairs = [*pairs, ([1], [2])]
    write_pairs(folder, iter(pairs), 300)
    found = PairsOnDisk(folder, [str(i) for i in range(300)])
    assert [tuple([int(i) for i in side] for side in found[n]) for n in range(len(found))] == pairs
    assert found.target_lengths() == [len(target) for _, target in pairs]


@pytest.mark.parametrize("share", [(0, 1), (1, 2)])
def test_batches_are_those_of_text_in_memory(own_cache, share):
    disk = load_data(TINY)
    corpus = corpora.load("small")
    kept = list(cleaned(corpus.splits["train"]))
    memory = TextDataset(replace(corpus, splits=corpus.splits | {"train": kept}), disk.splitter)
    assert isinstance(disk, TextOnDisk)
    assert disk.get_seq_by_id(3, "train", "tgt") == memory.get_seq_by_id(3, "train", "tgt")
    for mode in ("train", "valid"):
        ways = [
            [data.by_tokens(GraphPool(), mode, 500, True, share=share), data(GraphPool(), mode, share=share)]
            for data in (disk, memory)
        ]
        for ours, theirs in zip(*ways, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                assert torch.equal(one.src[0], other.src[0])
                assert torch.equal(one.tgt_y, other.tgt_y)


def test_ids_are_made_once_and_anew_for_another_tokenizer(own_cache):
    first = load_data(TINY)
    made = {path: path.stat().st_mtime_ns for path in own_cache.rglob("*.*")}
    again, other = (
        load_data(TINY),
        load_data(replace(TINY, tokenizer=replace(TINY.tokenizer, vocab_size=410))),
    )
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert first.digest == again.digest != other.digest
    assert [first.splitter.join(side) for side in first.splits["train"][7]] == [
        other.splitter.join(side) for side in other.splits["train"][7]
    ]
    assert len(list(own_cache.rglob("ids.bin"))) == 2


def test_of_two_that_ask_at_once_one_makes_it(tmp_path):
    made = []

    def make(fresh):
        time.sleep(0.1)
        fresh.touch()
        made.append(fresh)

    with ThreadPoolExecutor() as pool:
        assert list(pool.map(lambda _: made_once(tmp_path / "a", make), range(2))) == 2 * [tmp_path / "a"]
    assert len(made) == 1


def test_a_run_refuses_another_tokenizer(own_cache, tmp_path):
    run = runs.start(TINY, tmp_path)
    run.train(1)
    (learned,) = own_cache.rglob("*.json")
    learned.write_text(BPE.train((german for _, german in run.data.corpus.splits["valid"]), 400).to_json())
    with pytest.raises(CheckpointError, match="data"):
        runs.start(TINY, tmp_path, resume=True)
