"""The book's pages and their twins: paired, in step, and able to start in Colab on their own."""

import json
import re
import subprocess
import sys
import tomllib

import pytest
import yaml

import assemble_pages
import contents
import write_notebooks
from paths import BOOK, ROOT

PAGES = write_notebooks.chapters()
ADDRESS = write_notebooks.ADDRESS


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


def test_a_notebook_that_has_run_to_its_end_on_the_same_sources_is_not_run_again(tmp_path):
    path, ended = tmp_path / "a.ipynb", {"execution": {"shell.execute_reply": "now"}}
    failed = [{"output_type": "error"}]
    assert not assemble_pages.has_run(path, "of these")
    for outputs, metadata, done in (([], ended, True), (failed, ended, False), ([], {}, False)):
        cell = {"cell_type": "code", "outputs": outputs, "metadata": metadata}
        path.write_text(json.dumps({"cells": [cell], "metadata": {"digest": "of these"}}))
        assert assemble_pages.has_run(path, "of these") == done
        assert not assemble_pages.has_run(path, "of others")


def test_a_notebook_depends_on_what_it_imports_at_any_distance_and_on_nothing_else():
    found = {path.name for path in assemble_pages.sources("from attention_on_edges.pool import GraphPool")}
    assert {"pool.py", "constructors.py", "validation.py"} <= found
    assert not found & {"beam.py", "base.js", "tasks.py"}
    assert "base.js" in {path.name for path in assemble_pages.sources("import attention_on_edges.live")}
    assert "checks.py" in {path.name for path in assemble_pages.sources("import subprocess")}
    read = assemble_pages.data("load_study(f'circuits-{name}'), artifacts.load('tatoeba')  # heads")
    assert {str(path.relative_to(BOOK)) for path in read} == {
        "studies/circuits-tatoeba.json",
        "artifacts/tatoeba/provenance.json",
    }


@pytest.mark.parametrize("changed", ["platform.python_version", "metadata.version"])
def test_a_notebook_is_run_again_by_another_python_or_pytorch(changed, monkeypatch):
    notebook = json.loads((BOOK / "one-page.ipynb").read_bytes())
    before = assemble_pages.digest_of(notebook)
    assert assemble_pages.digest_of(notebook) == before
    monkeypatch.setattr(f"assemble_pages.{changed}", lambda *_: "3.99")
    assert assemble_pages.digest_of(notebook) != before


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


def test_setup_cell_is_silent_where_the_package_is():
    outcome = subprocess.run([sys.executable, "-c", write_notebooks.CODE], capture_output=True, text=True)
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (0, "", "")
