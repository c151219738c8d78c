"""The lab's page: what it hands out can be finished, and what it asks has an answer that runs."""

import ast
import inspect
import json
import re
import textwrap

import pytest
import torch
from torch import nn

from attention_on_edges import lab as checks
from attention_on_edges.lab import solutions
from attention_on_edges.lab.checks import TASKS
from paths import BOOK

PAGE = (BOOK / "lab.md").read_text(encoding="utf-8")


def cells():
    notebook = json.loads((BOOK / "lab.ipynb").read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def stub(name):
    """The class as the page hands it out, after the one with its layers where that has a cell of its own."""
    source = "\n".join(cell for cell in cells() if re.match(rf"class {name}(Layers)?\(", cell))
    namespace = {"torch": torch, "nn": nn, "solutions": solutions}
    exec(source, namespace)
    return source, namespace[name]


@pytest.mark.parametrize("task", TASKS)
def test_what_the_page_hands_out_is_unfinished_and_can_be_finished(task):
    base = TASKS[task].solution
    source, blank = stub(base.__name__)
    report = getattr(checks, f"task{task}")(blank)
    assert report.status == "unfinished"
    assert "yet to be written" in repr(report)
    raises = next(f.line for f in report.findings if f.status == "unfinished")
    number = int(re.match(r"line (\d+)", raises).group(1))
    assert "raise NotImplementedError" in source.splitlines()[number - 1]
    methods = {name: f for name, f in vars(base).items() if inspect.isfunction(f) and name != "__init__"}
    assert getattr(checks, f"task{task}")(type(base.__name__, (blank,), methods))


@pytest.mark.parametrize("base", dict.fromkeys(task.solution for task in TASKS.values()))
def test_page_and_package_have_the_same_constructors(base):
    def constructor(source):
        tree = ast.parse(textwrap.dedent(source))
        node = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "__init__")
        for argument in node.args.args:
            argument.annotation = None
        return ast.unparse(node).replace("solutions.", "")

    assert constructor(stub(base.__name__)[0]) == constructor(inspect.getsource(base))


def test_every_task_and_question_of_the_handout_has_a_folded_answer():
    wanted = {f"lab-task-{i}" for i in range(1, 7)} | {f"lab-question-{i}" for i in range(1, 9)}
    asked = re.findall(r"^```\{exercise\} .+\n:label: (.+)$", PAGE, re.M)
    answered = re.findall(r"^`{3,4}\{solution(?:-start)?\} (.+)\n:class: dropdown$", PAGE, re.M)
    assert set(asked) == set(answered) == wanted
    assert len(asked) == len(answered) == len(wanted)
