"""The commands of ``python -m attention_on_edges``.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C. An error is told in one line on standard
error; a fault of the program itself shows its traceback.
"""

import gc
import io
import sys
from pathlib import Path
from typing import Annotated

import torch
import typer
from tqdm import tqdm

import edgewise
from attention_on_edges import runs, studies
from attention_on_edges.cli.asking import ask
from attention_on_edges.cli.benchmarking import bench
from attention_on_edges.cli.one_line_errors import one_line_errors, stopping, tell, write
from attention_on_edges.cli.options import Device
from attention_on_edges.cli.translating import translate
from attention_on_edges.dgl_engines import in_dgl
from attention_on_edges.runs import artifacts
from attention_on_edges.runs.study_results import run_study
from attention_on_edges.training import StoppedError
from attention_on_edges.training.distributed import process_group, rank
from edgewise.propagation import ENGINES
from edgewise.validation import check_choice

gc.freeze()  # imported modules stay; collecting them would cost every command half a second

GO_ON = "go on with the same command and --resume"

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)
app.command(no_args_is_help=True)(bench)
app.command()(translate)
app.command()(ask)


@app.callback()
def main() -> None:
    """Attention as message passing on a graph of tokens."""
    for stream in (sys.stdout, sys.stderr):  # a terminal of another encoding loses no line
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@app.command()
def train(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(runs.EXPERIMENTS)}.")],
    device: Device = "cpu",
    resume: Annotated[bool, typer.Option(help="Continue from the newest checkpoint, if any.")] = False,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/NAME if not given.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Stop after this many updates.")] = None,
    small: Annotated[
        bool, typer.Option("--small", help="Smoke test: a much smaller model, in seconds.")
    ] = False,
) -> None:
    """Run an experiment and write OUT/artifact. Under torchrun, in several processes."""
    folder = out or Path("runs") / name
    with (
        one_line_errors(),
        process_group(device) as own_device,
        tqdm(unit=" tokens", unit_scale=True, delay=1, disable=True if rank() else None) as bar,
    ):
        check_choice("experiment", name, runs.EXPERIMENTS)
        experiment = runs.reduced(runs.EXPERIMENTS[name]) if small else runs.EXPERIMENTS[name]
        first = rank() == 0
        progress = bar.update if first else None
        trainer = runs.start(experiment, folder, own_device, resume, progress)
        with stopping(trainer):
            try:
                trainer.train(steps)
            except StoppedError:
                if first:
                    tell(f"stopped at step {trainer.step}; {GO_ON}")
                raise typer.Exit(130) from None
        if first and trainer.finished:
            artifact = runs.finish(trainer, experiment)
            write(artifact.folder)
            for split in experiment.tests:
                write(f"{split}  {_figures(artifact.metrics[split])}")
        elif first:
            write(f"stopped at step {trainer.step}; {GO_ON}")


@app.command()
def study(
    name: Annotated[
        str, typer.Argument(help=f"One of: {', '.join([*studies.STUDIES, *studies.MEASUREMENTS])}.")
    ],
    device: Device = "cpu",
    out: Annotated[Path, typer.Option(help="Where its figures go.")] = Path("runs") / "studies",
) -> None:
    """Make the runs of a study that are not done yet; write its figures to OUT/NAME.json.

    If NAME is a measurement, evaluate a committed model instead, on the CPU.
    """
    with one_line_errors():
        check_choice("study", name, [*studies.STUDIES, *studies.MEASUREMENTS])
        if name in studies.MEASUREMENTS:
            write(studies.run_measurement(studies.MEASUREMENTS[name], out))
            return
        run_study(studies.STUDIES[name], out, device)
        write(out / f"{name}.json")


@app.command()
def evaluate(
    name: Annotated[str, typer.Argument(help="An experiment, or the path of an artifact's folder.")],
) -> None:
    """Score a committed model on its test split; print the recorded figures next to the new ones."""
    with one_line_errors():
        artifact = artifacts.load(name)
        experiment, search = artifact.experiment, runs.search_of(artifact)
        recorded = {split: artifact.metrics[split] for split in experiment.tests}
        found = runs.final_figures(experiment, *runs.restore(artifact), search)
        write(artifact.caption)
        for split, figures in found.items():
            write(f"{split}, found     {_figures(figures)}")
            write(f"{split}, recorded  {_figures(recorded[split])}")


@app.command()
def info() -> None:
    """Show versions and the available devices, engines and artifacts."""
    facts = artifacts.facts("cpu")
    devices = [facts["device"]]
    if torch.cuda.is_available():
        devices.append(artifacts.device_name("cuda"))
    if torch.backends.mps.is_available():
        devices.append("mps")
    write(f"edgewise   {edgewise.__version__}, commit {facts['commit'][:10] or 'unknown'}")
    write(f"python     {facts['python']}, torch {facts['torch']}, {facts['threads']} threads")
    write(f"devices    {'; '.join(devices)}")
    write(f"engines    {', '.join([*ENGINES, *in_dgl()])}{'' if in_dgl() else ' (DGL cannot be imported)'}")
    write(f"artifacts  {', '.join(artifacts.names()) or 'none'}")


def _figures(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in figures.items())
