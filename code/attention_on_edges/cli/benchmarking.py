"""``python -m attention_on_edges bench``: speed and memory on this machine."""

import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from attention_on_edges.cli.one_line_errors import one_line_errors, tell, write
from attention_on_edges.cli.options import Device
from attention_on_edges.runs import artifacts
from attention_on_edges.runs.engine_cases import engines_plan
from attention_on_edges.runs.harness import Row, format_rows
from attention_on_edges.runs.study_results import Results
from attention_on_edges.studies.against_pyg import pyg_plan
from attention_on_edges.studies.long_texts import long_plan
from attention_on_edges.studies.many_graphs import near_plan, orders_plan, unseen_plan
from attention_on_edges.studies.training_speed import training_plan
from edgewise.validation import UnknownNameError, check_choice

SUBJECTS: dict[str, tuple[str, Any]] = {
    "engines": ("How fast is each engine?", engines_plan),
    "unseen": ("What do graphs cost that auto was not fitted to?", unseen_plan),
    "near": ("Which engine, where both take about as long?", near_plan),
    "orders": ("What is the order of nodes worth?", orders_plan),
    "pyg": ("How fast is a layer, beside PyG's?", pyg_plan),
    "training": ("How many tokens a second are trained on?", training_plan),
    "long": ("What does a long text cost?", long_plan),
}
"""Each benchmark's question and workloads."""

ON_GPU = ("engines", "unseen", "pyg", "training")
"""What runs on other devices than the CPU, too."""

ACROSS = ("engines", "pyg")
"""Tables with a column per workload."""


def bench(
    subject: Annotated[str, typer.Argument(help=f"One of: {', '.join(SUBJECTS)}.")],
    repeats: Annotated[int, typer.Option(min=1, help="Measured turns of each contestant.")] = 5,
    device: Device = "cpu",
    only: Annotated[
        list[str] | None, typer.Option(help="Only workloads whose name contains this; may be repeated.")
    ] = None,
    large: Annotated[
        bool, typer.Option("--large", help="Engines: larger workloads, bfloat16, FlexAttention.")
    ] = False,
    small: Annotated[bool, typer.Option("--small", help="Smoke test.")] = False,
    out: Annotated[Path | None, typer.Option(help="A folder for the figures, as a study's file.")] = None,
) -> None:
    """Measure speed and memory on this machine."""
    with one_line_errors():
        check_choice("subject", subject, SUBJECTS if device == "cpu" else ON_GPU)
        if large:
            check_choice("subject of --large", subject, ("engines",))
        about, plan = SUBJECTS[subject]
        name = f"{'gpu' if device.startswith('cuda') else 'bench'}-{subject}"
        config = {"name": "long" if subject == "long" else name, "about": about, "repeats": repeats}
        facts, began, rows = artifacts.facts(device), time.monotonic(), list[Row]()
        runs = plan(small, large=True) if large else plan(small)
        for text in only or []:
            if not any(text in name for name in runs):
                raise UnknownNameError(f"nothing is called {text!r}; there are {', '.join(runs)}")
        for workload in [name for name in runs if not only or any(text in name for text in only)]:
            tell(f"measuring {workload}")
            rows += runs[workload](torch.device(device), repeats)
            if out is not None:
                seconds = {"seconds": time.monotonic() - began}
                tell(f"Wrote {Results(config, rows, facts | seconds).write(out)}")
        found = f"{artifacts.device_name(device)}\n{format_rows(rows, across=subject in ACROSS)}"
        for line in found.split("\n"):
            write(line)
