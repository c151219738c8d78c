"""Says which chapters have to be run again, and removes what they printed before.

    python book/_ext/stale.py       names the notebooks below _build/executed that are to be made

A chapter's outcome depends on its own cells, on the modules that they import, directly or by way of others,
on the pinned environment, and, where it reads artifacts or studies, on all of those. All of it goes into one
digest, which an executed notebook carries: dates of files count for nothing.
"""

import ast
import hashlib
import json
from functools import cache
from pathlib import Path

from contents import ROOT

CODE = ROOT / "code"
EXECUTED = ROOT / "_build" / "executed"
ALWAYS = [ROOT / "requirements.txt", Path(__file__).with_name("run_twin.py")]
PACKAGES = ("edgewise", "attention_on_edges")
BELOW = tuple(f"{name}." for name in PACKAGES)
# The library's face re-exports its parts: to import one of them is not to use them all.
FACE = CODE / "edgewise" / "__init__.py"
READS_DATA = CODE / "attention_on_edges" / "experiments" / "artifacts.py"


def named(tree, programs=False):
    """Yield what a syntax tree may import; with ``programs``, also what a cell starts by its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.startswith(BELOW):  # a module that is imported by its name
                yield node.value
            elif programs and node.value in PACKAGES:
                yield "attention_on_edges.__main__"


def files(name):
    """Return the files below code/ that a use of ``name`` depends on: packages on the way, and the module."""
    found = run_by(name)
    return [path for path in found if path != FACE or len(found) == 1]


def run_by(name):
    """Return the files below code/ that importing ``name`` runs."""
    found, place = [], CODE
    for part in name.split("."):
        if (place / f"{part}.py").is_file():
            return [*found, place / f"{part}.py"]
        place /= part
        if not place.is_dir():
            return found
        found += sorted(
            path
            for path in place.iterdir()
            if path.name == "__init__.py" or path.suffix in (".js", ".css", ".json")
        )
    return found


@cache
def imports(path):
    """Return the files that a module's own lines import."""
    if path.suffix != ".py":
        return frozenset()
    return frozenset(file for name in named(ast.parse(path.read_bytes())) for file in files(name))


def closure(start):
    """Return the files of ``start`` and all that they lead to."""
    reached, todo = set(), list(start)
    while todo:
        path = todo.pop()
        if path not in reached:
            reached.add(path)
            todo += imports(path)
    return reached


@cache
def hashed(path):
    """Return the digest of a file, which several chapters may depend on."""
    return hashlib.sha256(path.read_bytes()).digest()


def digest(twin):
    """Return the digest of all that a chapter's outcome depends on."""
    cells = [
        cell for cell in json.loads(twin.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"
    ]
    sources = ["".join(cell["source"]) for cell in cells]
    tags = [cell["metadata"].get("tags", []) for cell in cells]  # by which the pages know their checks
    modules = closure(
        file
        for source in sources[1:]
        for name in named(ast.parse(source), programs=True)
        for file in files(name)
    )
    whole = hashlib.sha256(json.dumps([sources, tags]).encode())
    folders = ("artifacts", "studies") if READS_DATA in modules else ()
    data = [path for folder in folders for path in (ROOT / "book" / folder).rglob("*") if path.is_file()]
    for path in sorted({*ALWAYS, *modules, *data}):
        whole.update(f"\0{path.relative_to(ROOT)}\0".encode() + hashed(path))
    return whole.hexdigest()


def stale():
    """Return the executed notebooks that are missing or out of date."""
    wanted = {EXECUTED / twin.name: twin for twin in sorted((ROOT / "book").glob("[!.]*.ipynb"))}
    return [path for path, twin in wanted.items() if not up_to_date(path, twin)]


def up_to_date(path, twin):
    """Whether an executed notebook carries its twin's digest."""
    return path.exists() and json.loads(path.read_text(encoding="utf-8"))["metadata"].get("digest") == digest(
        twin
    )


def main():
    """Remove what is out of date, so that make makes it again, and name it."""
    for path in stale():
        path.unlink(missing_ok=True)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
