"""The walls of the house: which module may import which, and how long it may grow."""

import ast
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    own = module(path)
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "edgewise" and len(parts) > 1 and own != "__init__":
            assert parts[1] == own or row(parts[1]) > row(own), f"{own} may not import {parts[1]}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_pickles_or_imports_dgl_directly(path):
    names = {name.split(".")[0] for name in imports(path)}
    assert not names & {"dgl", "pickle", "shelve", "marshal"}


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


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_modules_and_functions_stay_small(path):
    text = path.read_text(encoding="utf-8")
    tree, source = ast.parse(text), text.splitlines()
    assert lines_of_code(tree, source) <= 250
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert lines_of_code(node, source) <= 40, f"{node.name} is too long"
