"""The environment that the notebooks' set-up cell and Binder make, made for real."""

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys

import pytest

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
    """The README's example runs; of the workshop it has nothing."""
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
