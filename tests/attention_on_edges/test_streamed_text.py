import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges import experiments
from attention_on_edges.data import corpora
from attention_on_edges.data.corpora import CorpusError, streams, wmt14
from attention_on_edges.data.corpora.cleaning import cleaned, detokenised, sampled
from attention_on_edges.data.corpora.files import CorpusError as FileError
from attention_on_edges.data.prefetch import Cut, Shares, cut_by_count, cut_by_tokens, read
from attention_on_edges.data.preparation import moses
from attention_on_edges.data.tasks import TranslationDataset
from attention_on_edges.data.token_cache import FILES, CacheError, TokenCache, cached, write_cache
from attention_on_edges.data.tokenizer_config import StreamingConfig
from attention_on_edges.experiments import (
    EXPERIMENTS,
    Experiment,
    ModelConfig,
    load_data,
    runs,
    scores,
)
from edgewise.graphs import GraphPool
from edgewise.training import LOCAL, TrainingConfig
from processes import in_team

SOS, EOS = 0, 1

ids = st.lists(st.integers(3, 40), min_size=1, max_size=6)
id_pairs = st.lists(st.tuples(ids, st.lists(st.integers(3, 40), max_size=6)), min_size=1, max_size=25)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(scores, "PENALTIES", (0.0, 1.0))
    torch.set_num_threads(1)


class TestCleaning:
    def test_what_is_kept(self):
        words = {n: " ".join(["w"] * n) for n in range(12)}
        kept = [(1, 1), (1, 4), (4, 1), (3, 8), (10, 10), (4, 10)]
        left_out = [(0, 1), (1, 0), (0, 0), (1, 5), (5, 1), (3, 9), (11, 10), (10, 11)]
        given_ = [(words[a], words[b]) for a, b in [*kept, *left_out]]
        assert list(cleaned(given_, longest=10, ratio=2)) == given_[: len(kept)]

    def test_it_holds_one_pair_at_a_time(self):
        def endless():
            while True:
                yield "a b", "c d"

        found = cleaned(endless())
        assert [next(found) for _ in range(3)] == [("a b", "c d")] * 3

    @pytest.mark.parametrize(("options", "message"), [({"longest": 0}, "longest"), ({"ratio": 0.5}, "ratio")])
    def test_bad_settings(self, options, message):
        with pytest.raises(ValueError, match=message):
            list(cleaned([], **options))

    def test_every_pair_has_the_same_chance_to_be_drawn(self):
        stream = [(str(i), "") for i in range(10)]
        assert sampled(stream, 20) == stream
        counts = np.zeros(10)
        for seed in range(2000):
            drawn = sampled(iter(stream), 3, seed)
            assert len(set(drawn)) == 3
            counts[[int(source) for source, _ in drawn]] += 1
        assert abs(counts / 600 - 1).max() < 0.15  # four standard deviations are 0.14
        assert sampled(stream, 3, 7) == sampled(stream, 3, 7)

    def test_plain_text_again(self):
        pairs = [("Hello, world (again)!", "Hallo, Welt: 3,5 Prozent.")]
        tokenised = list(zip(*(moses(side, "de") for side in zip(*pairs, strict=True)), strict=True))
        assert " ," in tokenised[0][0]
        again = detokenised(
            [tuple(wmt14.unescape(side) for side in pair) for pair in tokenised], ("en", "de")
        )
        assert [tuple(side.lower() for side in pair) for pair in pairs] == list(again)


class TestCache:
    @given(id_pairs, st.sampled_from([100, 70_000]))
    def test_what_goes_in_comes_out(self, tmp_path_factory, pairs, vocab_size):
        folder = tmp_path_factory.mktemp("cache") / "train"
        write_cache(folder, iter(pairs), {"tokenizer": "a"}, vocab_size)
        cache = TokenCache(folder, {"tokenizer": "a"})
        assert len(cache) == len(pairs)
        assert cache.lengths().tolist() == [len(target) for _, target in pairs]
        numbers = np.random.default_rng(0).permutation(len(pairs))
        source, src_lengths, target, tgt_lengths = pickle.loads(pickle.dumps(cache)).take(numbers)
        assert cache.target_lengths(numbers) == tgt_lengths
        assert source.tolist() == [i for n in numbers for i in pairs[n][0]]
        assert target.tolist() == [i for n in numbers for i in pairs[n][1]]
        assert src_lengths == [len(pairs[n][0]) for n in numbers]
        assert tgt_lengths == [len(pairs[n][1]) for n in numbers]

    def make(self, folder, facts, ids=(3, 4)):
        return cached(folder, facts, lambda: [([i], [i, i]) for i in ids], 10)

    def test_it_is_made_once(self, tmp_path):
        one = self.make(tmp_path / "train", {"tokenizer": "a"})
        two = cached(tmp_path / "train", {"tokenizer": "a"}, lambda: pytest.fail("made again"), 10)
        assert one.take(np.array([1]))[2].tolist() == two.take(np.array([1]))[2].tolist() == [4, 4]

    def test_one_that_is_whole_is_only_read(self, tmp_path, monkeypatch):
        """It may lie where nobody may write."""
        self.make(tmp_path / "train", {})
        monkeypatch.setattr("attention_on_edges.data.token_cache.locked", lambda path: pytest.fail("locked"))
        assert len(self.make(tmp_path / "train", {})) == 2
        with pytest.raises(pytest.fail.Exception, match="locked"):
            self.make(tmp_path / "train", {"tokenizer": "another"})

    def test_another_tokenizer_is_detected_and_the_cache_made_anew(self, tmp_path):
        old = self.make(tmp_path / "train", {"tokenizer": "a"})
        with pytest.raises(CacheError, match="another cache: tokenizer is 'a' there and 'b' here"):
            TokenCache(tmp_path / "train", {"tokenizer": "b"})
        with pytest.warns(UserWarning, match="tokenizer is 'a' there and 'b' here; it is made anew"):
            new = self.make(tmp_path / "train", {"tokenizer": "b"}, (7, 8, 9))
        assert new.take(np.arange(3))[0].tolist() == [7, 8, 9]
        assert old.take(np.arange(2))[0].tolist() == [3, 4]  # who reads it still, reads it to the end
        assert old.lengths().tolist() == [2, 2]

    @pytest.mark.proves(
        "12-beyond-one-machine", "a cache with a changed, cut or missing file is noticed and made again"
    )
    @pytest.mark.parametrize("name", FILES)
    @pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
    def test_damage_is_detected_and_the_cache_made_anew(self, tmp_path, name, damage):
        path = tmp_path / "train" / name
        self.make(tmp_path / "train", {})
        data = path.read_bytes()
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(data[:-1] if damage == "cut" else bytes([data[0] ^ 1]) + data[1:])
        with pytest.warns(UserWarning, match=f"{name} is missing or damaged"):
            self.make(tmp_path / "train", {})
        assert path.read_bytes() == data

    def test_a_build_that_breaks_off_leaves_nothing_that_passes_for_a_cache(self, tmp_path):
        def broken():
            yield [3], [4]
            raise OSError("no more")

        with pytest.raises(OSError, match="no more"):
            cached(tmp_path / "train", {}, broken, 10)
        with pytest.raises(CacheError, match="holds no cache"):
            TokenCache(tmp_path / "train", {})
        assert len(self.make(tmp_path / "train", {})) == 2


class TestReading:
    @given(st.lists(st.integers(1, 12), max_size=40), st.integers(1, 30), st.booleans(), st.integers(0, 3))
    def test_cuts_are_those_of_the_data_set_in_memory(self, lengths, budget, bucketed, seed):
        splits = {"train": [(["x"], ["x"] * (n - 1)) for n in lengths]}
        data = TranslationDataset(splits, ["x"], seed)
        expected = [sum(b.tgt_lengths) for b in data.by_tokens(GraphPool(), "train", budget, bucketed)]
        generator = np.random.default_rng(seed)
        array = np.array(lengths, np.int32)
        cut = cut_by_tokens(generator.permutation(len(lengths)), array, budget, bucketed, generator)
        assert sorted(cut.order.tolist()) == list(range(len(lengths)))
        assert [int(array[cut.order[a:b]].sum()) for a, b in pairwise(cut.starts)] == expected

    @pytest.fixture
    def cache(self, tmp_path_factory):
        folder = tmp_path_factory.mktemp("cache") / "train"
        generator = np.random.default_rng(0)
        lengths = generator.integers(1, 9, (103, 2))
        write_cache(folder, [([i + 3] * a, [i + 3] * b) for i, (a, b) in enumerate(lengths)], {}, 200)
        return TokenCache(folder, {})

    def seen(self, cache, share, workers, batch=10):
        cut = cut_by_count(np.random.default_rng(1).permutation(len(cache)), batch)
        for found in read(Shares(cache, cut, share), GraphPool(), SOS, EOS, workers=workers):
            starts = np.cumsum([0, *found.src_lengths[:-1]])
            yield [] if found.stand_in else [int(found.src[0][start]) for start in starts]

    @pytest.mark.proves("12-beyond-one-machine", "every pair is read once over all processes and workers")
    @pytest.mark.parametrize(("size", "workers"), [(1, 0), (1, 2), (2, 0), (2, 2), (4, 1)])
    def test_every_pair_comes_once_over_all_processes_and_workers(self, cache, size, workers):
        parts = [list(self.seen(cache, (rank, size), workers)) for rank in range(size)]
        alone = [sorted(batch) for batch in self.seen(cache, (0, 1), 0)]
        assert [sorted(sum(batch, [])) for batch in zip(*parts, strict=True)] == alone  # noqa: RUF017
        assert sorted(i for batch in alone for i in batch) == list(range(3, 106))
        assert any(not batch for part in parts for batch in part) == (size == 4)  # the last one has three

    def test_batches_are_those_of_the_graph_pool(self, cache):
        cut = cut_by_count(np.arange(len(cache)), 20)
        for number, found in enumerate(read(Shares(cache, cut, (0, 1)), GraphPool(), SOS, EOS)):
            pairs = [cache.take(np.array([i]))[::2] for i in cut.order[20 * number : 20 * number + 20]]
            sources = [source.tolist() for source, _ in pairs]
            targets = [[SOS, *target.tolist(), EOS] for _, target in pairs]
            expected = GraphPool()(sources, targets)
            for name in ("src", "tgt"):
                assert all(map(torch.equal, getattr(found, name), getattr(expected, name)))
            assert torch.equal(found.tgt_y, expected.tgt_y)
            assert (found.src_lengths, found.tgt_lengths) == (expected.src_lengths, expected.tgt_lengths)
            for name in ("enc", "dec", "cross"):
                ours, theirs = getattr(found, name), getattr(expected, name)
                assert torch.equal(ours.src, theirs.src)
                assert torch.equal(ours.dst, theirs.dst)

    def test_nothing_to_read(self):
        assert cut_by_count(np.arange(0), 5) == Cut(pytest.approx(np.arange(0)), pytest.approx(np.zeros(1)))


READ_ALL = """
import sys
from pathlib import Path
import numpy as np, torch
from attention_on_edges.benchmarks.memory import peak
from attention_on_edges.data.token_cache import TokenCache
from attention_on_edges.data.token_cache import FILES, seal_cache
from attention_on_edges.data.prefetch import Shares, cut_by_tokens, read
from edgewise.graphs import GraphPool

torch.set_num_threads(1)
folder, pairs = Path(sys.argv[1]), int(sys.argv[2])
with open(folder / FILES[0], "wb") as ids, open(folder / FILES[1], "wb") as starts:
    end = 0
    for first in range(0, pairs, 50_000):
        lengths = np.arange(2 * first, 2 * first + 100_000) % 23 + 4
        starts.write((end + lengths.cumsum() - lengths).astype("<i8").tobytes())
        end += int(lengths.sum())
        ids.write(np.full(lengths.sum(), 7, np.uint16).tobytes())
    starts.write(end.to_bytes(8, "little"))
seal_cache(folder, {}, np.uint16)
before = peak()
cache = TokenCache(folder, {})
assert len(cache) == pairs
generator = np.random.default_rng(0)
order = generator.permutation(pairs).astype(np.int32)
cut = cut_by_tokens(order, cache.lengths() + 1, 10_000, True, generator)
seen = tokens = 0
for batch in read(Shares(cache, cut, (0, 1)), GraphPool(), 0, 1):
    seen += batch.n_sentences
    tokens += batch.n_nodes
print(seen, tokens - pairs - end, peak() - before)
"""


@pytest.mark.proves("12-beyond-one-machine", "five million pairs are read in less than 500 MB of memory")
@pytest.mark.parametrize("pairs", [500_000, pytest.param(5_000_000, marks=pytest.mark.nightly)])
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads VmHWM, which Linux has")
def test_pairs_are_read_in_less_memory_than_their_files_take(tmp_path, pairs):
    """Reading adds less than three quarters of the files' size to what the process takes."""
    command = [sys.executable, "-c", READ_ALL, str(tmp_path), str(pairs)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    seen, difference, taken = map(int, result.stdout.split())
    assert (seen, difference) == (pairs, 0)
    size = sum((tmp_path / name).stat().st_size for name in FILES)
    assert 70 * pairs < size < 80 * pairs
    assert taken < 0.75 * size


TINY = Experiment(
    "tiny",
    "A little of WMT14.",
    "small",
    ModelConfig(N=1, dim_model=16, dim_ff=16, h=2, dropout=0.1, shared=True),
    TrainingConfig(epochs=2, batch_tokens=800, bucketed=True, warmup=10, factor=2.0),
    StreamingConfig(vocab_size=500, sample=300, longest=12, ratio=2.0),
    tests=("valid", "test"),
)


def test_a_run_on_streamed_text_leaves_an_artifact(own_cache, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "VALIDATED", 2)
    assert Experiment.of(json.loads(json.dumps(TINY.config))) == TINY
    run = experiments.start(TINY, tmp_path, workers=1)
    run.train(3)
    again = experiments.start(TINY, tmp_path, resume=True)
    again.train()
    losses = [epoch["valid"]["loss"] for epoch in again.epochs]
    assert losses[1] < losses[0]
    artifact = experiments.finish(again, TINY)
    assert artifact.provenance["data"] == experiments.digest_of(load_data(TINY))
    _model, data = experiments.restore(artifact)
    assert data.splits["train"][3] == run.data.splits["train"][3]
    assert data.get_seq_by_id(3, "train", "tgt") == run.data.get_seq_by_id(3, "train", "tgt")
    assert experiments.test_sources(artifact) == [s for s, _ in data.corpus.splits["valid"]]
    whole = experiments.start(TINY, tmp_path / "whole")
    whole.train()
    assert whole.epochs == again.epochs
    assert whole.losses == again.losses


def test_batches_of_streamed_text_hold_the_text(own_cache):
    data = load_data(TINY)
    with pytest.raises(ValueError, match="devices must name one device"):
        data(GraphPool(), "train", 100, devices=["cpu", "cpu"])
    texts = []
    for batch in data(GraphPool(), "train", 100):
        sides = zip(batch.src[0].split(batch.src_lengths), batch.tgt_y.split(batch.tgt_lengths), strict=True)
        texts += [tuple(data.splitter.join(data.decode(x.tolist())) for x in (s, t[:-1])) for s, t in sides]
    assert sorted(texts) == sorted(cleaned(streams.open_stream("small").train(), 12, 2.0))
    assert 0 < len(texts) < 600


def test_other_rules_of_cleaning_make_another_cache(own_cache, monkeypatch):
    data = load_data(TINY)
    before = data.made_from
    monkeypatch.setattr("attention_on_edges.data.streamed_text.CLEANING", 0)
    assert data.made_from != before


def test_caches_of_other_settings_lie_side_by_side(own_cache, tmp_path):
    settings = [TINY.tokenizer, replace(TINY.tokenizer, vocab_size=450), replace(TINY.tokenizer, longest=11)]
    said = []
    caches = [load_data(replace(TINY, tokenizer=text), say=said.append).cache for text in settings]
    assert len({cache.folder for cache in caches}) == 3
    assert [line.split()[0] for line in said] == ["learning", "splitting"] * 3
    for path in (tmp_path / "cache").rglob("*.lock"):
        path.unlink()
    said = []
    again = [load_data(replace(TINY, tokenizer=text), say=said.append).cache for text in settings]
    assert [cache.folder for cache in again] == [cache.folder for cache in caches]
    assert said == []
    assert not list((tmp_path / "cache").rglob("*.lock"))  # nothing was written, neither here nor for pieces


def test_cleaning_by_pieces_and_bad_settings(own_cache):
    few = load_data(replace(TINY, tokenizer=replace(TINY.tokenizer, most_pieces=12)))
    assert 0 < len(few.cache) < len(load_data(TINY).cache)
    with pytest.raises(ValueError, match="dropout must be 0 where text is split once"):
        replace(TINY.tokenizer, dropout=0.1)
    with pytest.raises(ValueError, match="stream must be one of 'wmt14'"):
        load_data(replace(TINY, task="nothing"))


def test_without_newstest2013_the_older_one_validates(monkeypatch):
    sample = replace(corpora.load("captions", train=1, valid=2, test=1), splits={"valid": [("a .", "b .")]})

    def read(part):
        if part is wmt14.NEWSTEST2013:
            raise CorpusError("not at hand")
        return iter([("c", "d")])

    monkeypatch.setattr(wmt14, "read_part", read)
    monkeypatch.setattr(wmt14, "load", lambda: sample)
    with pytest.warns(UserWarning, match="validating on newstest2012: not at hand"):
        stream = streams.STREAMS["wmt14-full"]()
    assert dict(stream.corpus.splits) == {"valid": [("a.", "b.")], "test": [("c", "d")]}
    assert list(stream.train()) == [("c", "d")] * 3
    assert FileError is CorpusError


STEPS = 18

PART = replace(
    EXPERIMENTS["wmt14"],
    task="part",
    model=replace(EXPERIMENTS["wmt14"].model, N=1, dim_model=32, dim_ff=32, h=2, dropout=0.0),
    training=replace(
        EXPERIMENTS["wmt14"].training, epochs=9, warmup=20, factor=2.0, batch_tokens=2000, autocast=False
    ),
    tokenizer=replace(EXPERIMENTS["wmt14"].tokenizer, vocab_size=1000, longest=12),
)


def part_of_the_sample():
    """A third of the pairs to train on, and 300 to validate."""
    corpus = wmt14.load()
    few = {mode: corpus.splits[mode][:size] for mode, size in (("train", 3300), ("valid", 300), ("test", 1))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wmt14, "load", lambda: replace(corpus, splits=few))
        return streams.STREAMS["wmt14"]()


def sample_losses(team, folder):
    """Train on short pairs of the sample, for a fixed number of updates; return what validation says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(streams.STREAMS, "part", part_of_the_sample)
        run = experiments.start(PART, folder, communicator=team, workers=team.size - 1)
        run.score = None
        run.train(STEPS)
    return [epoch["valid"]["loss"] for epoch in run.epochs], run.step


@pytest.mark.corpus
@pytest.mark.nightly
def test_the_sample_trains_on_one_and_on_two_processes(own_cache, tmp_path):
    one, steps = sample_losses(LOCAL, tmp_path / "one")
    assert steps == STEPS
    assert len(one) >= 2
    assert np.log(1003) > one[0]
    assert all(later < earlier for earlier, later in pairwise(one))
    for two, other_steps in in_team(sample_losses, str(tmp_path / "two")):
        assert other_steps == STEPS
        assert two == pytest.approx(one, abs=1e-3)
