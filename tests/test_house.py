"""The walls of the house: which module may import which, and how long it may grow."""

import ast
from pathlib import Path

from changed import find_tests

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "code" / "edgewise"

ROWS = [
    {"__main__"},
    {"commands"},
    {"experiments", "benchmarks", "complexity", "roofline"},
    {"distributed", "analysis"},
    {"trainer", "longrange"},
    {"decoding", "training", "checks"},
    {"adaptive"},
    {"transformer", "dense", "gnn", "tasks", "corpora", "tokenization"},
    {"layers", "message_passing", "sparse", "artifacts"},
    {"graphs", "attention", "checkpoints", "metrics", "figures"},
    {"validation"},
]
"""A module may import from rows below its own, and from itself where it is a folder."""

FILES = sorted(PACKAGE.rglob("*.py"))


def module(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports name the package in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def row(name):
    return next(i for i, names in enumerate(ROWS) if name in names)


def upward(own, names):
    """Of the names that module ``own`` imports, those that it may not."""
    parts = [name.split(".") for name in names]
    rooms = [part[1] for part in parts if part[0] == "edgewise" and len(part) > 1]
    return [room for room in rooms if room != own and row(room) <= row(own)]


def test_imports_point_one_way():
    assert upward("graphs", ["edgewise.dense.greedy", "edgewise.validation", "torch"]) == ["dense"]
    found = {path: upward(module(path), imports(path)) for path in FILES if module(path) != "__init__"}
    assert {path: rooms for path, rooms in found.items() if rooms} == {}


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
    if lines_of_code(tree, source) > 250:
        yield "the module"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and lines_of_code(node, source) > 40:
            yield node.name


def test_modules_and_functions_stay_small():
    assert list(too_long("def f():\n" + "    a = 1\n" * 40)) == ["f"]
    assert list(too_long("a = 1\n" * 251)) == ["the module"]
    found = {path: list(too_long(path.read_text(encoding="utf-8"))) for path in FILES}
    assert {path: names for path, names in found.items() if names} == {}


def test_every_module_has_tests_that_make_check_runs():
    tests = sorted((ROOT / "tests").rglob("test_*.py"))

    def names(path):
        return [test.stem for test in find_tests(path, tests)]

    assert [path for path in FILES if path.name != "__init__.py" and not names(path.relative_to(ROOT))] == []
    assert names(Path("code/edgewise/graphs/pool.py")) == ["test_graphs"]
    assert "test_dense" in names(Path("tests/support.py"))
    assert names(Path("book/_ext/stale.py")) == ["test_stale"]
    assert names(Path("book/07-training.md")) == ["test_notebooks"]
    assert names(Path("README.md")) == []
