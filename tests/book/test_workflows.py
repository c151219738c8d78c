"""What runs elsewhere: well formed, pinned, and allowed no more than it needs."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def jobs(path):
    return yaml.safe_load(path.read_text("utf-8"))["jobs"]


def check(path):
    """Hold a file to GitHub's schema, which the checker brings along; it asks no network."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    return subprocess.run([*command, str(path)], capture_output=True, text=True)


def test_all_are_there():
    assert [path.stem for path in WORKFLOWS] == ["book", "gpu", "nightly"]


@each_workflow
def test_it_fits_the_schema(path):
    result = check(path)
    assert result.returncode == 0, result.stdout


def test_the_schema_notices_a_fault(tmp_path):
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text("utf-8").replace("runs-on:", "run-on:"))
    assert check(wrong).returncode == 1


@each_workflow
def test_actions_are_pinned_by_commit(path):
    text = path.read_text("utf-8")
    used = [step["uses"] for job in jobs(path).values() for step in job["steps"] if "uses" in step]
    assert len(used) == text.count("uses: ")
    assert used
    for action in used:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action)
        assert re.search(re.escape(action) + r" # v\d+\.\d+\.\d+$", text, re.MULTILINE)


ALLOWED = {
    ("book", "test"): {"contents": "read"},
    ("book", "publish"): {"pages": "write", "id-token": "write"},
    ("gpu", "artifacts"): {"contents": "write", "pull-requests": "write"},
    ("nightly", "newest"): {"contents": "read"},
    ("nightly", "faults"): {"contents": "read"},
    ("nightly", "operators"): {"contents": "read"},
}


@each_workflow
def test_no_job_may_do_more_than_it_must(path):
    whole = yaml.safe_load(path.read_text("utf-8"))["permissions"]
    assert whole == {"contents": "read"}
    for name, job in jobs(path).items():
        assert job.get("permissions", whole) == ALLOWED[path.stem, name]
        assert job["timeout-minutes"]
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


@each_workflow
def test_no_expression_is_pasted_into_a_script(path):
    """What somebody types reaches a script as a variable, never as text of it."""
    for job in jobs(path).values():
        assert all("${{" not in step.get("run", "") for step in job["steps"])


@each_workflow
def test_targets_and_variables_are_known_where_they_are_used(path):
    makefile, installer = ((ROOT / name).read_text("utf-8") for name in ("Makefile", ".ci/install"))
    targets = re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
    for job in jobs(path).values():
        script = "\n".join(step.get("run", "") for step in job["steps"])
        assert set(re.findall(r"\bmake ([a-z-]+)", script)) <= set(targets)
        for name in {*job.get("env", {}), *re.findall(r"\bmake .*?\b([A-Z]+)=", script)}:
            assert re.search(rf"\$[({{]+{name}\b", makefile + installer), name


def test_every_python_that_the_installer_takes_is_tried():
    installer = (ROOT / ".ci" / "install").read_text("utf-8")
    oldest, newest = map(int, re.search(r"\(3, (\d+)\) <= v <= \(3, (\d+)\)", installer).groups())
    tried = jobs(WORKFLOWS[0])["test"]["strategy"]["matrix"]["python"]
    assert tried == [f"3.{minor}" for minor in range(oldest, newest + 1)]


def test_small_artifacts_are_made_of_every_experiment_elsewhere():
    """In a folder of their own, not in the book's."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    recipe = makefile.split("\nartifacts: ")[1].split("\n\n")[0]
    assert "runs=$$(mktemp -d); into=$$runs/artifacts" in recipe
    assert "all=EXPERIMENTS;" in recipe
    assert "$(if $(SMALL),--small)" in recipe


CONTAINER = ROOT / ".devcontainer" / "devcontainer.json"
STRING = {"type": "string"}
# What https://containers.dev/implementors/json_schema says of the properties used here.
CONTAINER_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["image"],
    "properties": {
        "name": STRING,
        "image": STRING,
        "postCreateCommand": STRING,
        "waitFor": {"enum": ["onCreateCommand", "updateContentCommand", "postCreateCommand"]},
        "customizations": {
            "type": "object",
            "properties": {
                "vscode": {
                    "type": "object",
                    "properties": {
                        "extensions": {"type": "array", "items": STRING | {"pattern": r"^[\w-]+\.[\w-]+$"}},
                        "settings": {"type": "object"},
                    },
                },
                "codespaces": {"properties": {"openFiles": {"type": "array", "items": STRING}}},
            },
        },
    },
}


def test_the_container_fits_the_schema_and_names_what_a_clone_brings():
    container = json.loads(CONTAINER.read_text("utf-8"))
    jsonschema.validate(container, CONTAINER_SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(container | {"postCreate": ".ci/install"}, CONTAINER_SCHEMA)
    command = container["postCreateCommand"].split("; ")[-1]
    assert os.access(ROOT / command, os.X_OK)
    for name in container["customizations"]["codespaces"]["openFiles"]:
        assert (ROOT / name).is_file()
    settings = container["customizations"]["vscode"]["settings"]
    assert settings["python.defaultInterpreterPath"] == "${workspaceFolder}/.venv/bin/python"


def test_uv_is_pinned_alike_everywhere():
    text = "".join(path.read_text("utf-8") for path in [*WORKFLOWS, CONTAINER])
    (pin,) = set(re.findall(r"pip install (?:-\S+ )*(uv[^\s;]*)", text))
    assert re.fullmatch(r"uv==\d+\.\d+\.\d+", pin)


STUB = """#!/bin/bash
echo "$*" >> calls
[ "$2" = pytest ] && exit 1
[ "$4" = pyg ] && [ -e slow ] && exec sleep 60
exit 0
"""


def test_the_gpu_script_keeps_what_is_done_and_goes_on_with_the_rest(tmp_path):
    """A stage that fails, and one that runs out of time, are run again; those that are done are not."""
    (tmp_path / "python").write_text(STUB)
    (tmp_path / "python").chmod(0o755)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "gpu", tmp_path / ".ci")

    def run(budget):
        (tmp_path / "calls").write_text("")
        known = {"PATH": os.environ["PATH"], "PYTHON": str(tmp_path / "python"), "BUDGET": str(budget)}
        result = subprocess.run([tmp_path / ".ci" / "gpu", tmp_path / "out"], env=known, capture_output=True)
        return result.returncode, (tmp_path / "calls").read_text()

    (tmp_path / "slow").touch()
    code, calls = run(22)
    assert code == 1
    assert "bench engines --large" in calls
    assert "--device cuda" in calls
    assert "bench training" not in calls  # no time left
    (tmp_path / "slow").unlink()
    code, calls = run(60)
    assert code == 1
    assert "bench engines" not in calls
    assert all(name in calls for name in ("pytest", "bench pyg", "train multi30k --resume"))
