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

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_what_is_needed_is_pinned_once_for_every_python(version):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
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
