"""Many short runs that answer one question; only their metrics are kept."""

import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from attention_on_edges.runs import artifacts
from attention_on_edges.runs.experiment import Experiment
from attention_on_edges.runs.fitting import Part
from attention_on_edges.runs.json_files import read_json, sealed, unsealed, write_json
from attention_on_edges.runs.running import start
from attention_on_edges.training import DivergedError
from attention_on_edges.training.checkpoint_files import naming
from edgewise.validation import InputError, UnknownNameError

Rows = list[dict[str, Any]]

Entry = Experiment | Part


@dataclass(frozen=True)
class Study:
    """A question, and the short runs that answer it.

    Attributes
    ----------
    name : str
        Its name on the command line and in ``book/studies``.
    about : str
        The question.
    entries : tuple of Experiment or Part
        One for each variant, named by it, and seed.
    """

    name: str
    about: str
    entries: tuple[Entry, ...]

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, as JSON."""
        return {"name": self.name, "about": self.about, "entries": [e.config for e in self.entries]}


class Difference(NamedTuple):
    """How much higher a figure is for one variant than for another.

    Attributes
    ----------
    effect : float
        Difference of the means.
    low, high : float
        The smallest and the largest difference between a run of the one and a run of the other. Zero lies
        between them if and only if the ranges of the two overlap.
    """

    effect: float
    low: float
    high: float

    @property
    def counts(self) -> bool:
        """Whether the ranges do not overlap."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Results:
    """The results of a study.

    Attributes
    ----------
    config, provenance : dict
        What was run, and when, where and by which code.
    rows : list of dict
        For each entry, in order: ``variant``, ``seed``, and validation metrics after the last epoch; or
        ``diverged_at``, the update at which a loss or gradient was NaN or infinite. A measurement or
        benchmark has fields of its own; ``measured`` is false for a benchmark's extrapolated rows.
    """

    config: dict[str, Any]
    rows: list[dict[str, Any]]
    provenance: dict[str, Any]

    def figures(self, variant: str, figure: str) -> list[float]:
        """Return one metric for all seeds of a variant, in order, without diverged runs.

        Raises
        ------
        ValueError
            If there is no such variant.
        """
        rows = [row for row in self.rows if row["variant"] == variant]
        if not rows:
            raise ValueError(f"variant must be one of {', '.join(self.variants)}; got {variant!r}")
        found = [row[figure] for row in rows if "diverged_at" not in row]
        if not found:
            raise ValueError(f"all runs of {variant!r} have diverged")
        return found

    def difference(self, variant: str, other: str, figure: str) -> Difference:
        """Compare one metric of two variants that had the same data and budget.

        Raises
        ------
        InputError
            If their data or the settings of their training differ; names both.
        ValueError
            If there is no such variant.
        """
        one, two = (self.figures(name, figure) for name in (variant, other))
        self._check(variant, other)
        effect = sum(one) / len(one) - sum(two) / len(two)
        return Difference(effect, min(one) - max(two), max(one) - min(two))

    def _check(self, variant: str, other: str) -> None:
        """Refuse to compare variants whose data or training differ."""
        for what in ("task", "training"):
            had, theirs = (self._setting(name, what) for name in (variant, other))
            if had != theirs:
                raise InputError(
                    f"{variant!r} and {other!r} cannot be compared: their {what} is {had} and {theirs}"
                )

    def paired(self, variant: str, other: str, figure: str) -> tuple[float, float, float]:
        """How much higher one metric is than for another variant, seed by seed, where neither diverged.

        Raises
        ------
        InputError
            As :meth:`difference`.

        Returns
        -------
        tuple of float
            The mean difference, and both ends of its 95 % confidence interval (Student's t).
        """
        from scipy.stats import ttest_rel  # not at the top: it takes most of a second

        self._check(variant, other)
        one, two = (
            {row["seed"]: row[figure] for row in self.rows if row["variant"] == name and figure in row}
            for name in (variant, other)
        )
        pairs = [(one[seed], two[seed]) for seed in one if seed in two]
        if not pairs:
            raise ValueError(f"{variant!r} and {other!r} have no seed in common")
        found = ttest_rel(*zip(*pairs, strict=True))
        low, high = map(float, found.confidence_interval(0.95))
        return (low + high) / 2, low, high

    def _setting(self, variant: str, name: str) -> Any:
        """A setting of a variant's first run; of training, without its seed."""
        entries = zip(self.rows, self.config["entries"], strict=True)
        found = next(entry.get(name) for row, entry in entries if row["variant"] == variant)
        return {k: v for k, v in found.items() if k != "seed"} if isinstance(found, dict) else found

    @property
    def variants(self) -> list[str]:
        """The variants, in their order."""
        return list(dict.fromkeys(row["variant"] for row in self.rows))

    def write(self, folder: Path) -> Path:
        """Write ``NAME.json`` into a folder, for :func:`load_study`; return where it is."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.config['name']}.json"
        write_json(path, sealed(asdict(self)))
        return path

    @property
    def caption(self) -> str:
        """One line for a figure's caption: which study it shows, when and where it was made."""
        p, model = self.provenance, self.config.get("artifact")
        measured = sum(row.get("measured", True) for row in self.rows)
        what = f"model {model}, measured" if model else f"{measured} runs of"
        if turns := self.config.get("repeats"):
            what = f"medians of {turns} turns, measured"
        return (
            f"Study {self.config['name']}: {what} {p['date']}, {p['seconds'] / 60:.0f} "
            f"min on {p['device']}, torch {p['torch']}, commit {p['commit'][:10] or 'unknown'}."
        )


def run_study(
    study: Study, folder: Path, device: torch.device | str = "cpu", limit: int | None = None
) -> int:
    """Run the entries that have no results in the folder yet; return how many are still missing.

    Results are written after each run, so a stopped study resumes with the run it was stopped in. After the
    last run, ``NAME.json`` is written. A line of results that was cut off is dropped, and its run made again.

    Parameters
    ----------
    study : Study
        Which.
    folder : Path
        For ``NAME.jsonl`` and ``NAME.json``.
    device : torch.device or str
        Where it trains.
    limit : int, optional
        Runs to make at most.

    Raises
    ------
    InputError
        If the folder holds results of an earlier version of the study.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{study.name}.jsonl"
    done = _rows_done(path)
    if [row["config"] for row in done] != [entry.config for entry in study.entries[: len(done)]]:
        raise InputError(f"{path} holds figures of another version of this study: move it away")
    for entry in study.entries[len(done) :][:limit]:
        done.append({"config": entry.config} | _run(entry, device))
        with naming(path), open(path, "a", encoding="utf-8") as log:
            log.write(json.dumps(sealed(done[-1])) + "\n")
            log.flush()
            os.fsync(log.fileno())
    if len(done) == len(study.entries):
        stages = [row["stage"] for row in done]
        last = stages[-1] | {
            "seconds": sum(stage["seconds"] for stage in stages),
            "changed": any(stage["changed"] for stage in stages),
            "stages": stages,
        }
        Results(study.config, [row["row"] for row in done], last).write(folder)
    return len(study.entries) - len(done)


def _rows_done(path: Path) -> list[dict[str, Any]]:
    """Read the lines of results that are there; cut off one that is not whole."""
    if not path.exists():
        return []
    *lines, rest = path.read_bytes().split(b"\n")
    if rest:
        os.truncate(path, path.stat().st_size - len(rest))
    try:
        rows = [unsealed(dict(json.loads(line)), path) for line in lines]
        return [row | {"config": row["config"], "row": row["row"]} for row in rows]
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} holds a line that no study wrote: move it away") from error


def _run(entry: Entry, device: torch.device | str) -> dict[str, Any]:
    """Run one entry; return its row and its provenance."""
    stage, began = artifacts.facts(device), time.monotonic()
    if isinstance(entry, Experiment):
        figures = _trained(entry, device)
    elif torch.device(device).type == "cpu":
        figures = entry.figures()
    else:
        raise InputError(f"device must be cpu for models this small, got {device}")
    row = entry.label | figures
    return {"row": row, "stage": stage | {"seconds": time.monotonic() - began}}


def _trained(entry: Experiment, device: torch.device | str) -> dict[str, Any]:
    """Train an experiment in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        run = start(entry, Path(folder), device)
        try:
            run.train()
        except DivergedError:
            return {"diverged_at": run.step + 1}
        return run.epochs[-1]["valid"]


def _folder() -> Path:
    root = artifacts.artifacts_folder()
    return root.parent / "studies" if root else Path("book", "studies")


def load_study(name: str) -> Results:
    """Read the committed figures of a study.

    Raises
    ------
    InputError
        If there are none of that name; lists the existing ones.
    """
    folder = _folder()
    path = folder / f"{name}.json"
    if not path.is_file():
        there = ", ".join(sorted(p.stem for p in folder.glob("*.json"))) or "none"
        raise UnknownNameError(f"no study {name!r} in {folder}; there are: {there}")
    found = Results(**read_json(path, is_sealed=True))
    if found.config["name"] != name:
        raise InputError(f"{path} is the study {found.config['name']!r}")
    return found
