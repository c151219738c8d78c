"""The book's pages and their twins: paired, in step, and able to start in Colab on their own."""

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest
import yaml

import assemble_pages
import contents
import write_notebooks
from places import BOOK, ROOT

PAGES = write_notebooks.chapters()
ADDRESS = write_notebooks.ADDRESS
NAME = ADDRESS.split("/")[-1]


def test_contents_pages_and_twins_are_the_same_set():
    listed = contents.pages()
    assert sorted(f"book/{page.stem}" for page in BOOK.glob("*.md")) == sorted(listed)
    assert {page.stem for page in PAGES} == {twin.stem for twin in BOOK.glob("*.ipynb")}
    numbered = [page for page in listed if page[5].isdigit()]
    assert numbered == sorted(numbered) != []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_twin_is_what_its_page_gives_byte_for_byte(page):
    text = page.read_text(encoding="utf-8")
    assert page.with_suffix(".ipynb").read_bytes() == write_notebooks.twin(text).encode()


ASSERTS = re.compile(r"^\s*([\w .]+: )?(assert\b|([\w.]+\.)?assert_\w+\()|\braise AssertionError", re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_open_cells_are_short_and_folded_checks_alone_assert(page):
    for cell in write_notebooks.notebook(page.read_text(encoding="utf-8")).cells:
        tags = set(cell.metadata.get("tags", []))
        if cell.cell_type != "code" or tags & {"remove-input", "remove-cell"}:
            continue
        check = "hide-cell" in tags
        assert bool(ASSERTS.search(cell.source)) == check, cell.source
        assert check == cell.source.startswith("# @title Checked: "), cell.source
        assert tags or sum(bool(line.strip()) for line in cell.source.split("\n")) <= 12, cell.source


@pytest.mark.parametrize(
    ("change", "done"),
    [
        ({}, True),
        ({"digest": "of other sources"}, False),
        ({"outputs": [{"output_type": "error"}]}, False),
        ({"execution": {"iopub.execute_input": "and no reply"}}, False),
    ],
)
def test_a_notebook_that_has_run_to_its_end_on_the_same_sources_is_not_run_again(tmp_path, change, done):
    facts = {"digest": "of these", "outputs": [], "execution": {"shell.execute_reply": "now"}} | change
    cell = {"cell_type": "code", "outputs": facts["outputs"], "metadata": {"execution": facts["execution"]}}
    notebook = {"cells": [cell], "metadata": {"digest": facts["digest"]}}
    (tmp_path / "a.ipynb").write_text(json.dumps(notebook))
    assert assemble_pages.has_run(tmp_path / "a.ipynb", "of these") == done
    assert not assemble_pages.has_run(tmp_path / "b.ipynb", "of these")


def test_every_copy_of_the_address_is_the_configured_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert project["urls"]["Repository"] == citation["repository-code"] == ADDRESS
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    hosts = r"mybinder\.org/v2/gh|colab\.research\.google\.com/github|git clone .*github\.com"
    named = re.findall(rf"(?:{hosts})/([\w-]+/[\w.-]*\w)", readme)
    assert set(named) == {ADDRESS.removeprefix("https://github.com/")}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_to_files_of_the_repository_lead_somewhere(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    files = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)|(?:lab/tree|/blob/main)/([^)\s]+)\)", text)
    assert all((ROOT / (local or launched)).exists() for local, launched in files), files


FAKE_GIT = f"""#!/bin/sh
echo "git $*" >> "$LOG"
mkdir -p {NAME}/code/attention_on_edges {NAME}/book
touch {NAME}/code/attention_on_edges/__init__.py
"""
FAKE_PIP = """
import os, sys
with open(os.environ["LOG"], "a") as log:
    print("pip", *sys.argv[1:], file=log)
sys.exit("dgl]" in sys.argv[-1] and "no wheel")
"""
AFTERWARDS = "import attention_on_edges as a, os; print(a.__file__, os.getcwd(), sep='\\n')"


def test_setup_cell_clones_installs_without_dgl_where_it_must_and_moves_in(tmp_path):
    """Where the package is missing, with a git and a pip that only note what they are asked."""
    (tmp_path / "git").write_text(FAKE_GIT)
    (tmp_path / "git").chmod(0o755)
    (tmp_path / "pip.py").write_text(FAKE_PIP)
    (tmp_path / "start").mkdir()
    path = f"{tmp_path}:{os.environ['PATH']}"
    known = {"PATH": path, "PYTHONPATH": str(tmp_path), "LOG": str(tmp_path / "log")}
    # -S: without the environment's packages, edgewise among them.
    command = [sys.executable, "-S", "-c", write_notebooks.CODE + AFTERWARDS]
    for asked in ("git", "pip"):  # the second time, the clone is there
        outcome = subprocess.run(command, cwd=tmp_path / "start", env=known, capture_output=True, text=True)
        assert (tmp_path / "log").read_text().startswith(asked), outcome.stderr
        clone = tmp_path / "start" / NAME
        log = (tmp_path / "log").read_text().splitlines()
        assert log[-2:] == [
            f"pip install --editable {clone}[{extra}]" for extra in ("chapters,dgl", "chapters")
        ]
        assert len(log) == 2 + (asked == "git")
        package, folder = outcome.stdout.splitlines()[-2:]
        assert package == str(clone / "code" / "attention_on_edges" / "__init__.py")
        assert folder == str(clone / "book")
        (tmp_path / "log").unlink()


def test_setup_cell_is_silent_where_the_package_is():
    outcome = subprocess.run([sys.executable, "-c", write_notebooks.CODE], capture_output=True, text=True)
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (0, "", "")
