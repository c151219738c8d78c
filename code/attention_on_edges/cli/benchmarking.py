"""``python -m attention_on_edges bench``: speed and memory on this machine."""

import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from attention_on_edges import studies
from attention_on_edges.bench.against_pyg import pyg_plan
from attention_on_edges.bench.decoding import decoding_plan
from attention_on_edges.bench.depth import depth_plan
from attention_on_edges.bench.engines import engines_plan, masks_plan
from attention_on_edges.bench.harness import Row, chosen, format_rows
from attention_on_edges.bench.language_models import causal_plan
from attention_on_edges.bench.long_texts import long_plan, memory_plan
from attention_on_edges.bench.many_graphs import (
    conclude,
    graphs_plan,
    law_plan,
    orders_plan,
    predictions_plan,
    unseen_plan,
)
from attention_on_edges.bench.training import profile_plan, training_plan
from attention_on_edges.cli.one_line_errors import one_line_errors, tell, write
from attention_on_edges.cli.options import Device
from attention_on_edges.runs import artifacts
from edgewise.validation import check_choice

SUBJECTS: dict[str, tuple[str, Any]] = {
    "engines": ("How fast is each engine?", engines_plan),
    "masks": ("How fast is a mask for FlexAttention made?", masks_plan),
    "graphs": ("How fast are engines on graphs of many kinds?", graphs_plan),
    "law": ("What will a graph cost?", law_plan),
    "predictions": ("What will graphs cost that it has not seen?", predictions_plan),
    "unseen": ("What do they cost?", unseen_plan),
    "orders": ("What is the order of nodes worth?", orders_plan),
    "pyg": ("How fast is a layer, beside PyG's?", pyg_plan),
    "training": ("How many tokens a second are trained on?", training_plan),
    "profile": ("What does an update wait for?", profile_plan),
    "causal": ("How fast does a ragged batch train?", causal_plan),
    "memory": ("How much memory does a long window take?", memory_plan),
    "long": ("What does a long text cost?", long_plan),
    "decoding": ("How fast is decoding?", decoding_plan),
    "depth": ("What does adaptive depth cost?", depth_plan),
}
"""Each benchmark's question and workloads."""

ON_GPU = ("engines", "graphs", "pyg", "training", "profile")
"""What runs on other devices than the CPU, too."""

ACROSS = ("engines", "pyg", "depth")
"""Tables with a column per workload."""


def bench(
    subject: Annotated[str, typer.Argument(help=f"One of: {', '.join(SUBJECTS)}.")],
    repeats: Annotated[int, typer.Option(min=1, help="Measured turns of each contestant.")] = 5,
    device: Device = "cpu",
    only: Annotated[
        list[str] | None, typer.Option(help="Only workloads whose name contains this; may be repeated.")
    ] = None,
    contestant: Annotated[list[str] | None, typer.Option(help="The same for contestants.")] = None,
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
        for workload in chosen(runs, only or []):
            tell(f"measuring {workload}")
            rows += runs[workload](torch.device(device), repeats, contestant or [])
            if out is not None:
                seconds = {"seconds": time.monotonic() - began}
                tell(f"Wrote {studies.Results(config, rows, facts | seconds).write(out)}")
        found = f"{artifacts.device_name(device)}\n{format_rows(rows, across=subject in ACROSS)}"
        found += f"\n{conclude(rows, facts, out)}" if subject == "law" else ""
        for line in found.split("\n"):
            write(line)
