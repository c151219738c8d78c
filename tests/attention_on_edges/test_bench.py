import json
import os
import re
from itertools import chain, groupby

import pytest
import torch
from typer.testing import CliRunner

from attention_on_edges.cli.app import app
from attention_on_edges.cli.benchmarking import ON_GPU, SUBJECTS
from attention_on_edges.layers import Dropout
from attention_on_edges.models.padded import PaddedTransformer
from attention_on_edges.models.transformer import make_model
from attention_on_edges.pool import GraphPool
from attention_on_edges.runs.engine_cases import Workload, engines_case
from attention_on_edges.runs.harness import Case, format_rows, interleave, measure
from attention_on_edges.runs.study_results import load_study
from attention_on_edges.studies import long_texts
from attention_on_edges.studies.many_graphs import NATURAL, terms_of, under_a_mask
from attention_on_edges.studies.memory import alone
from attention_on_edges.studies.training_speed import TRAININGS, padded_around
from book_support import random_pairs, small_model
from edgewise.graphs import complete, window
from edgewise.propagation import propagate_attention
from paths import ROOT
from support import random_fields


class TestHarness:
    def test_functions_take_turns(self):
        order = []
        interleave({name: lambda name=name: order.append(name) for name in "ab"}, repeats=2)
        assert [name for name, _ in groupby(order)] == [*"abab"]

    def test_a_row_tells_what_is_known_and_why_a_contestant_failed(self, monkeypatch):
        times = {"quick": 0.5, "slow": 2.0, "one large matrix product": 2 * 1024**3 / 100}
        monkeypatch.setattr(
            "attention_on_edges.runs.harness.interleave",
            lambda running, repeats: {name: times[name] for name in running},
        )

        def failing():
            raise NotImplementedError("no kernel")

        case = Case(
            "sums",
            {"quick": lambda: 3, "slow": lambda: 4, "missing": failing},
            first="quick",
            work=10,
            facts=lambda found: {"tokens": 2 * found, "error": 0.5},
            peak={"quick": 2**20, "slow": 2**21}.get,
        )
        quick = {"error": 0.5, "seconds": 0.5, "ratio": 1.0, "tokens_per_second": 12.0, "share": 0.2}
        slow = {"error": 0.5, "seconds": 2.0, "ratio": 4.0, "tokens_per_second": 4.0, "share": 0.05}
        rows = measure(case)
        assert rows == [
            {"workload": "sums", "contestant": "quick", "peak": 2**20} | quick,
            {"workload": "sums", "contestant": "slow", "peak": 2**21} | slow,
            {"workload": "sums", "contestant": "missing", "failed": "NotImplementedError: no kernel"},
        ]
        lines = [line.split() for line in str(format_rows(rows, ["seconds", "ratio", "failed"])).splitlines()]
        assert lines[3] == ["slow", "2,000.00", "4.00"]
        assert lines[4] == ["missing", "NotImplementedError:", "no", "kernel"]
        assert "500.00 (1.00 x, 12, 20%, 1, 5e-01 error)" in str(format_rows(rows, across=True))

    def test_a_process_of_its_own_has_its_environment(self, monkeypatch):
        monkeypatch.setenv("KEPT", "7")
        assert alone(os.getenv, "KEPT", KEPT="8", ADDED="x") == "8"
        assert os.environ["KEPT"] == "7"
        assert "ADDED" not in os.environ
        with pytest.raises(RuntimeError, match="terminated abruptly"):
            alone(os._exit, 1)


DAILY, SOME = "pyg", {"engines": ["--large", "--only", "5-30, 4"], "training": ["--only", "d 512"]}


@pytest.mark.parametrize(
    ("subject", "device"),
    [
        pytest.param(name, "cpu", marks=() if name == DAILY else pytest.mark.nightly, id=name)
        for name in SUBJECTS
    ]
    + [pytest.param(name, "cuda", marks=pytest.mark.cuda) for name in ON_GPU],
)
def test_a_benchmark_runs_at_a_small_size(subject, device, tmp_path):
    words = [subject, "--small", "--repeats", "1", "--device", device, "--out", str(tmp_path)]
    result = CliRunner().invoke(app, ["bench", *words, *SOME.get(subject, [])])
    assert result.exit_code == 0, result.output
    name = subject if subject == "long" else f"{'bench' if device == 'cpu' else 'gpu'}-{subject}"
    study = json.loads((tmp_path / f"{name}.json").read_text())
    assert study["config"]["name"] == name
    assert len({(row["workload"], row["contestant"]) for row in study["rows"]}) == len(study["rows"])
    for row in study["rows"]:
        assert row["contestant"] in result.output
        assert row.get("seconds", 1) > 0
        assert row.get("error", 0) < (0.05 if "bfloat16" in row["contestant"] else 1e-5)
        assert "failed" not in row


def test_the_script_for_a_gpu_runs_benchmarks_that_exist():
    named = re.findall(r"\bbench (\w+)", (ROOT / ".ci" / "gpu").read_text(encoding="utf-8"))
    assert sorted(named) == sorted(ON_GPU)


class TestAttention:
    @pytest.mark.parametrize(
        "graph",
        [complete((3, 1, 5)), complete((1, 1, 9)), window(7, 2, 1), NATURAL["60 texts of 10-25"]()],
        ids=str,
    )
    def test_a_mask_padded_by_parts_computes_the_same(self, graph):
        fields = random_fields(graph, 2, 4)
        torch.testing.assert_close(under_a_mask(graph)(*fields), propagate_attention(graph, *fields))

    def test_the_work_of_a_layer_is_that_of_its_edges(self):
        """Seven products, each of two operations per edge and number of a head."""
        assert engines_case(Workload("tiny", (2, 3), 1, 2)).work == 7 * 2 * (2 * 2 + 3 * 3) * 2


@pytest.mark.parametrize("name", ["60 texts of 10-25", "window of 65 on 10,000"])
def test_what_is_counted_is_what_committed_rows_hold(name):
    """Which the pages of chapter 14 and of benchmarks read."""
    rows = [r for r in load_study("bench-unseen").rows if r["workload"] == f"{name}, as it comes, 4 x 32"]
    assert terms_of(NATURAL[name]()) == {row["contestant"]: row["terms"] for row in rows if "terms" in row}


class TestTraining:
    def test_attention_padded_by_hand_is_the_models_own(self):
        model, batch = small_model(), GraphPool()(*random_pairs([(5, 2), (3, 4), (4, 6)]))
        expected = model(batch)
        model.propagate_attention = padded_around(batch)
        torch.testing.assert_close(model(batch), expected)

    def test_the_padded_rival_drops_where_the_model_does(self):
        """That it computes the same is shown of the committed models."""
        ours, sizes = make_model(20, 20, 2, 8, 12, 2, dropout=0.5), (20, 2, 8, 12, 2, 0.5)
        rival, tuned = PaddedTransformer(*sizes), PaddedTransformer(*sizes, fast_dropout=True)
        for model, kind in ((ours, Dropout), (rival, torch.nn.Dropout), (tuned, Dropout)):
            assert sum(isinstance(m, kind) and m.p == 0.5 for m in model.modules()) == 11
        assert all(m.dropout == 0 for m in rival.modules() if isinstance(m, torch.nn.MultiheadAttention))

    @pytest.mark.parametrize("training", TRAININGS, ids=lambda training: training.name)
    def test_batches_are_as_described(self, training):
        batches = [[len(source) for source, _ in pairs] for pairs in training.batches()]
        lengths, count = [*chain(*batches)], 8 if training.long else 128
        assert [len(batch) for batch in batches] == [count] * training.num_batches
        low, high, mean = (200, 300, 250) if training.long else (1, 45, 14)
        assert low <= min(lengths) <= max(lengths) <= high
        assert sum(lengths) / len(lengths) == pytest.approx(mean, rel=0.1)
        assert (lengths == sorted(lengths)) == training.bucketed


class TestLongTexts:
    def run(self, monkeypatch, name, lengths):
        """Processes that take what power laws say: time n ** 2 or n, memory n ** 1.5 or n."""
        asked = []

        def measured(function, name, n, repeats, **environment):
            asked.append(n)
            assert environment == long_texts.KEEPING
            quadratic = name in long_texts.QUADRATIC
            seconds, memory = 1e-9 * n ** (1 + quadratic), 1e3 * n ** (1.5 if quadratic else 1)
            return {"seconds": seconds, "first": 2 * seconds, "memory": memory}

        monkeypatch.setattr(long_texts, "alone", measured)
        return asked, long_texts._growth(name, lengths, torch.device("cpu"), 1)

    def test_what_takes_too_long_is_extrapolated_by_its_power_law(self, monkeypatch):
        asked, rows = self.run(monkeypatch, "dense", long_texts.LENGTHS)
        assert asked == [1024, 2048, 4096, 8192, 16384, 32768]
        assert [row["measured"] for row in rows] == [True] * 6 + [False] * 3
        for row in rows:
            assert row["edges"] == row["tokens"] ** 2
            assert row["seconds"] == pytest.approx(1e-9 * row["tokens"] ** 2)
            assert row["memory"] == pytest.approx(1e3 * row["tokens"] ** 1.5)
        assert long_texts.exponents(rows, "dense", 4096) == pytest.approx((2, 1.5))

    def test_nothing_longer_is_run_than_memory_allows(self, monkeypatch):
        monkeypatch.setattr(long_texts, "MOST_MEMORY", 1.2e3 * 8192)
        assert self.run(monkeypatch, "window", (4096, 8192, 16384, 32768))[0] == [4096, 8192]

    @pytest.mark.parametrize("name", long_texts.EDGES)
    def test_every_contestant_computes_its_own_graph(self, name):
        tokens, attend = long_texts.layer(name, 200)
        fields = [torch.randn(tokens, 2, 4) for _ in range(3)]
        graph = long_texts.GRAPHS.get(name, complete)(200)
        torch.testing.assert_close(attend(*fields), propagate_attention(graph, *fields, engine="scatter"))
        for n in (1, 9, 50, 200):
            assert long_texts.GRAPHS.get(name, complete)(n).num_edges == long_texts.EDGES[name](n)
