"""Lays out in ``.pages`` what Jupyter Book renders: the book's files, and the chapters' notebooks.

    python book/_ext/assemble_pages.py     prints the notebooks to be run, those that take longest first

A notebook is run again, in its place, if its twin, what it imports, the studies and trained models that it
names, the pinned environment, its Python or its PyTorch has changed since. ``.pages`` is not in ``_build``,
since nbmake passes over all that is there.
"""

import ast
import hashlib
import json
import platform
import re
from importlib import metadata

import write_notebooks
from contents import ROOT

PAGES = ROOT / ".pages"
LONGEST = ("11-adaptive", "07-training", "08-translation")
CODE = ROOT / "code"
DATA = {".js", ".css", ".json", ".gz"}


def names(code):
    """Yield what a piece of Python imports, such as ``edgewise.graphs.causal``."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported(code):
    """Yield the files of our packages that a piece of Python imports, and the data beside them."""
    for name in names(code):
        path = CODE
        for part in name.split("."):
            path = path / part
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if file.is_file():
                    yield file
                    yield from (other for other in file.parent.iterdir() if other.suffix in DATA)


def sources(cells):
    """Return the files below ``code`` that cells depend on: all of them if they start a program."""
    if "import subprocess" in cells:
        return {path for path in CODE.rglob("*") if path.suffix in DATA | {".py"}}
    found, new = set(), set(imported(cells))
    while new:
        found |= new
        new = {each for path in new if path.suffix == ".py" for each in imported(path.read_text())} - found
    return found


def data(cells):
    """Return the studies and trained models that cells name, each part of the name in some text of theirs."""
    everything = {path.stem: path for path in ROOT.glob("book/studies/*.json")}
    everything |= {path.parent.name: path for path in ROOT.glob("book/artifacts/*/provenance.json")}
    texts = [
        n.value
        for n in ast.walk(ast.parse(cells))
        if isinstance(n, ast.Constant) and isinstance(n.value, str)
    ]
    words = {word for text in texts for word in re.findall("[a-z0-9]+", text)}
    whole = "import subprocess" in cells
    return {path for name, path in everything.items() if whole or words >= {*name.split("-")}}


def digest_of(notebook):
    """Return the digest of a notebook and all that it depends on."""
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    own = "\n".join(cell for cell in cells if cell.strip() != write_notebooks.CODE.strip())  # not the set-up
    programs = [platform.python_version(), metadata.version("torch")]
    files = sorted([ROOT / "requirements.txt", *sources(own), *data(own)])
    parts = [json.dumps([notebook, programs]).encode(), *(path.read_bytes() for path in files)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def has_run(path, digest):
    """Whether a notebook holds what its cells printed, to the last, from the same sources."""
    if not path.exists():
        return False
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    failed = any(output["output_type"] == "error" for cell in code for output in cell["outputs"])
    finished = "shell.execute_reply" in code[-1]["metadata"].get("execution", {})
    return notebook["metadata"].get("digest") == digest and finished and not failed


def main():
    """Link to all files but the notebooks, copy those that are out of date, and name them."""
    (PAGES / "book").mkdir(parents=True, exist_ok=True)
    for old in [*PAGES.iterdir(), *PAGES.glob("book/*")]:
        if old.is_symlink() or (old.suffix == ".ipynb" and not (ROOT / "book" / old.name).exists()):
            old.unlink()
    for path in [ROOT / "_config.yml", ROOT / "_toc.yml", ROOT / "code", *(ROOT / "book").iterdir()]:
        if path.suffix != ".ipynb":
            (PAGES / path.relative_to(ROOT)).symlink_to(path)
    for page in sorted(write_notebooks.chapters(), key=lambda page: page.stem not in LONGEST):
        copy = PAGES / "book" / f"{page.stem}.ipynb"
        notebook = json.loads(page.with_suffix(".ipynb").read_bytes())
        if not has_run(copy, digest := digest_of(notebook)):
            notebook["metadata"]["digest"] = digest
            copy.write_text(json.dumps(notebook), encoding="utf-8")
            print(copy.relative_to(ROOT))


if __name__ == "__main__":
    main()
