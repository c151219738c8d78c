"""The walls of the house: which module may import which."""

import re
import subprocess
import sys

from assemble_pages import names
from paths import BOOK, ROOT

CODE = ROOT / "code"

TREE = re.search(r"```text\ncode/\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.DOTALL)[1]


def rows_of(folder, indent):
    """The lines of the tree that are indented below a folder, each as the names on it."""
    lines = re.split(rf"\n {{0,{indent - 2}}}\S", TREE.split(f"\n{' ' * (indent - 2)}{folder}/")[1])[0]
    found = re.findall(rf"^{' ' * indent}(\S+(?: \S+)*)", lines, re.MULTILINE)
    return [{name.removesuffix("/").removesuffix(".py") for name in names.split()} for names in found]


ROWS = {package: rows_of(package, 4) for package in ("edgewise", "attention_on_edges")}
ROWS |= {f"edgewise.{room}": rows_of(room, 6) for room in ("graphs", "interop", "propagation")}
"""A room may import from rows below its own; the book from any of the library's, never the other way."""

FILES = sorted(CODE.glob("*/**/*.py"))


def place(path):
    """A file's package and its room there."""
    package, *parts = path.relative_to(CODE).with_suffix("").parts
    return package, parts[0]


def places(path):
    """The same, and of a library's folder and its room in that, for each folder that the tree goes into."""
    package, *parts = path.relative_to(CODE).with_suffix("").parts
    inner = f"{package}.{parts[0]}"
    return [(package, parts[0])] + ([(inner, parts[1])] if inner in ROWS and parts[1] != "__init__" else [])


def row(folder, room):
    return next(i for i, names in enumerate(ROWS[folder]) if room in names)


def upward(folder, room, names):
    """Of the names that a room of a folder imports, those that it may not."""
    found = []
    for name in names:
        outside = folder == "edgewise" and name.split(".")[0] == "attention_on_edges"
        inside = name.startswith(f"{folder}.") and name.removeprefix(f"{folder}.").split(".")[0]
        above = inside and inside != room and row(folder, inside) <= row(folder, room)
        found += [name] if outside or above else []
    return found


def test_imports_point_one_way():
    assert upward("edgewise", "graphs", ["edgewise.interop", "torch"]) == ["edgewise.interop"]
    assert upward("edgewise.propagation", "fields", ["edgewise.propagation.csr.pattern"])
    found = {
        (path, folder): upward(folder, room, names(path.read_text()))
        for path in FILES
        for folder, room in places(path)
        if room != "__init__"
    }
    assert {path: names for path, names in found.items() if names} == {}


def test_the_tree_has_every_room_and_no_other():
    rooms = {at for path in FILES for at in places(path) if at[1] != "__init__"}
    assert rooms == {(folder, room) for folder, rows in ROWS.items() for row in rows for room in row}


def test_the_tutorial_can_be_read_without_its_research():
    found = {
        page.stem[:2]
        for page in BOOK.glob("*.ipynb")
        if "attention_on_edges.studies" in page.read_text("utf-8")
    }
    assert found == {"09", "10", "14", "be"}  # and benchmarks


def test_a_file_is_found_by_its_name():
    """No base name occurs twice, no folder holds one file alone."""
    files = [path for path in FILES if path.name != "__init__.py"]
    assert len({path.name for path in files}) == len(files) > 100
    for folder in {path.parent for path in FILES}:
        assert len(list(folder.glob("*.py"))) > 2, f"{folder} has one file"


NEEDED = {"torch", "numpy", "edgewise"}
IMPORT_ALL = """
import importlib, pkgutil, sys
import edgewise
for module in pkgutil.walk_packages(edgewise.__path__, "edgewise."):
    if module.name != "edgewise.propagation.triton.triton_kernels":  # imported by its engine alone
        importlib.import_module(module.name)
print(*{name.split(".")[0] for name in sys.modules}, *{"torch._dynamo"} & {*sys.modules})
"""


def test_the_library_is_light():
    """Of what is not in Python it imports what it needs; the optional packages where they are asked for."""
    result = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=True)
    optional = {"matplotlib", "networkx", "scipy", "dgl", "sacrebleu", "typer", "tokenizers", "torch._dynamo"}
    assert (optional | {"triton"}) & set(result.stdout.split()) == set()
    imported = {
        name.split(".")[0]
        for path in FILES
        if place(path)[0] == "edgewise"
        for name in names(path.read_text())
    }
    asked_for = {"networkx", "scipy", "torch_geometric", "transformers", "triton"}
    assert imported - sys.stdlib_module_names == NEEDED | asked_for


def test_nothing_pickles_or_imports_dgl_directly():
    found = {path: {name.split(".")[0] for name in names(path.read_text())} for path in FILES}
    forbidden = {"dgl", "pickle", "shelve", "marshal"}
    assert {path: names & forbidden for path, names in found.items() if names & forbidden} == {}
    assert "torch" in set().union(*found.values())
