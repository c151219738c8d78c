"""Cases that take turns, and one table for what was measured."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, NamedTuple

import torch

from attention_on_edges.bench.timing import interleave, matrix_product, peak_on
from attention_on_edges.figures import Table, table
from edgewise.validation import InputError, UnknownNameError

Row = dict[str, Any]
"""``workload``, ``contestant`` and the ``FIGURES`` that are known of them."""

Run = Callable[[torch.device, int, Sequence[str]], list[Row]]
"""Measures a workload on a device, in so many turns; with names, only these contestants."""

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
        From what a contestant returns to more figures; ``tokens`` and ``sentences`` become rates.
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


def measure(
    case: Case, device: torch.device | str = "cpu", repeats: int = 5, only: Sequence[str] = ()
) -> list[Row]:
    """Time a case's contestants in turns; one that fails says why in ``failed``."""
    device, running = torch.device(device), {}
    rows: dict[str, Row] = {}
    for name in chosen(case.contestants, only):
        function = case.contestants[name]
        row = rows[name] = {"workload": case.workload, "contestant": name}
        try:
            row |= case.facts(function())
            if device.type == "cuda":
                row["memory"] = peak_on(device, function)
            running[name] = function
        except (RuntimeError, InputError) as error:  # not on this device, or too much memory
            full = isinstance(error, torch.OutOfMemoryError)
            row["failed"] = "out of memory" if full else shorten(f"{type(error).__name__}: {error}", 80)
    if case.work:
        running[PRODUCT], operations = matrix_product(device, case.dtype)
    seconds = interleave(running, repeats, device)
    rate = operations / seconds.pop(PRODUCT) if case.work else None
    for name, s in seconds.items():
        row = rows[name]
        row["seconds"] = s
        if case.first in seconds:
            row["ratio"] = s / seconds[case.first]
        row |= {f"{what}_per_second": row.pop(what) / s for what in ("tokens", "sentences") if what in row}
        if rate is not None:
            row["share"] = case.work / s / rate
        if case.peak is not None:
            row["peak"] = case.peak(name)
    return list(rows.values())


def in_turns(build: Callable[..., Case]) -> Run:
    """Return what builds a case on a device and measures it."""
    return lambda device, *turns: measure(build(device), device, *turns)


def chosen(names: Iterable[str], only: Sequence[str]) -> list[str]:
    """Return the names that contain one of some texts; all if there are none.

    Raises
    ------
    UnknownNameError
        If a text is in no name.
    """
    names = list(names)
    for text in only:
        if not any(text in name for name in names):
            raise UnknownNameError(f"nothing is called {text!r}; there are {', '.join(names)}")
    return [name for name in names if not only or any(text in name for text in only)]


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
    "sentences_per_second": Figure("sentences/s", ",.1f"),
    "tokens_per_second": Figure("tokens/s", ",.0f"),
    "share": Figure("of the matrix rate", ".0%"),
    "first": Figure("ms, first pass", ",.2f", 1e3),
    "memory": Figure("MiB", ",.0f", 2**-20, " MiB"),
    "before": Figure("MiB before the graph", ",.0f", 2**-20),
    "peak": Figure("peak MiB", ",.0f", 2**-20),
    "parameters": Figure("parameters", ",.0f"),
    "logits": Figure("logits differ by", ".0e"),
    "gradients": Figure("gradients differ by", ".0e"),
    "calls": Figure("calls", ",.0f"),
    "per_layer": Figure("calls for a layer more", ".1f"),
    "host": Figure("ms, CPU", ",.2f", 1e3),
    "device": Figure("ms, GPU", ",.2f", 1e3),
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
