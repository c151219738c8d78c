"""The book's pages and their twins: paired, in step, and able to start in Colab on their own."""

import ast
import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import contents  # noqa: E402
import fill_cache  # noqa: E402
import setup_cell  # noqa: E402
import twins  # noqa: E402

CHAPTERS = twins.chapters()
ADDRESS = setup_cell.CONFIG["repository"]["url"]
NAME = ADDRESS.split("/")[-1]

each_chapter = pytest.mark.parametrize("page", CHAPTERS, ids=lambda page: page.stem)


def read_twin(page):
    return json.loads(page.with_suffix(".ipynb").read_text(encoding="utf-8"))


def test_toc_pages_and_twins_are_the_same_set():
    listed = contents.pages()
    assert sorted(f"book/{page.stem}" for page in (ROOT / "book").glob("*.md")) == sorted(listed)
    assert {page.stem for page in CHAPTERS} == {twin.stem for twin in (ROOT / "book").glob("*.ipynb")}
    assert CHAPTERS


def test_numbered_pages_are_chapters():
    assert set((ROOT / "book").glob("[0-9]*.md")) <= set(CHAPTERS)


@each_chapter
def test_twin_is_what_its_page_gives_byte_for_byte(page):
    text = page.read_text(encoding="utf-8")
    assert page.with_suffix(".ipynb").read_bytes() == twins.twin(text).encode()


@each_chapter
def test_setup_cell_is_the_first_and_the_same_everywhere(page):
    text = page.read_text(encoding="utf-8")
    assert twins.with_setup_cell(text) == text
    first = read_twin(page)["cells"][0]
    assert "".join(first["source"]) + "\n" == setup_cell.CODE
    assert first["metadata"]["tags"] == ["remove-cell"]
    assert first["metadata"]["jupyter"]["source_hidden"]


@each_chapter
def test_twin_holds_no_outputs(page):
    code = [cell for cell in read_twin(page)["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@each_chapter
def test_page_and_twin_hold_the_same_code(page):
    """Otherwise rendering would not find what the twin printed, and run the page a second time."""
    as_page = [cell.source for cell in fill_cache.read_page(page).cells if cell.cell_type == "code"]
    as_twin = ["".join(cell["source"]) for cell in read_twin(page)["cells"] if cell["cell_type"] == "code"]
    assert as_page == as_twin


def test_every_copy_of_the_address_is_the_configured_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert project["urls"]["Repository"] == citation["repository-code"] == ADDRESS
    # In README.md the buttons and the clone command can name no other repository than this one.
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    hosts = r"mybinder\.org/v2/gh|colab\.research\.google\.com/github|codespaces\.new|git clone .*github\.com"
    named = re.findall(rf"(?:{hosts})/([\w-]+/[\w.-]*\w)", readme)
    assert set(named) == {ADDRESS.removeprefix("https://github.com/")}


def in_repository(path):
    """Whether a file is what a clone brings: tracked; in a copy without a history, there."""
    if not (ROOT / ".git").exists():
        return (ROOT / path).is_file()
    command = ["git", "ls-files", "--error-unmatch", str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 0


@each_chapter
def test_launch_buttons_find_the_twin_in_a_clone(page):
    """That they name it is what the built pages are tested for."""
    assert in_repository(page.with_suffix(".ipynb").relative_to(ROOT))


def test_launch_links_of_the_readme_find_their_files_in_a_clone():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"(?:urlpath=lab/tree|/blob/main)/([^)\s]+)\)", readme)
    assert (
        len(named) == readme.count("mybinder.org/v2") + readme.count("colab.research.google.com/github") > 0
    )
    assert all(map(in_repository, named))


def test_a_file_that_no_clone_brings_is_noticed():
    assert not in_repository("book/99-nothing.ipynb")
    assert not in_repository("_build/executed")


FAKE_GIT = f"""#!/bin/sh
echo "git $*" >> "$LOG"
mkdir -p {NAME}/code/attention_on_edges {NAME}/book
touch {NAME}/code/attention_on_edges/__init__.py
exit ${{GIT_STATUS:-0}}
"""
FAKE_PIP = """
import os, sys
with open(os.environ["LOG"], "a") as log:
    print("pip", *sys.argv[1:], file=log)
sys.exit(os.environ.get("REFUSED", "nothing") in sys.argv[-1] and "no wheel")
"""
AFTERWARDS = "import attention_on_edges as a, os; print(a.__file__, os.getcwd(), sep='\\n')"


def run_setup_cell(folder, then="", **environment):
    """Run the cell where the package is missing, with a git and a pip that only note what they are asked."""
    (folder / "git").write_text(FAKE_GIT)
    (folder / "git").chmod(0o755)
    (folder / "pip.py").write_text(FAKE_PIP)
    start = folder / "start"
    start.mkdir(exist_ok=True)
    environment |= {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(folder),
        "LOG": str(folder / "log"),
    }
    # -S: without the environment's packages, edgewise among them.
    command = [sys.executable, "-S", "-c", setup_cell.CODE + then]
    outcome = subprocess.run(command, cwd=start, env=environment, capture_output=True, text=True)
    log = folder / "log"
    return outcome, log.read_text().splitlines() if log.exists() else []


def test_setup_cell_clones_installs_and_moves_in(tmp_path):
    outcome, log = run_setup_cell(tmp_path, AFTERWARDS)
    clone = tmp_path / "start" / NAME
    assert log == [
        f"git clone --depth 1 {ADDRESS} {clone}",
        f"pip install --editable {clone}[chapters,dgl]",
    ]
    said, package, folder = outcome.stdout.splitlines()
    assert ADDRESS in said
    assert package == str(clone / "code" / "attention_on_edges" / "__init__.py")
    assert folder == str(clone / "book")


def test_setup_cell_goes_on_without_dgl(tmp_path):
    outcome, log = run_setup_cell(tmp_path, REFUSED="dgl]")
    assert outcome.returncode == 0
    assert [line.endswith(",dgl]") for line in log[1:]] == [True, False]


def test_setup_cell_uses_a_clone_that_is_there(tmp_path):
    (tmp_path / "start" / NAME / "book").mkdir(parents=True)
    outcome, log = run_setup_cell(tmp_path)
    assert outcome.returncode == 0
    assert [line.split()[0] for line in log] == ["pip"]


@pytest.mark.parametrize(
    ("environment", "message"),
    [({"GIT_STATUS": "1"}, f"could not clone {ADDRESS}"), ({"REFUSED": NAME}, "could not install")],
    ids=["git", "pip"],
)
def test_setup_cell_says_what_failed(tmp_path, environment, message):
    outcome, _ = run_setup_cell(tmp_path, **environment)
    assert outcome.returncode != 0
    assert message in outcome.stderr


def test_setup_cell_is_silent_where_the_package_is():
    outcome = subprocess.run([sys.executable, "-c", setup_cell.CODE], capture_output=True, text=True)
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (0, "", "")


@each_chapter
def test_what_a_chapter_imports_is_there(page):
    """Said here in a second, and not by the chapter after minutes."""
    code = ["".join(cell["source"]) for cell in read_twin(page)["cells"] if cell["cell_type"] == "code"]
    for node in ast.walk(ast.parse("\n".join(code))):
        if isinstance(node, ast.ImportFrom) and node.module.startswith(("edgewise", "attention_on_edges")):
            for alias in node.names:
                if not hasattr(importlib.import_module(node.module), alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
