"""A Sphinx extension: the directive ``{status}`` shows the facts of the current build.

Run times are from the executed notebooks, versions from the environment, hashes and dates from the artifacts'
provenance.
"""

import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path

import nbformat
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
SHOWN = (
    "edgewise",
    "torch",
    "dgl",
    "numpy",
    "matplotlib",
    "networkx",
    "safetensors",
    "tokenizers",
    "sacrebleu",
    "torch-geometric",
    "transformers",
    "jupyter-book",
    "sphinx",
)


def chapters():
    """Return rows: chapter, its code cells, seconds."""
    rows, total = [], 0.0
    for path in sorted((ROOT / "_build" / "executed").glob("*.ipynb")):
        if not (ROOT / "book" / path.name).exists():  # of a chapter that has another name now
            continue
        notebook = nbformat.read(path, as_version=4)
        seconds = notebook.metadata["execution_seconds"]
        cells = sum(cell.cell_type == "code" for cell in notebook.cells)
        rows.append([path.stem, str(cells), f"{seconds:.0f}"])
        total += seconds
    return [*rows, ["together", "", f"{total:.0f}"]]


def seconds_of(stem):
    """Return how long a chapter's notebook ran; None if it has not been run."""
    path = ROOT / "_build" / "executed" / f"{stem}.ipynb"
    return nbformat.read(path, as_version=4).metadata["execution_seconds"] if path.exists() else None


def software():
    """Return rows: program, version."""
    rows = [["Python", platform.python_version()]]
    for name in SHOWN:
        try:
            rows.append([name, importlib.metadata.version(name)])
        except importlib.metadata.PackageNotFoundError:
            rows.append([name, "not installed"])
    return rows


def commit():
    """Return the commit that is checked out and its day; of a copy without history, that it is unknown."""
    if not (ROOT / ".git").exists():
        return "unknown"
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%h, %cs"]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"
    except FileNotFoundError:
        return "unknown"


def machine():
    """Return rows: what the build ran on."""
    cpuinfo = Path("/proc/cpuinfo")
    named = [
        line.partition(":")[2].strip()
        for line in (cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else [])
        if line.startswith("model name")
    ]
    return [
        ["commit", commit()],
        ["processor", named[0] if named else platform.processor() or platform.machine()],
        ["cores", str(os.cpu_count())],
        ["system", f"{platform.system()} {platform.machine()}"],
    ]


def gpu():
    """Return rows: study of a GPU, its device and torch, date and commit; or that there is none."""
    rows = []
    for path in sorted((ROOT / "book" / "studies").glob("gpu-*.json")):
        p = json.loads(path.read_text(encoding="utf-8"))["provenance"]
        rows.append(
            [path.stem, f"{p['device']}, torch {p['torch']}", f"{p['date']}, commit {p['commit'][:10]}"]
        )
    return rows or [["GPU", "none has run the tests and benchmarks of .ci/gpu yet"]]


def artifacts():
    """Return rows: trained model, date, device, torch, training time, commit, hash of the data."""
    rows = []
    for path in sorted((ROOT / "book" / "artifacts").glob("*/provenance.json")):
        facts = json.loads(path.read_text(encoding="utf-8"))
        minutes = f"{facts['seconds'] / 60:.0f} min"
        name, commit, data = path.parent.name, facts["commit"][:10], facts["data"][:16]
        rows.append([name, facts["date"], facts["device"], facts["torch"], minutes, commit, data])
    return rows


def live():
    """Return rows: how fast the live translator is, for each of its models."""
    study = json.loads((ROOT / "book" / "studies" / "live-speed.json").read_text(encoding="utf-8"))
    named = {
        "page": "the landing page, until it is loaded",
        "ready": "the model, from the click until it is ready",
        "first": "the first translation on the screen, from the click",
        "token": "a token, greedy search",
        "beam": "a sentence, beam of 5",
        "beam_longest": "the slowest sentence, beam of 5",
    }
    facts = study["provenance"]
    rows = [
        [said, *(f"{row[key]:,.{int(row[key] < 10)}f} ms" for row in study["rows"])]
        for key, said in named.items()
    ]
    return [*rows, ["measured", facts["date"], facts["browser"]]]


TABLES = {
    "live": (["", "Tatoeba", "Multi30k"], live),
    "chapters": (["chapter", "code cells", "seconds"], chapters),
    "software": (["program", "version"], software),
    "machine": (["", ""], machine),
    "gpu": (["", ""], gpu),
    "artifacts": (["model", "date", "device", "torch", "trained for", "commit", "data (SHA-256)"], artifacts),
}


class Status(SphinxDirective):
    """One of the tables, by its name."""

    required_arguments = 1

    def run(self):
        """Make the table's nodes."""
        name = self.arguments[0]
        if name not in TABLES:
            raise self.error(f"status has no table {name!r}; there are {', '.join(TABLES)}")
        head, rows = TABLES[name]
        self.env.note_reread()
        return [table([head] if any(head) else [], rows())]


def table(head, body):
    """Return a docutils table of texts."""
    width = len(body[0])
    group = nodes.tgroup(cols=width)
    group += [nodes.colspec(colwidth=1) for _ in range(width)]
    for part, rows in ((nodes.thead(), head), (nodes.tbody(), body)):
        for row in rows:
            entries = [nodes.entry("", nodes.paragraph(text=text)) for text in row]
            part += nodes.row("", *entries)
        if rows:
            group += part
    return nodes.table("", group)


def setup(app):
    """Register the directive."""
    app.add_directive("status", Status)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
