"""Which chapters are run again: those whose cells, modules or data have changed, and no others."""

import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from places import BOOK

sys.path.insert(0, str(BOOK / "_ext"))

import stale


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A small project: two chapters, of which one reads artifacts; each has been run."""
    files = {
        "code/edgewise/__init__.py": "",
        "code/attention_on_edges/__init__.py": "",
        "code/attention_on_edges/experiments/__init__.py": "",
        "code/edgewise/graphs/__init__.py": "from edgewise.graphs.made import one",
        "code/edgewise/graphs/made.py": "import json\none = 1",
        "code/attention_on_edges/experiments/artifacts.py": "from edgewise import graphs",
        "code/attention_on_edges/lonely.py": "",
        "code/attention_on_edges/__main__.py": "import attention_on_edges.lonely",
        "book/artifacts/copy/metrics.json": "{}",
        "book/_ext/run_twin.py": "",
        "requirements.txt": "torch==2.13.0",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    places = {
        "ROOT": tmp_path,
        "CODE": tmp_path / "code",
        "EXECUTED": tmp_path / "_build" / "executed",
        "ALWAYS": [tmp_path / "requirements.txt"],
        "FACE": tmp_path / "code" / "edgewise" / "__init__.py",
        "READS_DATA": tmp_path / "code" / "attention_on_edges" / "experiments" / "artifacts.py",
    }
    for name, place in places.items():
        monkeypatch.setattr(stale, name, place)
    for stem, line in (
        ("graphs", "from edgewise.graphs import one"),
        ("reads", "from attention_on_edges.experiments import artifacts"),
    ):
        cells = [new_code_cell("run('edgewise')"), new_code_cell(line)]  # the first is the set-up
        nbformat.write(new_notebook(cells=cells), tmp_path / "book" / f"{stem}.ipynb")
    run_all(tmp_path)
    return tmp_path


def forget():
    stale.imports.cache_clear()
    stale.hashed.cache_clear()


def run_all(project):
    forget()
    stale.EXECUTED.mkdir(parents=True, exist_ok=True)
    for twin in (project / "book").glob("*.ipynb"):
        done = nbformat.read(twin, as_version=4)
        done.metadata["digest"] = stale.digest(twin)
        nbformat.write(done, stale.EXECUTED / twin.name)


def stems():
    forget()
    return [path.stem for path in stale.stale()]


@pytest.mark.parametrize(
    ("changed", "again"),
    [
        ("code/edgewise/graphs/made.py", ["graphs", "reads"]),
        ("code/attention_on_edges/experiments/artifacts.py", ["reads"]),
        ("book/artifacts/copy/metrics.json", ["reads"]),
        ("code/attention_on_edges/lonely.py", []),
        ("requirements.txt", ["graphs", "reads"]),
    ],
)
def test_a_chapter_is_run_again_when_what_it_depends_on_changes(project, changed, again):
    assert stems() == []
    (project / changed).write_text("two = 2")
    assert stems() == again


def test_a_chapter_is_run_again_when_its_set_up_or_its_folds_change(project):
    twin = project / "book" / "graphs.ipynb"
    book = nbformat.read(twin, as_version=4)
    book.cells[1].metadata["tags"] = ["hide-cell"]
    nbformat.write(book, twin)
    assert stems() == ["graphs"]
    run_all(project)
    book.cells[0].source = "other()"
    nbformat.write(book, twin)
    assert stems() == ["graphs"]


def test_a_module_imported_by_its_name_counts(project):
    named = "import importlib\nimportlib.import_module('attention_on_edges.lonely')"
    (project / "code" / "attention_on_edges" / "experiments" / "artifacts.py").write_text(named)
    run_all(project)
    (project / "code" / "attention_on_edges" / "lonely.py").write_text("two = 2")
    assert stems() == ["reads"]


def test_the_librarys_face_counts_for_those_alone_who_use_it(project):
    (project / "code" / "edgewise" / "__init__.py").write_text("from attention_on_edges import lonely")
    (project / "code" / "attention_on_edges" / "experiments" / "artifacts.py").write_text(
        "from edgewise import X"
    )
    run_all(project)
    (project / "code" / "attention_on_edges" / "lonely.py").write_text("two = 2")
    assert stems() == ["reads"]
    run_all(project)
    (project / "code" / "edgewise" / "__init__.py").write_text("")
    assert stems() == ["reads"]


def test_a_program_that_a_cell_starts_counts(project):
    twin = project / "book" / "graphs.ipynb"
    book = nbformat.read(twin, as_version=4)
    book.cells.append(new_code_cell("command = ['-m', 'attention_on_edges']"))
    nbformat.write(book, twin)
    assert stems() == ["graphs"]
    run_all(project)
    (project / "code" / "attention_on_edges" / "lonely.py").write_text("two = 2")
    assert stems() == ["graphs"]


def test_what_is_out_of_date_is_removed_and_named(project, capsys):
    (project / "code" / "attention_on_edges" / "experiments" / "artifacts.py").write_text("two = 2")
    forget()
    stale.main()
    assert capsys.readouterr().out.split() == ["_build/executed/reads.ipynb"]
    assert [path.stem for path in stale.EXECUTED.iterdir()] == ["graphs"]
