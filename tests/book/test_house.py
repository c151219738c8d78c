"""The walls of the house: which module may import which, and how long it may grow."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from changed import find_tests

ROOT = Path(__file__).resolve().parents[2]
CODE = ROOT / "code"

ROWS = {
    "edgewise": [
        {"training", "decoding"},
        {"models"},
        {"graph_attention"},
        {"layers", "message_passing"},
        {"attention", "graphs"},
        {"validation"},
    ],
    "attention_on_edges": [
        {"__main__"},
        {"commands"},
        {"benchmarks", "lab", "live"},
        {"experiments"},
        {"analysis"},
        {"data", "figures"},
    ],
}
"""A room may import from rows below its own; the workshop from any of the library's, never the other way."""

FILES = sorted(CODE.glob("*/**/*.py"))


def place(path):
    """A file's package and its room there."""
    package, *parts = path.relative_to(CODE).with_suffix("").parts
    return package, parts[0]


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports name the package in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def row(package, room):
    return next(i for i, names in enumerate(ROWS[package]) if room in names)


def upward(package, room, names):
    """Of the names that a room of a package imports, those that it may not."""
    found = []
    for name in names:
        other, *parts = name.split(".")
        if other in ROWS and parts:
            outside = other != package and package == "edgewise"
            above = other == package and parts[0] != room and row(package, parts[0]) <= row(package, room)
            found += [name] if outside or above else []
    return found


def test_imports_point_one_way():
    names = ["edgewise.models.dense.greedy", "edgewise.validation", "torch", "attention_on_edges.data.tasks"]
    assert upward("edgewise", "graphs", names) == [names[0], names[3]]
    assert upward("attention_on_edges", "data", names) == []
    found = {path: upward(*place(path), imports(path)) for path in FILES if place(path)[1] != "__init__"}
    assert {path: names for path, names in found.items() if names} == {}


NEEDED = {"torch", "numpy", "edgewise"}
IMPORT_ALL = """
import importlib, pkgutil, sys
import edgewise
for module in pkgutil.walk_packages(edgewise.__path__, "edgewise."):
    importlib.import_module(module.name)
print(*{name.split(".")[0] for name in sys.modules})
"""


def test_the_library_is_light():
    """Of what is not in Python it imports what it needs; the optional packages where they are asked for."""
    result = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=True)
    optional = {"matplotlib", "networkx", "dgl", "sacrebleu", "typer", "tokenizers"}
    assert optional & set(result.stdout.split()) == set()
    imported = {
        name.split(".")[0] for path in FILES if place(path)[0] == "edgewise" for name in imports(path)
    }
    assert imported - sys.stdlib_module_names == NEEDED | {"networkx"}


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.name == "__init__.py"], ids=lambda path: path.parent.name
)
def test_what_a_package_exports_is_there(path):
    package = importlib.import_module(".".join(path.parent.relative_to(CODE).parts))
    assert [name for name in getattr(package, "__all__", []) if not hasattr(package, name)] == []


def test_nothing_pickles_or_imports_dgl_directly():
    found = {path: {name.split(".")[0] for name in imports(path)} for path in FILES}
    forbidden = {"dgl", "pickle", "shelve", "marshal"}
    assert {path: names & forbidden for path, names in found.items() if names & forbidden} == {}
    assert "torch" in set().union(*found.values())


def lines_of_code(node, source):
    """Lines that are neither blank nor docstring."""
    docstrings = set()
    for part in ast.walk(node):
        if (
            isinstance(part, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(part) is not None
        ):
            docstrings.update(range(part.body[0].lineno, part.body[0].end_lineno + 1))
    first, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", len(source))
    return sum(bool(source[n - 1].strip()) and n not in docstrings for n in range(first, last + 1))


def too_long(text):
    """Yield what of a module's text is longer than it may be."""
    tree, source = ast.parse(text), text.splitlines()
    if lines_of_code(tree, source) > 300:
        yield "the module"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and lines_of_code(node, source) > 40:
            yield node.name


def test_modules_and_functions_stay_small():
    assert list(too_long("def f():\n" + "    a = 1\n" * 40)) == ["f"]
    assert list(too_long("a = 1\n" * 301)) == ["the module"]
    found = {path: list(too_long(path.read_text(encoding="utf-8"))) for path in FILES}
    assert {path: names for path, names in found.items() if names} == {}


def test_every_module_has_tests_that_make_check_runs():
    tests = sorted((ROOT / "tests").rglob("test_*.py"))

    def names(path):
        return [test.stem for test in find_tests(path, tests)]

    assert [path for path in FILES if path.name != "__init__.py" and not names(path.relative_to(ROOT))] == []
    assert names(Path("code/edgewise/graphs/pool.py")) == ["test_graphs"]
    assert names(Path("code/one_file.py")) == ["test_one_file"]
    assert "test_dense" in names(Path("tests/support.py"))
    assert names(Path("book/_ext/stale.py")) == ["test_stale"]
    assert names(Path("book/07-training.md")) == ["test_notebooks"]
    assert names(Path("README.md")) == []
