"""The book's pages as sources: what they name exists, and what they use is explained."""

import inspect
import pkgutil
import re
import subprocess
from importlib import import_module

import pytest
from myst_parser.mdit_to_docutils.base import default_slugify

from paths import BOOK, ROOT


def code_names():
    tables = re.findall(r"^\|.*\|$", (BOOK / "notation.md").read_text(encoding="utf-8"), re.MULTILINE)
    return sorted({name for row in tables for name in re.findall(r"`([^`]+)`", row)})


def find(name):
    """The object that ``a.b.C.d`` names in one of the packages; the class, where d is set by ``__init__``."""
    parts = name.split(".")
    root = "edgewise" if any((ROOT / "code" / "edgewise").glob(f"{parts[0]}*")) else "attention_on_edges"
    item = import_module(root)
    for number, part in enumerate(parts):
        path = ".".join([root, *parts[: number + 1]])
        submodules = [m.name for m in pkgutil.iter_modules(getattr(item, "__path__", []))]
        if inspect.ismodule(item) and part in submodules:
            item = import_module(path)
        elif inspect.isclass(item) and not hasattr(item, part):
            assert re.search(rf"\bself\.{part}\b|^    {part}:", inspect.getsource(item), re.MULTILINE), path
            return item
        else:
            item = getattr(item, part)
    return item


@pytest.mark.parametrize("name", code_names())
def test_every_code_name_of_the_notation_exists(name):
    path, _, argument = name.removesuffix(")").partition("(")
    item = find(path)
    if argument:
        assert argument in inspect.signature(item).parameters, f"{path} takes no {argument}"


def answers():
    rows = re.findall(r"^\| (.+) \|$", (BOOK / "what-was-asked.md").read_text(encoding="utf-8"), re.MULTILINE)
    return [cells for cells in (row.split(" | ") for row in rows) if cells[1] not in ("section", "---")]


DEVICE = re.compile(r"(.* on )?(CPU|one GPU \(H200\)|two processes on a CPU|not run)")


@pytest.mark.parametrize("answer", answers(), ids=lambda answer: answer[0][:40])
def test_every_section_and_check_that_is_said_to_answer_exists(answer):
    asked, sections, checks, devices = answer
    pages = {BOOK / page for page in re.findall(r"\]\((.+?\.md)(?:#.+?)?\)", sections)}
    texts = [page.read_text(encoding="utf-8") for page in pages]
    for title, anchor in re.findall(r"\[(?:(?:\d+|Lab), )?([^\]]+)\]\([^)]+?#(.+?)\)", sections):
        assert title.isdigit() or default_slugify(title) == anchor, f"[{title}] leads to #{anchor}"
    notes = [note for text in texts for note in re.findall(r"^# @title Checked: (.+)$", text, re.MULTILINE)]
    for words in re.findall("“(.+?)”", checks):
        assert any(words in note for note in notes), f"no check of {pages} says “{words}”"
    files = re.findall(r"`(tests/.+?)`", checks)
    assert all((ROOT / file).is_file() for file in files), files
    assert ("“" in checks) == ("✓" in checks)
    assert files or "✓" in checks or (checks, devices) == ("none", "not run"), asked
    assert all(DEVICE.fullmatch(device) for device in devices.split("; ")), devices


@pytest.mark.history
def test_results_name_commits_of_this_history():
    """Forty hex digits each, of a commit that the branch has."""
    kept = [*(BOOK / "artifacts").glob("*/provenance.json"), *(BOOK / "studies").glob("*.json")]
    named = {commit for path in kept for commit in re.findall(r'"commit": "(.*?)"', path.read_text("utf-8"))}
    assert len(named) > 20
    git = ["git", "rev-list", "HEAD"]
    assert named <= {
        *subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    }
