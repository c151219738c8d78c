import json
import math
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from functools import partial
from itertools import chain
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from attention_on_edges import benchmarks
from attention_on_edges.analysis.pointer_chains import ChainConfig
from attention_on_edges.benchmarks import (
    SHARES,
    TRAININGS,
    WORKLOADS,
    PaddedAttention,
    Workload,
    adaptive,
    bench_adaptive,
    bench_depth,
    bench_engines,
    bench_training,
    depth,
    format_adaptive,
    format_engines,
    format_training,
    interleave,
    language_models,
)
from attention_on_edges.benchmarks import long_context as long_texts
from attention_on_edges.benchmarks.baselines import LocalAttention, PaddedTransformer, Recomputation
from attention_on_edges.benchmarks.decoding import BEAM, WAYS, CacheRow, DecodingRow
from attention_on_edges.benchmarks.training import CONTESTANTS, Training, _padded_around, matrix_work
from attention_on_edges.commands.app import app
from edgewise.decoding import Continuation, beam_search
from edgewise.graphs import GraphPool, complete, window
from edgewise.layers import Dropout
from edgewise.message_passing import available_engines, propagate_attention
from edgewise.models.from_transformers import from_transformers
from edgewise.models.transformer import make_model
from edgewise.training.chunked_loss import output_loss
from edgewise.training.loss import multiplies_bfloat16
from edgewise.validation import UnknownNameError
from support import copy_to_torch, random_fields, random_pairs, small_model

TINY = (Workload("tiny", (2, 3), 1, 2), Workload("even", (2, 2), 2, 2))


def test_a_step_multiplies_less_the_more_tokens_have_halted(monkeypatch):
    """The matrix products of a step, forward and backward, fall with the share of active tokens."""
    work = {}

    def count(steps, repeats):
        for name, step in steps.items():
            with FlopCounterMode(display=False) as counter:
                step()
            work[name] = counter.get_total_flops()
        return dict.fromkeys(steps, 1.0)

    monkeypatch.setattr(adaptive, "interleave", count)
    bench_adaptive((0.5, 0.25), sentences=8, length=20)
    for side in ("enc", "dec"):
        assert work[side, 0.25] < 0.4 * work[side, 1.0]
        assert work[side, 0.25] < work[side, 0.5] < work[side, 1.0]


def test_the_adaptive_table_covers_both_sides_and_every_share():
    rows = bench_adaptive(sentences=2, length=5, repeats=1)
    assert [(row.side, row.share) for row in rows] == [(s, x) for s in ("enc", "dec") for x in SHARES]
    assert all(row.ratio == 1 for row in rows if row.share == 1)
    table = str(format_adaptive(rows))
    assert all(f"{share:.0%}" in table for share in SHARES)
    assert f"{rows[1].seconds * 1e3:.2f} ({rows[1].ratio:.0%})" in table
    for share in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"shares must lie in \(0, 1\]"):
            bench_adaptive((share,))


def test_depth_is_timed_on_trained_models_and_the_same_input(monkeypatch, tmp_path):
    results = {}

    def once(functions, repeats):
        assert repeats == 1
        results[len(results)] = {name: function() for name, function in functions.items()}
        return {name: 1.0 + i for i, name in enumerate(functions)}

    monkeypatch.setattr(depth, "interleave", once)
    small = partial(bench_depth, strings=20, config=ChainConfig(updates=3, graphs=2))
    monkeypatch.setattr(benchmarks, "bench_depth", small)
    result = CliRunner().invoke(app, ["bench", "depth", "--repeats", "1", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "bench-depth.json").read_text())["rows"]
    works = [("chains", depth.READERS), ("sort", depth.SORTERS)]
    named = [(task, m, work) for task, models in works for work in ("training", "answering") for m in models]
    assert [(row["task"], row["model"], row["work"]) for row in rows] == named
    assert [row["ratio"] for row in rows] == [1, 2, 3, 4] * 4
    assert "3000 (3.00)" in result.output
    for answers, steps in results[1].values():
        assert len(answers) == len(steps) == 16 * depth.TEST_GRAPHS
    assert {name: steps.max() for name, (_, steps) in results[1].items() if name != "ACT"} == {
        "6 steps": 6,
        "10 steps": 10,
        "6 layers": 6,
    }
    for gradients in (results[0], results[2]):
        assert len(set(gradients.values())) == 4
        assert min(gradients.values()) > 0
    for found in results[3].values():
        assert len(found) == 20
        assert sum(list(h.ids) == sorted(h.ids) for h in found) >= 18


def test_the_adaptive_command_prints_the_table(monkeypatch):
    tiny = partial(bench_adaptive, sentences=2, length=5)
    monkeypatch.setattr(benchmarks, "bench_adaptive", tiny)
    result = CliRunner().invoke(app, ["bench", "adaptive", "--repeats", "1"])
    assert result.exit_code == 0, result.output
    assert "encoder, ms" in result.output
    assert "10%" in result.output


@pytest.mark.parametrize("lengths", [(3, 3), (1, 4, 2)])
def test_the_padded_rival_computes_the_same(lengths):
    fields = [torch.randn(sum(lengths), 2, 3) for _ in range(3)]
    torch.testing.assert_close(
        PaddedAttention(lengths)(*fields), propagate_attention(complete(lengths), *fields)
    )


def test_rows_cover_every_engine_and_the_tile_plan_made_anew():
    rows = bench_engines(TINY, repeats=1)
    both = {"padded", "padded, set-up included", "tiles, plan included", "tiles, lengths seen before"}
    names = both | {*available_engines()}
    assert {(row.workload, row.engine) for row in rows} == {(w.name, name) for w in TINY for name in names}
    assert all(row.seconds > 0 for row in rows)
    assert all(row.ratio == 1 for row in rows if row.engine == "padded")
    table = str(format_engines(rows))
    assert all(name in table for name in names)


def test_workloads_are_those_of_the_book():
    book = ((128, 10, 10, 1, 128), (128, 5, 30, 8, 64), (128, 5, 30, 4, 32), (8, 200, 300, 8, 64))
    for workload, (count, shortest, longest, heads, width) in zip(WORKLOADS, book, strict=True):
        assert (len(workload.lengths), workload.num_heads, workload.d_k) == (count, heads, width)
        assert shortest <= min(workload.lengths) <= max(workload.lengths) <= longest


def test_functions_take_turns():
    order = []
    interleave({name: lambda name=name: order.append(name) for name in "ab"}, repeats=2)
    turns = "".join(order).removeprefix("aabb")
    assert turns.replace("aa", "a").strip("a") != ""
    assert turns == ("a" * (len(turns) // 4) + "b" * (len(turns) // 4)) * 2


@pytest.mark.parametrize("tokens", [8192, pytest.param(65_536, marks=pytest.mark.nightly)])
def test_a_window_takes_less_than_20_kib_per_token_of_a_process_of_its_own(tokens):
    """On 65,536 tokens that is 1.25 GiB."""
    ballast = torch.ones(2**28)  # a GiB that the measured processes do not hold
    rows = benchmarks.bench_memory(tokens=tokens)
    here = [e for e in ("fused", "tiles") if e in available_engines()]
    assert [row.engine for row in rows] == ["blocks by hand", *here]
    for row in rows:
        assert min(row.first, row.seconds) > 0
        assert 0 < row.before < ballast.nbytes
        assert row.before < row.peak < row.before + 20 * 1024 * tokens, benchmarks.format_memory(rows)


def test_attention_padded_by_hand_is_the_models_own():
    torch.manual_seed(0)
    model, pairs = small_model(), random_pairs([(5, 2), (3, 4), (4, 6)])
    batch = GraphPool()(*pairs)
    expected = model(batch)
    model.propagate_attention = _padded_around(batch)
    torch.testing.assert_close(model(batch), expected)


def test_a_window_by_hand_computes_the_same():
    fields = random_fields(window(24, 4, 4), 2, 3)
    by_hand = LocalAttention(24, 4)(*fields)
    by_graph = propagate_attention(window(24, 4, 4), *fields)
    torch.testing.assert_close(by_hand, by_graph)
    upstream = torch.randn_like(by_hand)
    for ours, theirs in zip(
        torch.autograd.grad(by_graph, fields, upstream),
        torch.autograd.grad(by_hand, fields, upstream),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)
    with pytest.raises(ValueError, match="tokens must be a multiple of reach 4, got 25"):
        LocalAttention(25, 4)


def test_the_command_prints_the_table(monkeypatch):
    monkeypatch.setattr(benchmarks, "WORKLOADS", TINY)
    result = CliRunner().invoke(app, ["bench", "engines", "--repeats", "1"])
    assert result.exit_code == 0, result.output
    assert "tiles, plan included" in result.output
    assert all(f"measuring {workload.name}" in result.output for workload in TINY)


def test_workloads_and_engines_can_be_chosen(monkeypatch):
    monkeypatch.setattr(benchmarks, "WORKLOADS", TINY)
    first, *others = (workload.name for workload in TINY)
    command = ["bench", "engines", "--repeats", "1", "--only", first, "--engine", "chunks"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert first in result.output
    assert "chunks" in result.output
    assert not any(name in result.output for name in [*others, "scatter", "tiles"])
    assert CliRunner().invoke(app, ["bench", "engines", "--only", "nothing"]).exit_code == 2


def test_a_layer_of_pyg_is_matched_and_timed(monkeypatch):
    edge_index = complete([3, 5]).edge_index
    monkeypatch.setitem(benchmarks.PYG_WORKLOADS, "small", lambda: edge_index)
    result = CliRunner().invoke(app, ["bench", "pyg", "--repeats", "1", "--only", "small"])
    assert result.exit_code == 0, result.output
    assert "small" in result.stdout
    (row,) = benchmarks.bench_pyg(["small"], 1)
    assert row.error < 1e-5
    assert min(row.pyg, row.ours, row.built) > 0
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    result = CliRunner().invoke(app, ["bench", "pyg"])
    assert result.exit_code == 1
    assert "pip install torch_geometric" in result.output


class TestLanguageModels:
    def test_converted_models_are_those_of_transformers(self):
        rows = benchmarks.compare_with_transformers()
        assert [row.architecture for row in rows] == ["GPT-2", "Llama", "Mistral"]
        assert all(row.logits < 1e-5 and row.gradients < 1e-4 for row in rows)

    def test_a_difference_shows(self, monkeypatch):
        def other(model):
            made = from_transformers(model)
            with torch.no_grad():
                made.norm.weight[0] += 1
            return made

        monkeypatch.setattr(language_models, "from_transformers", other)
        rows = benchmarks.compare_with_transformers()
        assert min(min(row.logits, row.gradients) for row in rows) > 1e-3

    @pytest.mark.parametrize("name", language_models.LOSSES)
    def test_an_update_is_one_of_adam(self, name):
        torch.manual_seed(0)
        theirs = benchmarks.ARCHITECTURES["Llama"](hidden_size=16, intermediate_size=24, num_hidden_layers=1)
        model = from_transformers(theirs) if name == "packed" else theirs
        wanted = {key: weight.clone() for key, weight in model.state_dict().items()}
        loss, texts = language_models.LOSSES[name], [[1, 2, 3], [4, 5], [6, 7, 8, 9]]
        gradients = torch.autograd.grad(loss(model, texts), list(model.parameters()))
        language_models._update(model, loss, texts)()
        for (key, weight), gradient in zip(model.named_parameters(), gradients, strict=True):
            step = 1e-4 * gradient / (gradient.abs() + 1e-8)  # Adam's first
            torch.testing.assert_close(weight, wanted[key] - step, atol=1e-6, rtol=0)

    def test_the_contestants_compute_one_loss(self):
        theirs = benchmarks.ARCHITECTURES["Llama"](hidden_size=16, intermediate_size=24, num_hidden_layers=1)
        texts = benchmarks.TRAINED["128 texts of about 14 tokens"][:5]
        expected = language_models._packed_loss(from_transformers(theirs), texts)
        for name, loss in language_models.LOSSES.items():
            if name != "packed":
                torch.testing.assert_close(loss(theirs, texts), expected)

    def test_texts_are_ragged(self):
        lengths = {name: [len(text) for text in texts] for name, texts in benchmarks.TRAINED.items()}
        for name, found in lengths.items():
            count, _, _, _, mean, _ = name.split()
            assert len(found) == int(count)
            assert sum(found) / len(found) == pytest.approx(int(mean), rel=0.15)
            assert max(found) > 1.5 * sum(found) / len(found)

    def test_the_command_measures_and_keeps(self, monkeypatch, tmp_path):
        monkeypatch.setattr(language_models, "LLAMA", dict.fromkeys(language_models.LLAMA, 16))
        monkeypatch.setitem(benchmarks.TRAINED, "small", [[1, 2, 3], [4, 5]])
        command = ["bench", "causal", "--repeats", "1", "--only", "small", "--out", str(tmp_path)]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        results = json.loads((tmp_path / "bench-causal.json").read_text())["rows"]
        rows = [row for row in results if "contestant" in row]
        assert rows[0]["contestant"] == "packed"
        assert rows[0]["ratio"] == 1
        assert len(rows) == len(language_models.LOSSES)
        assert all(
            row["tokens_per_second"] * row["ratio"] == pytest.approx(rows[0]["tokens_per_second"])
            for row in rows
        )
        with pytest.raises(UnknownNameError, match="workload must be one of"):
            benchmarks.bench_causal(["nothing"])
        monkeypatch.setitem(sys.modules, "transformers", None)
        result = CliRunner().invoke(app, ["bench", "causal"])
        assert result.exit_code == 1
        assert "pip install transformers" in result.output


class TestLong:
    @pytest.fixture
    def by_law(self, monkeypatch):
        """Processes that take what power laws say: time n ** 2 or n, memory n ** 1.5 or n."""
        asked = []

        def measure(name, n, repeats, keep):
            asked.append((name, n))
            quadratic = name in long_texts.QUADRATIC
            memory = 1e3 * n ** (1.5 if quadratic else 1)
            seconds = 1e-9 * n ** (2 if quadratic else 1)
            edges = long_texts.EDGES[name](n)
            return long_texts.LongRow(name, n, edges, seconds, 2 * seconds, memory, memory + 1)

        monkeypatch.setattr(long_texts, "_measure", measure)
        return asked

    def test_what_takes_too_long_is_extrapolated_by_its_power_law_and_labelled(self, by_law):
        lengths = (1024, 4096, 16384, 32768)
        rows = benchmarks.bench_long(["window", "dense"], lengths, 1, most_quadratic=16384)
        assert by_law == [("window", n) for n in lengths] + [("dense", n) for n in lengths[:3]]
        assert [row.measured for row in rows] == [True] * 7 + [False]
        assert rows[-1].seconds == pytest.approx(1e-9 * 32768**2)
        assert rows[-1].memory == pytest.approx(1e3 * 32768**1.5)
        table = benchmarks.format_long(rows).splitlines()
        assert [line.count("*") for line in table[2:10]] == [0] * 7 + [3]
        assert "* extrapolated, not measured" in table
        assert "dense: time grows as n^2.00, memory as n^1.50" in table[-1]
        assert "window: time grows as n^1.00, memory as n^1.00" in table[-2]
        assert benchmarks.exponents(rows, "dense", 4096, 32768) == pytest.approx((2, 1.5))
        with pytest.raises(ValueError, match="got 1"):  # the other one is extrapolated
            benchmarks.exponents(rows, "dense", 16384, 32768)

    def test_what_would_take_too_much_memory_is_not_run(self, by_law):
        rows = benchmarks.bench_long(["window"], (4096, 8192, 16384), 1, most_memory=1.2e3 * 8192)
        assert by_law == [("window", 4096), ("window", 8192)]
        assert not rows[-1].measured
        assert rows[-1].memory == pytest.approx(1e3 * 16384)

    def test_few_lengths_give_no_exponent(self, by_law):
        rows = benchmarks.bench_long(["window"], (1024, 16384), 1)
        with pytest.raises(ValueError, match=r"must hold two lengths of 'window' in 16384\.\.131072, got 1"):
            benchmarks.exponents(rows, "window")
        assert "grows" not in benchmarks.format_long(rows)

    def test_every_contestant_computes_its_own_graph(self):
        for name in long_texts.CONTESTANTS:
            assert len(long_texts._passes(name, 200, 3)) == 3
            if name != "dense":
                assert long_texts.GRAPHS[name](200).num_edges == long_texts.EDGES[name](200)

    def test_a_process_that_is_killed_gives_a_row_without_times(self, monkeypatch):
        class Killed:
            def __init__(self, *arguments, **options):
                pass

            def __enter__(self):
                return self

            def __exit__(self, *error):
                pass

            def submit(self, *call):
                raise BrokenProcessPool

        monkeypatch.setattr(long_texts, "ProcessPoolExecutor", Killed)
        rows = benchmarks.bench_long(["window"], (4096, 8192), 1)
        assert all(math.isnan(row.seconds) for row in rows)
        assert "nan" in benchmarks.format_long(rows)

    def test_memory_is_that_of_a_process_of_its_own(self):
        (row,) = benchmarks.bench_long(["window"], (4096,), 5)
        assert row.measured
        assert row.edges == 4096 * 129 - 64 * 65
        fields = 3 * 4096 * 128 * 4
        assert 2 * fields < row.memory < row.peak
        assert row.first > row.seconds > 0

    def test_processes_are_told_to_keep_memory_and_this_one_is_left_as_it_was(self, monkeypatch):
        monkeypatch.setenv("MALLOC_MMAP_MAX_", "7")
        monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
        started = []

        class Recording(ProcessPoolExecutor):
            def submit(self, *call):
                started.append([super(Recording, self).submit(os.getenv, v).result() for v in names])
                return super().submit(dict, name="window", tokens=1)

        names = ("MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_")
        monkeypatch.setattr(long_texts, "ProcessPoolExecutor", Recording)
        for keep in (True, False):
            long_texts._measure("window", 64, 1, keep)
            assert [os.environ.get(name) for name in names] == ["7", None]
        assert started == [["0", str(2**36)], ["7", None]]

    def test_a_length_that_is_named_twice_is_measured_once(self, by_law):
        benchmarks.bench_long(["dense"], (4096, 4096, 65536))
        assert by_law == [("dense", 4096)]

    def test_figures_can_be_kept(self, by_law, tmp_path):
        command = ["bench", "long", "--name", "dense", "--repeats", "2", "--out", str(tmp_path)]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        kept = json.loads((tmp_path / "long.json").read_text("utf-8"))
        assert kept["config"] == {
            "name": "long",
            "about": "What does a long text cost?",
            "keep": True,
            "repeats": 2,
            "names": ["dense"],
            "longest": 262_144,
        }
        assert [row["tokens"] for row in kept["rows"]] == list(benchmarks.LENGTHS)
        for row in kept["rows"]:
            assert row["variant"] == "dense"
            assert row["measured"] == (row["tokens"] <= 32_768) == ("peak" in row)
            assert row["seconds"] == pytest.approx(1e-9 * row["tokens"] ** 2)
        assert kept["provenance"]["seconds"] >= 0

    def test_the_command_prints_the_table(self, by_law):
        command = ["bench", "long", "--longest", "4096", "--name", "bigbird", "--repeats", "1"]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        assert result.output.count("bigbird") == 3

    def test_bad_input(self):
        with pytest.raises(ValueError, match="names must be one of 'dense'"):
            benchmarks.bench_long(["sparse"])
        with pytest.raises(ValueError, match=r"lengths\[0\] must be at least 1"):
            benchmarks.bench_long(["dense"], [0])


@pytest.fixture(scope="module")
def training_rows():
    """Rows of all contestants, of which one alone has its memory measured."""
    measure = benchmarks.training._peaks_of

    def peaks_of(training, contestants):
        return dict.fromkeys(contestants, 2**21) | measure(training, ["packed"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmarks.training, "_peaks_of", peaks_of)
        return bench_training([TestTraining.tiny], repeats=1)


class TestTraining:
    tiny = Training("tiny", 1, 8, 12, 2, num_batches=1)

    def test_the_padded_rival_is_the_same_model(self):
        sizes = (20, 20, 2, 8, 12, 2)
        ours, rival = make_model(*sizes, dropout=0.5), PaddedTransformer(20, 2, 8, 12, 2, dropout=0.5)
        copy_to_torch(ours, rival.body)
        for name in ("src_embed", "tgt_embed"):
            getattr(rival, name).load_state_dict(getattr(ours, name).state_dict())
        rival.generator.load_state_dict(ours.generator.state_dict())
        sources = [torch.tensor([3, 4, 5]), torch.tensor([6])]
        targets = [torch.tensor([0, 7]), torch.arange(5)]
        logits, wanted = rival.eval()(sources, targets)
        batch = GraphPool()(sources, targets)
        torch.testing.assert_close(logits.log_softmax(1), ours.eval()(batch), atol=1e-5, rtol=1e-5)
        assert torch.equal(wanted, batch.tgt_y)
        drops = [[m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)] for model in (ours, rival)]
        assert len([p for p in drops[0] if p]) == len([p for p in drops[1] if p]) == 11
        assert all(m.dropout == 0 for m in rival.modules() if isinstance(m, torch.nn.MultiheadAttention))

    def test_its_tuned_form_has_the_dropout_and_the_loss_of_the_packed_model(self, monkeypatch):
        ours = make_model(20, 20, 2, 8, 12, 2, dropout=0.5)
        tuned = PaddedTransformer(20, 2, 8, 12, 2, dropout=0.5, fast_dropout=True)
        drops = [[m for m in model.modules() if isinstance(m, Dropout) and m.p] for model in (ours, tuned)]
        assert [len(modules) for modules in drops] == [11, 11]
        seen = []

        def spy(hidden, *arguments, **options):
            seen.append(hidden.shape)
            return output_loss(hidden, *arguments, **options)

        monkeypatch.setattr("edgewise.training.loss.output_loss", spy)
        batches = self.tiny.batches()
        for name in ("packed", "nn.Transformer, our dropout and loss"):
            CONTESTANTS[name](self.tiny, batches, torch.device("cpu"))()
        assert seen[0] == seen[1]

    def test_batches_are_as_described(self):
        for training in TRAININGS:
            batches = training.batches()
            assert len(batches) == training.num_batches
            lengths = [[len(source) for source, _ in pairs] for pairs in batches]
            every = list(chain(*lengths))
            if training.long:
                assert all(200 <= n <= 300 for n in every)
                continue
            assert all(len(pairs) == 128 for pairs in batches)
            assert max(every) <= 45
            assert sum(every) / len(every) == pytest.approx(14, abs=1)
            spread = max(max(part) - min(part) for part in lengths[:-1] or lengths)
            assert (spread < 10) == training.bucketed

    def test_every_contestant_learns_from_the_batches(self, training_rows):
        rows = training_rows
        here = [name for name in CONTESTANTS if name in available_engines() or name != "builtin"]
        if not multiplies_bfloat16(torch.device("cpu")):
            here.remove("packed, bfloat16")
        assert [row.contestant for row in rows] == here
        assert all(row.tokens_per_second > 0 and row.peak > 2**20 for row in rows)
        assert rows[0].ratio == 1
        assert rows[1].ratio == pytest.approx(rows[0].tokens_per_second / rows[1].tokens_per_second)
        assert rows[1].share / rows[0].share == pytest.approx(1 / rows[1].ratio)
        table = str(format_training(rows))
        assert all(name in table for name in (*here, "tiny"))

    def test_matrix_work_is_what_torch_counts_for_one_sentence_pair(self):
        """For one pair nothing is padded; only the causal half of the target's scores is not drawn."""
        training = Training("one", 2, 8, 16, 2, num_batches=1)
        ((pair, *_),) = training.batches()
        model = make_model(6000, 6000, 2, 8, 16, 2, engine="scatter")
        with FlopCounterMode(display=False) as counter:
            model(GraphPool()([pair[0]], [pair[1]])).sum().backward()
        counted = counter.get_total_flops()
        n, m = len(pair[0]), len(pair[1]) - 1
        attention = 3 * 4 * 8 * 2 * (n * n + n * m + m * (m + 1) / 2)
        assert matrix_work(training, [[pair]]) - attention == pytest.approx(counted, rel=0.01)

    def test_the_command_prints_and_writes_the_table(self, training_rows, monkeypatch, tmp_path):
        monkeypatch.setattr(benchmarks, "TRAININGS", (self.tiny,))
        monkeypatch.setattr(benchmarks, "bench_training", lambda *arguments: training_rows)
        result = CliRunner().invoke(app, ["bench", "training", "--repeats", "1", "--out", str(tmp_path)])
        assert result.exit_code == 0, result.output
        assert "nn.Transformer" in result.output
        written = json.loads((tmp_path / "bench-training.json").read_text())
        assert written["config"]["name"] == "bench-training"
        assert written["rows"] == [asdict(row) for row in training_rows]

    def test_bad_input(self):
        with pytest.raises(ValueError, match=r"contestant must be one of .*; got 'warp'"):
            bench_training([self.tiny], ["warp"])


class TestDecoding:
    SYMBOLS = (0, 1)

    @torch.no_grad()
    def test_the_rival_computes_the_same_states(self):
        model = small_model()
        sources, targets = random_pairs([(3, 6), (5, 6), (2, 6)])
        ids = torch.tensor(targets)
        ours, rival = Continuation(model, sources), Recomputation(model, sources)
        for position in range(6):
            if position == 3:
                rows = torch.tensor([2, 0, 2, 1])
                ids = ids[rows]
                ours.keep(rows)
                rival.keep(rows)
            torch.testing.assert_close(*(way.step(ids[:, position]) for way in (ours, rival)))

    def test_the_rival_does_it_all_again(self, monkeypatch):
        """Tokens that reach the decoder: one a step and target, or all of them."""
        model, counts = small_model(N=1), {}
        model.generator.proj.bias.data[1] = -100.0
        for name, way in WAYS.items():
            seen = []
            hook = model.tgt_embed.register_forward_hook(
                lambda module, given, x, seen=seen: seen.append(len(x))
            )
            beam_search(model, [[3, 4], [5, 6]], *self.SYMBOLS, 1, max_len=4, grow=way)
            hook.remove()
            counts[name] = seen
        assert counts == {"cached": [2] * 5, "recomputed": [2, 4, 6, 8, 10]}

    def test_translations_are_counted(self):
        calls = []

        def translate(texts, beam):
            calls.append(beam)
            return [[SimpleNamespace(pieces=text.split())] for text in texts]

        rows = benchmarks.bench_decoding(translate, ["a b c", "d"], repeats=1)
        assert [(row.beam, row.sentences, row.tokens) for row in rows] == [(BEAM, 2, 4), (1, 2, 4)]
        assert set(calls) == {BEAM, 1}
        table = str(benchmarks.format_decoding([DecodingRow(5, 1000, 3000, 2.0), DecodingRow(1, 8, 8, 1.0)]))
        assert table.splitlines()[2].split() == ["beam", "5", "1,000", "2.00", "500.0", "1,500"]
        assert table.splitlines()[3].startswith("greedy")

    def test_targets_are_as_long_as_they_should_be(self):
        model = small_model()
        model.generator.proj.bias.data[1] = 5.0
        rows = benchmarks.bench_lengths(model, [[3, 4, 5]], *self.SYMBOLS, lengths=(2, 5), repeats=1)
        assert [(row.sentences, row.length) for row in rows] == [(1, 2), (1, 5)]
        assert model.generator.proj.bias[1] == 5
        table = str(benchmarks.format_cache([CacheRow(2, 10, 1.0, 3.0), CacheRow(2, 20, 2.5, 12.0)]))
        first, second = (line.split() for line in table.splitlines()[2:])
        assert first == ["2", "10", "1.000", "3.000", "3.0", "x"]
        assert second == ["2", "20", "2.500", "2.50", "12.000", "4.00", "4.8", "x"]

    def test_what_differs_is_not_compared(self, monkeypatch):
        class Wrong(Continuation):
            def step(self, ids):
                return super().step(ids).flip(1)

        monkeypatch.setitem(WAYS, "cached", Wrong)
        with pytest.raises(RuntimeError, match="source 0: cached gives Hypothesis"):
            benchmarks.bench_cache(small_model(), [[3, 4, 5]], *self.SYMBOLS, repeats=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bench_engines(TINY, ["warp"]), "engine must be one of .*; got 'warp'"),
        (lambda: bench_engines(TINY, repeats=0), "repeats must be at least 1, got 0"),
        (lambda: benchmarks.bench_memory(["warp"]), "engine must be one of .*; got 'warp'"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
