"""``edgewise bench``: speed and memory on this machine."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from attention_on_edges import benchmarks, experiments
from attention_on_edges.commands.options import Device, Model
from attention_on_edges.commands.running import one_line_errors, tell, write
from attention_on_edges.experiments import artifacts
from edgewise.validation import check_choice

bench = typer.Typer(no_args_is_help=True)

Repeats = Annotated[int, typer.Option(min=1, help="Measured turns of each contestant.")]
Only = Annotated[
    list[str] | None, typer.Option(help="Only workloads whose name contains this; may be repeated.")
]

Out = Annotated[Path | None, typer.Option(help="A folder for the figures, as a study's JSON file.")]


class Report:
    """The figures of a benchmark as a study, if a folder for them is given; commit and date are its start's.

    Parameters
    ----------
    out : Path or None
        The folder.
    device : str
        Where it runs; the study's name begins with ``gpu-`` on CUDA, and else with ``bench-``.
    name : str
        What is measured.
    config : dict
        ``about`` and more.
    """

    def __init__(self, out: Path | None, device: str = "cpu", *, name: str, **config: Any):
        self.out, self.began, self.facts = out, time.monotonic(), artifacts.facts(device)
        kind = "gpu" if device.startswith("cuda") else "bench"
        self.config = {"name": name if name == "long" else f"{kind}-{name}", **config}
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        """Write the rows that there are so far."""
        if self.out is not None:
            facts = self.facts | {"seconds": time.monotonic() - self.began}
            tell(f"Wrote {experiments.Results(self.config, list(rows), facts).write(self.out)}")


def chosen(names: Iterable[str], only: list[str] | None) -> list[str]:
    """Return the names that contain one of the texts of ``only``; all without it."""
    names = list(names)
    for text in only or []:
        if not any(text in name for name in names):
            raise typer.BadParameter(f"no workload is called {text!r}; there are {', '.join(names)}")
    return [name for name in names if only is None or any(text in name for text in only)]


Small = Annotated[bool, typer.Option("--small", help="Smoke test.")]


def _reduced(workload: benchmarks.Workload) -> benchmarks.Workload:
    """A few texts of at most fifty tokens."""
    reach = workload.reach and min(workload.reach, 7)
    return replace(workload, lengths=tuple(min(n, 50) for n in workload.lengths[:4]), reach=reach)


@bench.command("engines")
def bench_engines(
    repeats: Repeats = 5,
    device: Device = "cpu",
    only: Only = None,
    engine: Annotated[list[str] | None, typer.Option(help="Only this engine; may be repeated.")] = None,
    large: Annotated[
        bool, typer.Option("--large", help="For a GPU: larger ones, bfloat16, FlexAttention.")
    ] = False,
    small: Small = False,
    out: Out = None,
) -> None:
    """Time every engine against hand-written padded attention, forward and backward."""
    workloads = benchmarks.WORKLOADS + (benchmarks.LARGE if large else ())
    named = {each.name: _reduced(each) if small else each for each in workloads}
    turns: list[tuple[benchmarks.Workload, list[str] | None, torch.dtype]]
    turns = [(named[name], engine or None, torch.float32) for name in chosen(named, only)]
    if large:
        turns += [(each, engines, torch.bfloat16) for each, engines, _ in turns]
        kernels = ["tiles", benchmarks.VARLEN, benchmarks.FLEX]  # compiled, which takes long
        turns += [(named[each.name], kernels, torch.bfloat16) for each in benchmarks.LARGE]
    rows = []
    with one_line_errors():
        report = Report(out, device, name="engines", about="How fast is each engine?", repeats=repeats)
        for workload, engines, dtype in turns:
            tell(f"measuring {workload.name}, {dtype}")
            rows += benchmarks.bench_engines([workload], engines, repeats, device, dtype)
            report.write([asdict(row) for row in rows])
        write(f"{artifacts.device_name(device)}\n{benchmarks.format_engines(rows)}")


@bench.command("pyg")
def bench_pyg(repeats: Repeats = 5, device: Device = "cpu", only: Only = None, out: Out = None) -> None:
    """Time a layer of graph attention against PyG's TransformerConv with the same weights."""
    rows = []
    with one_line_errors():
        report = Report(out, device, name="pyg", about="How fast is a layer, beside PyG's?", repeats=repeats)
        for name in chosen(benchmarks.PYG_WORKLOADS, only):
            tell(f"measuring {name}")
            rows += benchmarks.bench_pyg([name], repeats, device)
            report.write([asdict(row) for row in rows])
        write(benchmarks.format_pyg(rows))


@bench.command("causal")
def bench_causal(repeats: Repeats = 5, only: Only = None, out: Out = None) -> None:
    """Compare decoder-only models with those of Hugging Face's transformers: results, speed of training."""
    with one_line_errors():
        report = Report(out, name="causal", about="How fast does a ragged batch train?", repeats=repeats)
        equal = benchmarks.compare_with_transformers()
        rows = []
        for name in chosen(benchmarks.TRAINED, only):
            tell(f"measuring {name}")
            rows += benchmarks.bench_causal([name], repeats)
        write(benchmarks.format_causal(rows))
        report.write([asdict(row) for row in [*equal, *rows]])


@bench.command("memory")
def bench_memory(out: Out = None) -> None:
    """Peak memory of 'fused' and 'tiles' on 65,536 tokens with 129 in-edges each."""
    with one_line_errors():
        report = Report(out, name="memory", about="How much memory does a long window take?")
        rows = benchmarks.bench_memory()
        write(benchmarks.format_memory(rows))
        report.write([asdict(row) for row in rows])


@bench.command("long")
def bench_long(
    repeats: Repeats = 3,
    longest: Annotated[int, typer.Option(min=1024, help="Longest text, in tokens.")] = 262_144,
    name: Annotated[list[str] | None, typer.Option(help="Only this contestant; may be repeated.")] = None,
    keep: Annotated[bool, typer.Option(help="Whether processes keep memory that they have freed.")] = True,
    out: Out = None,
) -> None:
    """Time and memory of one layer on 1,024 to 262,144 tokens: dense attention against sparse graphs."""
    with one_line_errors():
        names = name or list(benchmarks.CONTESTANTS)
        settings = {"keep": keep, "repeats": repeats, "names": names, "longest": longest}
        report = Report(out, name="long", about="What does a long text cost?", **settings)
        lengths = [n for n in benchmarks.LENGTHS if n <= longest]
        rows = benchmarks.bench_long(names, lengths, repeats, keep=keep)
        write(benchmarks.format_long(rows))
        report.write([{"variant": row.name} | row.known for row in rows])


@bench.command("training")
def bench_training(
    repeats: Repeats = 3,
    device: Device = "cpu",
    only: Only = None,
    contestant: Annotated[list[str] | None, typer.Option(help="Only this one; may be repeated.")] = None,
    small: Small = False,
    out: Out = None,
) -> None:
    """Training updates per second: packed, padded torch.nn.Transformer, DGL's built-ins."""
    trainings = {training.name: training for training in benchmarks.TRAININGS}
    found = []
    with one_line_errors():
        about = "How many tokens a second are trained on?"
        report = Report(out, device, name="training", about=about, repeats=repeats)
        for name in chosen(trainings, only):
            tell(f"measuring {name}")
            training = replace(trainings[name], dim_model=16, num_batches=1) if small else trainings[name]
            rows = benchmarks.bench_training([training], contestant or None, repeats, device)
            write(benchmarks.format_training(rows))
            found += rows
            report.write([asdict(row) for row in found])


@bench.command("profile")
def bench_profile(
    device: Device = "cpu",
    only: Annotated[str, typer.Option(help="Which training.")] = "d 512, 2 layers",
    out: Out = None,
) -> None:
    """Profile updates: what waits for the device, and the longest operations."""
    trainings = {training.name: training for training in benchmarks.TRAININGS}
    with one_line_errors():
        check_choice("only", only, trainings)
        report = Report(out, device, name="profile", about="What does an update wait for?", training=only)
        rows = benchmarks.profile_training(trainings[only], device)
        write(benchmarks.format_profile(rows))
        report.write([asdict(row) for row in rows])


@bench.command("decoding")
def bench_decoding(
    model: Model = "multi30k",
    repeats: Repeats = 3,
    out: Out = None,
) -> None:
    """Translate 1,000 test sentences; decode with and without cached keys and values."""
    with one_line_errors():
        artifact = artifacts.load(model)
        translator, texts = experiments.load_translator(artifact), experiments.test_sources(artifact)[:1000]
        report = Report(out, name="decoding", about="How fast is decoding?", artifact=model, repeats=repeats)
        rows = benchmarks.bench_decoding(partial(translator, max_repeats=None, copy=False), texts, repeats)
        write(benchmarks.format_decoding(rows))
        sources = [translator.encode(text) for text in texts[:100]]
        setting = translator.model, sources, translator.vocabulary.sos_id, translator.vocabulary.eos_id
        cached = [benchmarks.bench_cache(*setting, repeats=repeats)]
        write(benchmarks.format_cache(cached))
        setting = setting[0], sources[:2], *setting[2:]
        lengths = benchmarks.bench_lengths(*setting, repeats=repeats)
        write(benchmarks.format_cache(lengths))
        report.write([asdict(row) for row in [*rows, *cached, *lengths]])


@bench.command("depth")
def bench_depth(repeats: Repeats = 5, out: Out = None) -> None:
    """Time models of adaptive, fixed and ordinary depth on chains of pointers."""
    with one_line_errors():
        report = Report(out, name="depth", about="What does adaptive depth cost?", repeats=repeats)
        rows = benchmarks.bench_depth(repeats)
        write(benchmarks.format_depth(rows))
        report.write([asdict(row) for row in rows])
