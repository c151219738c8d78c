import pytest
import torch
from edgewise import benchmarks
from edgewise.__main__ import app
from edgewise.benchmarks import (
    WORKLOADS,
    PaddedAttention,
    Workload,
    bench_engines,
    format_engines,
    interleave,
)
from edgewise.graphs import complete
from edgewise.message_passing import ENGINES, propagate_attention
from typer.testing import CliRunner

TINY = (Workload("tiny", (2, 3), 1, 2), Workload("even", (2, 2), 2, 2))


@pytest.mark.parametrize("lengths", [(3, 3), (1, 4, 2)])
def test_the_padded_rival_computes_the_same(lengths):
    fields = [torch.randn(sum(lengths), 2, 3) for _ in range(3)]
    torch.testing.assert_close(
        PaddedAttention(lengths)(*fields), propagate_attention(complete(lengths), *fields)
    )


def test_rows_cover_every_engine_and_the_tile_plan_made_anew():
    rows = bench_engines(TINY, repeats=1)
    names = {"padded", "tiles, plan included", *ENGINES}
    assert {(row.workload, row.engine) for row in rows} == {(w.name, name) for w in TINY for name in names}
    assert all(row.seconds > 0 for row in rows)
    assert all(row.ratio == 1 for row in rows if row.engine == "padded")
    table = format_engines(rows)
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


def test_memory_is_measured_in_a_process_of_its_own():
    ballast = torch.ones(2**28)  # a GiB that the measured process does not hold
    (row,) = benchmarks.bench_memory(["tiles"], tokens=2048, reach=8)
    assert 0 < row.before < row.peak < ballast.nbytes


def test_a_window_of_65536_tokens_stays_below_two_gib():
    rows = benchmarks.bench_memory()
    assert [row.engine for row in rows] == ["fused", "tiles"]
    assert all(row.before < row.peak < 2 * 2**30 for row in rows), benchmarks.format_memory(rows)


def test_the_command_prints_the_table(monkeypatch):
    monkeypatch.setattr(benchmarks, "bench_engines", lambda repeats: bench_engines(TINY, repeats=repeats))
    result = CliRunner().invoke(app, ["bench", "engines", "--repeats", "1"])
    assert result.exit_code == 0, result.output
    assert "tiles, plan included" in result.output
    assert "tiny" in result.output


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
