"""Cases that take turns, and one table for what was measured."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, NamedTuple

import torch

from attention_on_edges.figures import Table, table
from edgewise.validation import InputError

Row = dict[str, Any]
"""``workload``, ``contestant`` and the ``FIGURES`` that are known of them."""

Run = Callable[[torch.device, int], list[Row]]
"""Measures a workload on a device, in so many turns."""

TURN = 0.05
"""Seconds for which a contestant is called repeatedly in its turn; at least once."""

PRODUCT = "one large matrix product"


@dataclass(frozen=True)
class Case:
    """A workload, and those that do it.

    Attributes
    ----------
    workload : str
        What is done.
    contestants : mapping of str to callable
        Each does it once.
    first : str
        The contestant of whose time ``ratio`` is a multiple; without it there is no ratio.
    work : float
        Floating-point operations that it needs, for their ``share`` of the device's rate on one large
        matrix product.
    dtype : torch.dtype
        Of that product.
    facts : callable
        From what a contestant returns to more figures; ``tokens`` become a rate.
    peak : callable, optional
        From a contestant's name to the peak of a process of its own.
    """

    workload: str
    contestants: Mapping[str, Callable[[], object]]
    first: str
    work: float = 0.0
    dtype: torch.dtype = torch.float32
    facts: Callable[[Any], Row] = lambda found: {}
    peak: Callable[[str], int] | None = None


def measure(case: Case, device: torch.device | str = "cpu", repeats: int = 5) -> list[Row]:
    """Time a case's contestants in turns; one that fails says why in ``failed``."""
    device, running = torch.device(device), {}
    rows: dict[str, Row] = {}
    for name, function in case.contestants.items():
        row = rows[name] = {"workload": case.workload, "contestant": name}
        try:
            row |= case.facts(function())
            if device.type == "cuda":
                row["memory"] = _peak_on(device, function)
            running[name] = function
        except (RuntimeError, InputError) as error:  # not on this device, or too much memory
            full = isinstance(error, torch.OutOfMemoryError)
            row["failed"] = "out of memory" if full else shorten(f"{type(error).__name__}: {error}", 80)
    if case.work:
        size = 8192 if device.type == "cuda" else 1024
        square = torch.randn(size, size, device=device, dtype=case.dtype)
        running[PRODUCT] = lambda: square @ square
    seconds = interleave(running, repeats)
    rate = 2 * size**3 / seconds.pop(PRODUCT) if case.work else None
    for name, s in seconds.items():
        row = rows[name]
        row["seconds"] = s
        if case.first in seconds:
            row["ratio"] = s / seconds[case.first]
        if "tokens" in row:
            row["tokens_per_second"] = row.pop("tokens") / s
        if rate is not None:
            row["share"] = case.work / s / rate
        if case.peak is not None:
            row["peak"] = case.peak(name)
    return list(rows.values())


def interleave(functions: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median seconds of functions that take turns, so that a slow moment hits all of them.

    A turn begins with an unmeasured call, because the previous function affects caches and allocator.
    """
    from torch.utils.benchmark import Timer  # with which PyTorch may warn that a CUDA toolkit finds no GPU

    timers = {
        name: Timer("function()", globals={"function": function}, num_threads=torch.get_num_threads())
        for name, function in functions.items()
    }
    turns = [
        {name: timer.blocked_autorange(min_run_time=TURN).median for name, timer in timers.items()}
        for _ in range(repeats)
    ]
    return {name: statistics.median(turn[name] for turn in turns) for name in timers}


def _peak_on(device: torch.device, function: Callable[[], object]) -> int:
    """Call a function; return the bytes of a GPU that it holds at most besides those held before."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    function()
    return torch.cuda.max_memory_allocated(device) - before


def in_turns(build: Callable[..., Case]) -> Run:
    """Return what builds a case on a device and measures it."""
    return lambda device, repeats: measure(build(device), device, repeats)


class Figure(NamedTuple):
    """How a figure is shown: its column's head, its format and unit."""

    head: str
    form: str
    scale: float = 1.0
    unit: str = ""


FIGURES = {
    "seconds": Figure("ms", ",.2f", 1e3),
    "predicted": Figure("ms, predicted", ",.2f", 1e3),
    "ratio": Figure("time, ratio", ".2f", unit=" x"),
    "tokens_per_second": Figure("tokens/s", ",.0f"),
    "share": Figure("of the matrix rate", ".0%"),
    "first": Figure("ms, first pass", ",.2f", 1e3),
    "memory": Figure("MiB", ",.0f", 2**-20, " MiB"),
    "peak": Figure("peak MiB", ",.0f", 2**-20),
    "error": Figure("error", ".0e", unit=" error"),
    "failed": Figure("", ""),
}
"""Seconds, bytes and numbers of rows, in the order of a table's columns."""


def format_rows(rows: Sequence[Row], figures: Iterable[str] = tuple(FIGURES), across: bool = False) -> Table:
    """Make the table of some rows.

    Parameters
    ----------
    rows : sequence of dict
        From one benchmark.
    figures : iterable of str
        Which of ``FIGURES``, if a row has them, besides why it failed.
    across : bool
        Whether a line is a contestant and a column a workload, with all figures in a cell, instead of a line
        for each row and a column for each figure.
    """
    known = [name for name in dict.fromkeys([*figures, "failed"]) if any(name in row for row in rows)]
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    if across:
        cells: dict[str, dict[str, str]] = {}
        for row in rows:
            cells.setdefault(row["contestant"], {})[row["workload"]] = _cell(row, known)
        lines = [[name, *(found.get(each, "") for each in workloads)] for name, found in cells.items()]
        return table([FIGURES[known[0]].head, *workloads], lines)
    named = ["workload", "contestant"] if len(workloads) > 1 else ["contestant"]
    values = [[*(row[name] for name in named), *(_scaled(row, name) for name in known)] for row in rows]
    shown = [FIGURES[name] for name in known]
    blank = [""] * len(named)
    return table(blank + [x.head for x in shown], values, blank + [x.form for x in shown])


def _scaled(row: Row, name: str) -> float | str:
    """A figure in its unit; what failed is told in words."""
    value = row.get(name, "")
    return value if isinstance(value, str) else value * FIGURES[name].scale


def _cell(row: Row, known: Sequence[str]) -> str:
    """The first figure, the others in brackets."""
    here = [(FIGURES[name], _scaled(row, name)) for name in known if name in row]
    first, *others = (format(value, figure.form) + figure.unit for figure, value in here)
    return first + (f" ({', '.join(others)})" if others else "")
