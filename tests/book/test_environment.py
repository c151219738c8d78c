"""What is installed where: pins, the extra for chapters, workflows, the README's example."""

import contextlib
import io
import itertools
import json
import re
import sys
import tomllib
from importlib import metadata

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from assemble_pages import names
from paths import BOOK, ROOT


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


def test_the_readmes_example_prints_what_it_says():
    readme = (ROOT / "README.md").read_text()
    code, said = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", readme, re.S).groups()
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


def test_steps_of_workflows_call_what_is_there_and_the_container_gets_what_the_readme_names():
    assert unknown("make tset && .ci/gup; pytest tests/edgewise") == ["tset", ".ci/gup"]
    called, debian = (
        [*steps()],
        re.search(r"`sudo apt install (.*?)`", (ROOT / "README.md").read_text("utf-8")),
    )
    assert [name for run in called for name in unknown(run)] == []
    assert any(run.endswith(debian[1]) for run in called)


def test_notebooks_and_the_books_package_import_what_their_extra_installs():
    extras = project()["optional-dependencies"]
    named = [*project()["dependencies"], *extras["chapters"], *extras["dgl"]]
    installs = {canonicalize_name(Requirement(each).name) for each in named}
    installs |= {"ipython", "matplotlib-inline", "pillow"}  # what a kernel and matplotlib bring
    texts = [path.read_text("utf-8") for path in (ROOT / "code").rglob("*.py")]
    for path in BOOK.glob("*.ipynb"):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        texts += ["\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")]
    wanted = {name.split(".")[0] for text in texts for name in names(text)} - sys.stdlib_module_names
    wanted -= {"attention_on_edges", "edgewise", "one_file", "dgl", "triton"}  # ours, or optional
    of = metadata.packages_distributions()
    assert len(wanted) > 10
    assert {name for name in wanted if not {*map(canonicalize_name, of[name])} & installs} == set()
