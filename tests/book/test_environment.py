"""The environment that the notebooks' set-up cell and Binder make, made for real."""

import contextlib
import io
import itertools
import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from assemble_pages import names
from places import BOOK, ROOT


def copied(folder):
    """What pip builds the package from; it builds where the package lies."""
    ignored = shutil.ignore_patterns("*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "code", folder / "code", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


def installed(folder, *what):
    """The Python of a new environment in which nothing but ``what`` is installed."""
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pinned = ["--constraint", ROOT / "requirements.txt", *what]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *pinned], check=True)
    return python


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_what_is_needed_is_pinned_once_for_every_python(version):
    named = [*project()["dependencies"], *itertools.chain(*project()["optional-dependencies"].values())]
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    here = {"python_version": version, "python_full_version": f"{version}.1", "sys_platform": "linux"}
    there = [pin for pin in pins if pin.marker is None or pin.marker.evaluate(here)]
    for needed in map(Requirement, named):
        if needed.marker is None or needed.marker.evaluate(here):
            found = [pin for pin in there if canonicalize_name(pin.name) == canonicalize_name(needed.name)]
            assert len(found) == 1, needed
            assert all(spec.version in needed.specifier for spec in found[0].specifier), needed


def example():
    """The README's example, and what it says that it prints."""
    return re.search(
        r"```python\n(.*?)```\n\n```text\n(.*?)```", (ROOT / "README.md").read_text(), re.S
    ).groups()


def test_the_readmes_example_prints_what_it_says():
    code, said = example()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, {})
    assert printed.getvalue() == said


def steps():
    """What the workflows and the container for development run."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text("utf-8"))["jobs"].values():
            yield from (step["run"] for step in job["steps"] if "run" in step)
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text("utf-8"))
    yield from (container[when] for when in ("onCreateCommand", "postCreateCommand"))


def unknown(run):
    """The targets of make and the files that a step names and that are not there."""
    targets = re.findall(r"^([a-z-]+):.*##|^(env):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    asked = re.findall(r"\bmake ([a-z-]+)(?![\w-])", run)
    files = re.findall(r"(?<![\w/.])((?:\.ci|tests|book|code)/[\w./-]*\w)", run)
    return [t for t in asked if t not in {*sum(targets, ())}] + [f for f in files if not (ROOT / f).exists()]


def test_steps_of_workflows_call_what_is_there():
    assert unknown("make tset && .ci/gup; pytest tests/edgewise") == ["tset", ".ci/gup"]
    called = [*steps()]
    assert len(called) > 20
    assert [name for run in called for name in unknown(run)] == []


def test_the_container_for_development_gets_what_the_readme_names():
    named = re.search(r"`sudo apt install (.*?)`", (ROOT / "README.md").read_text("utf-8"))[1]
    assert "chromium" in named
    assert any(run.endswith(named) for run in steps())


def others(code):
    """The packages, not ours nor Python's, that a piece of code imports."""
    found = {name.split(".")[0] for name in names(code)}
    return found - sys.stdlib_module_names - {"attention_on_edges", "edgewise", "one_file"}


def test_notebooks_and_the_books_package_import_what_their_extra_installs():
    extras = project()["optional-dependencies"]
    named = [*project()["dependencies"], *extras["chapters"], *extras["dgl"]]
    installs = {canonicalize_name(Requirement(each).name) for each in named}
    installs |= {"ipython", "matplotlib-inline", "pillow"}  # what a kernel and matplotlib bring
    assert others("import sphinx.util, os\nfrom torch import nn") == {"sphinx", "torch"}
    of = metadata.packages_distributions()
    texts = [path.read_text("utf-8") for path in (ROOT / "code").rglob("*.py")]
    for path in BOOK.glob("*.ipynb"):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        texts += ["\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")]
    wanted = set().union(*map(others, texts)) - {"dgl", "triton"}  # optional, and not on every machine
    assert len(wanted) > 10
    assert {name for name in wanted if not {*map(canonicalize_name, of[name])} & installs} == set()


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_a_built_package_works_in_an_empty_environment(tmp_path, kind):
    """The README's example runs; of the book it has nothing."""
    source = copied(tmp_path / "source")
    build = f"from setuptools import build_meta; print(build_meta.build_{kind}('..'))"
    ran = subprocess.run(
        [sys.executable, "-c", build], cwd=source, check=True, capture_output=True, text=True
    )
    python = installed(tmp_path / "env", tmp_path / ran.stdout.split()[-1])
    code, said = example()
    alone = {"cwd": tmp_path, "capture_output": True, "text": True}
    assert subprocess.run([python, "-c", code], check=True, **alone).stdout == said
    asked = subprocess.run([python, "-m", "attention_on_edges", "translate", "hello"], **alone)
    assert "No module named attention_on_edges" in asked.stderr
    assert not list((tmp_path / "env" / "bin").glob("edgewise*"))


@pytest.mark.nightly
def test_a_notebook_runs_where_the_extra_for_chapters_is_installed_and_nothing_else(tmp_path):
    python = installed(tmp_path / "env", "--editable", f"{copied(tmp_path / 'source')}[chapters]")
    cells = json.loads((BOOK / "01-attention.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    chapter = tmp_path / "chapter.py"
    chapter.write_text("import matplotlib; matplotlib.use('agg')\n" + "\n".join(code), encoding="utf-8")
    subprocess.run([python, chapter], cwd=BOOK, check=True)
    lacking = "import importlib.util as u; print(*map(u.find_spec, ('sphinx', 'pytest', 'playwright')))"
    found = subprocess.run([python, "-c", lacking], check=True, capture_output=True, text=True).stdout
    assert found.split() == ["None"] * 3
