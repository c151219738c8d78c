"""``edgewise bench``: speed and memory on this machine."""

import time
from pathlib import Path
from typing import Annotated

import typer

from attention_on_edges import benchmarks, experiments
from attention_on_edges.commands.options import Device, TextName
from attention_on_edges.commands.running import one_line_errors, tell
from attention_on_edges.experiments import artifacts

bench = typer.Typer(no_args_is_help=True)

Repeats = Annotated[int, typer.Option(min=1, help="Measured turns of each contestant.")]


@bench.command("engines")
def bench_engines(repeats: Repeats = 5, device: Device = "cpu") -> None:
    """Time every engine against hand-written padded attention, forward and backward."""
    with one_line_errors():
        rows = benchmarks.bench_engines(repeats=repeats, device=device)
        typer.echo(f"{artifacts.device_name(device)}\n{benchmarks.format_engines(rows)}")


@bench.command("memory")
def bench_memory() -> None:
    """Peak memory of 'fused' and 'tiles' on 65,536 tokens with 129 in-edges each."""
    with one_line_errors():
        typer.echo(benchmarks.format_memory(benchmarks.bench_memory()))


@bench.command("long")
def bench_long(
    repeats: Repeats = 3,
    longest: Annotated[int, typer.Option(min=1024, help="Longest text, in tokens.")] = 262_144,
    name: Annotated[list[str] | None, typer.Option(help="Only this contestant; may be repeated.")] = None,
    keep: Annotated[bool, typer.Option(help="Whether processes keep memory that they have freed.")] = True,
    out: Annotated[Path | None, typer.Option(help="A folder for long.json, the figures.")] = None,
) -> None:
    """Time and memory of one layer on 1,024 to 262,144 tokens: dense attention against sparse graphs."""
    with one_line_errors():
        stage, began = artifacts.facts("cpu"), time.monotonic()
        lengths = [n for n in benchmarks.LENGTHS if n <= longest]
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        rows = benchmarks.bench_long(name or benchmarks.CONTESTANTS, lengths, repeats, keep=keep)
        typer.echo(benchmarks.format_long(rows))
        if out is not None:
            about = {"name": "long", "about": "What does a long text cost?", "keep": keep, "repeats": repeats}
            about |= {"names": name or list(benchmarks.CONTESTANTS), "longest": longest}
            stage |= {"seconds": time.monotonic() - began}
            results = experiments.Results(about, [{"variant": r.name} | r.known for r in rows], stage)
            tell(f"Wrote {results.write(out)}")


@bench.command("training")
def bench_training(repeats: Repeats = 5) -> None:
    """Training updates per second: packed, padded torch.nn.Transformer, DGL's built-ins."""
    with one_line_errors():
        for training in benchmarks.TRAININGS:
            typer.echo(benchmarks.format_training(benchmarks.bench_training([training], repeats=repeats)))


@bench.command("decoding")
def bench_decoding(
    model: Annotated[str, typer.Option(help="An experiment on text, or an artifact's folder.")] = "multi30k",
    repeats: Repeats = 3,
) -> None:
    """Translate 1,000 test sentences; decode with and without cached keys and values."""
    with one_line_errors():
        artifact = artifacts.load(model)
        translator, texts = experiments.load_translator(artifact), experiments.test_sources(artifact)[:1000]
        typer.echo(benchmarks.format_decoding(benchmarks.bench_decoding(translator, texts, repeats)))
        sources = [translator.encode(text) for text in texts[:100]]
        setting = translator.model, sources, translator.vocabulary.sos_id, translator.vocabulary.eos_id
        typer.echo(benchmarks.format_cache([benchmarks.bench_cache(*setting, repeats=repeats)]))
        setting = setting[0], sources[:2], *setting[2:]
        typer.echo(benchmarks.format_cache(benchmarks.bench_lengths(*setting, repeats=repeats)))


@bench.command("loader")
def bench_loader(
    name: TextName = "wmt14",
    repeats: Repeats = 3,
    device: Device = "cpu",
    small: Annotated[bool, typer.Option("--small", help="Smoke test.")] = False,
) -> None:
    """Time reading batches and training on them: whether training waits for its input."""
    with one_line_errors():
        experiment = experiments.get_experiment(name)
        experiment = experiments.reduced(experiment) if small else experiment
        data = experiments.load_data(experiment, say=tell)
        model = experiment.build(data.vocab_size).to(device)
        row = benchmarks.bench_loader(model, data, experiment.training, repeats=repeats)
        typer.echo(f"{artifacts.device_name(device)}: {benchmarks.format_loader(row)}")


@bench.command("adaptive")
def bench_adaptive(repeats: Repeats = 5) -> None:
    """Time a step of the Universal Transformer while fewer and fewer tokens are active."""
    with one_line_errors():
        typer.echo(benchmarks.format_adaptive(benchmarks.bench_adaptive(repeats=repeats)))
