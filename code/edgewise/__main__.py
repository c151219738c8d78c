"""The command line: ``python -m edgewise`` or ``edgewise``.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C. An error is one line on standard error.
"""

import fcntl
import gc
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Annotated

import torch
import typer

import edgewise
from edgewise import artifacts, benchmarks, distributed, experiments
from edgewise.checkpoints import CheckpointError
from edgewise.corpora.text import decoded
from edgewise.graphs import dgl_available
from edgewise.message_passing import ENGINES
from edgewise.trainer import DivergedError, Run, StoppedError

gc.freeze()  # what was imported stays; looking through it for garbage would cost every command half a second

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
bench = typer.Typer(no_args_is_help=True)
app.add_typer(bench, name="bench", help="Measure speed and memory on this machine.")

EXPECTED = (CheckpointError, DivergedError, OSError, ValueError)
"""What can go wrong without a fault in the code."""

Repeats = Annotated[int, typer.Option(min=1, help="Measured turns of each contestant.")]
_show_traceback = False


def _check_device(device: str) -> str:
    if distributed.launched():
        return device  # each process of a team looks for its own
    at_hand = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    try:
        kind, number = torch.device(device).type, torch.device(device).index or 0
    except RuntimeError:
        kind, number = "", 0
    if not at_hand.get(kind, False) or (kind == "cuda" and number >= torch.cuda.device_count()):
        there = " and ".join(name for name, here in at_hand.items() if here)
        raise typer.BadParameter(f"{device!r} is not at hand; on this machine there is {there}")
    return device


def _check_experiment(name: str) -> str:
    try:
        return experiments.get_experiment(name).name
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Device = Annotated[str, typer.Option(callback=_check_device, help="cpu, cuda or mps.")]
Name = Annotated[
    str,
    typer.Argument(callback=_check_experiment, help=f"One of: {', '.join(experiments.EXPERIMENTS)}."),
]


@app.callback()
def main(
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where an error came from.")] = False,
) -> None:
    """Attention as message passing on a graph of tokens."""
    global _show_traceback
    _show_traceback = traceback


@app.command()
def train(
    name: Name,
    device: Device = "cpu",
    resume: Annotated[bool, typer.Option(help="Go on from the newest checkpoint, if there is one.")] = False,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/NAME if not given.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many updates.")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that read text on disk ahead.")] = 0,
    small: Annotated[
        bool, typer.Option("--small", help="Only see that it runs: seconds, another model.")
    ] = False,
) -> None:
    """Run an experiment; its artifact is then OUT/artifact. Under torchrun, in several processes."""
    folder = out or Path("runs") / name
    options = ["--device", device] if device != "cpu" else []
    options += (["--out", str(out)] if out else []) + (["--small"] if small else [])
    options += ["--workers", str(workers)] if workers else []
    with (
        _one_line_errors(distributed.leads_machine),
        distributed.joined(device) as (team, own_device),
        _one_line_errors(team.speaks),
        _alone(folder) if team.rank == 0 else nullcontext(),
    ):
        again = shlex.join([*team.command, "train", name, "--resume", *options])
        experiment = experiments.get_experiment(name)
        experiment = experiments.reduced(experiment) if small else experiment
        progress = team.rank == 0 and sys.stderr.isatty()
        run = experiments.start(experiment, folder, own_device, resume, progress, team, workers)
        with _stopping(run):
            try:
                run.train(steps)
            except StoppedError:
                if team.rank == 0:
                    typer.echo(f"stopped at step {run.step}; go on with: {again}", err=True)
                raise typer.Exit(130) from None
        if team.rank == 0:
            _conclude(run, experiment, again)


def _conclude(run: Run, experiment: experiments.Experiment, again: str) -> None:
    """Write the artifact of a finished run; say how another one goes on."""
    if run.finished:
        artifact = experiments.finish(run, experiment)
        typer.echo(artifact.folder)
        for split in experiment.tests:
            typer.echo(f"{split}  {_figures(artifact.metrics[split])}")
        return
    typer.echo(f"stopped at step {run.step}; go on with: {again}")
    deviation = experiments.deviation(run, experiment)
    if deviation is not None:
        typer.echo(f"losses differ from the committed artifact's by {deviation:.1e} at most (relative)")


@app.command()
def evaluate(
    name: Annotated[str, typer.Argument(help="An experiment, or an artifact's folder.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Decode only so many sequences.")] = None,
) -> None:
    """Score a committed model on its test split, beside what was recorded."""
    with _one_line_errors():
        artifact = artifacts.load(name)
        experiment = experiments.Experiment.of(artifact.config)
        search = experiments.search_of(artifact)
        found = experiments.final_figures(experiment, *experiments.restore(artifact), search, limit)
        typer.echo(artifact.caption)
        for split, figures in found.items():
            typer.echo(f"{split}, found     {_figures(figures)}")
            typer.echo(f"{split}, recorded  {_figures(artifact.metrics[split])}")
        if limit is not None:
            typer.echo(f"decoded here: the first {limit}; recorded: all")


@app.command()
def translate(
    texts: Annotated[
        list[str] | None, typer.Argument(help="What to translate; lines of input if none.")
    ] = None,
    model: Annotated[str, typer.Option(help="An experiment on text, or an artifact's folder.")] = "multi30k",
    beam: Annotated[int, typer.Option(min=1, help="Beginnings kept of each translation.")] = 5,
    nbest: Annotated[int, typer.Option(min=1, help="Translations shown of each text, with scores.")] = 1,
    attention: Annotated[bool, typer.Option("--attention", help="Show what each piece listened to.")] = False,
) -> None:
    """Translate with a committed model; needs no corpus and no network."""
    with _one_line_errors():
        translator = experiments.load_translator(artifacts.load(model))
        given = texts or list(decoded(sys.stdin.buffer, "standard input"))
        for text, found in zip(given, translator(given, beam=beam, n_best=nbest), strict=True):
            for translation in found:
                score = f"{translation.hypothesis.score:8.3f}  " if nbest > 1 else ""
                typer.echo(score + translation.text)
                if attention:
                    typer.echo("\n".join(f"    {line}" for line in translator.heard(text, translation)))


@app.command()
def info() -> None:
    """Show versions, devices, engines and artifacts at hand."""
    facts = artifacts.facts("cpu")
    devices = [facts["device"]]
    if torch.cuda.is_available():
        devices.append(artifacts.device_name("cuda"))
    if torch.backends.mps.is_available():
        devices.append("mps")
    engines = [e for e in ENGINES if e in ("scatter", "tiles") or dgl_available()]
    typer.echo(f"edgewise   {edgewise.__version__}, commit {facts['commit'][:10] or 'unknown'}")
    typer.echo(f"python     {facts['python']}, torch {facts['torch']}, {facts['threads']} threads")
    typer.echo(f"devices    {'; '.join(devices)}")
    typer.echo(f"engines    {', '.join(engines)}{'' if dgl_available() else ' (DGL cannot be imported)'}")
    typer.echo(f"artifacts  {', '.join(artifacts.names()) or 'none'}")


@bench.command("engines")
def bench_engines(repeats: Repeats = 5, device: Device = "cpu") -> None:
    """Time every engine against hand-written padded attention, forward and backward."""
    with _one_line_errors():
        rows = benchmarks.bench_engines(repeats=repeats, device=device)
        typer.echo(f"{artifacts.device_name(device)}\n{benchmarks.format_engines(rows)}")


@bench.command("memory")
def bench_memory() -> None:
    """Peak memory of 'fused' and 'tiles' on 65,536 tokens that each hear 129."""
    with _one_line_errors():
        typer.echo(benchmarks.format_memory(benchmarks.bench_memory()))


@bench.command("training")
def bench_training(repeats: Repeats = 5) -> None:
    """Training updates a second: packed, padded torch.nn.Transformer, DGL's built-ins."""
    with _one_line_errors():
        for training in benchmarks.TRAININGS:
            typer.echo(benchmarks.format_training(benchmarks.bench_training([training], repeats=repeats)))


@bench.command("decoding")
def bench_decoding(
    model: Annotated[str, typer.Option(help="An experiment on text, or an artifact's folder.")] = "multi30k",
    repeats: Repeats = 3,
) -> None:
    """Translate 1,000 test sentences; decode with and without cached keys and values."""
    with _one_line_errors():
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
    name: Name = "wmt14",
    repeats: Repeats = 3,
    device: Device = "cpu",
    small: Annotated[bool, typer.Option("--small", help="Only see that it runs.")] = False,
) -> None:
    """Read batches alone, and train on them: whether training ever waits for its input."""
    with _one_line_errors():
        experiment = experiments.get_experiment(name)
        experiment = experiments.reduced(experiment) if small else experiment
        data = experiments.load_data(experiment)
        model = experiment.build(data.vocab_size).to(device)
        row = benchmarks.bench_loader(model, data, experiment.recipe, repeats=repeats)
        typer.echo(f"{artifacts.device_name(device)}: {benchmarks.format_loader(row)}")


@bench.command("adaptive")
def bench_adaptive(repeats: Repeats = 5) -> None:
    """Time a step of the Universal Transformer while fewer and fewer tokens are active."""
    with _one_line_errors():
        typer.echo(benchmarks.format_adaptive(benchmarks.bench_adaptive(repeats=repeats)))


def _figures(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in figures.items())


@contextmanager
def _one_line_errors(speaks: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Turn an expected error into one line, if this process ``speaks``, and exit code 1."""
    try:
        yield
    except EXPECTED as error:
        if _show_traceback:
            raise
        if speaks():
            typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(1) from None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep a second process out of a run's folder; the system lifts the lock with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"another process trains in {folder}; wait for it or name another folder"
            ) from None
        yield


@contextmanager
def _stopping(run: Run) -> Iterator[None]:
    """Let the first Ctrl-C end the batch at hand, and the second one the program.

    ``torchrun`` catches Ctrl-C itself and sends its processes SIGTERM, which counts as one there.
    """
    kinds = [signal.SIGINT, *([signal.SIGTERM] if run.team.size > 1 else [])]

    def stop(number: int, frame: FrameType | None) -> None:
        run.stop_requested = True
        if number == signal.SIGINT:
            typer.echo("stopping after the work at hand; once more to stop at once", err=True)
        restore()

    def restore() -> None:
        for kind, handler in before.items():
            signal.signal(kind, handler)

    before = {kind: signal.signal(kind, stop) for kind in kinds}
    try:
        yield
    finally:
        restore()


if __name__ == "__main__":
    app()
