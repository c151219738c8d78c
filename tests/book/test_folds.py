"""Open cells, folded pictures and folded checks, and the page that lists what was checked."""

import subprocess
import sys
from types import SimpleNamespace

import nbformat
import pytest
from docutils import nodes
from nbformat.v4 import new_code_cell, new_notebook, new_output

from places import BOOK, ROOT

sys.path.insert(0, str(BOOK / "_ext"))

import contents
import folds
import run_twin
import twins
import verification_page

CHECK = "# @title Checked: two halves make a whole, exactly\nassert 1 / 2 + 1 / 2 == 1\nprint('error 0')"


def cell(source, *tags):
    return new_code_cell(source, metadata={"tags": list(tags)})


GOOD = [
    cell("print(1)"),
    cell("x = 1\n" * 40, "hide-input"),
    cell(CHECK, "hide-cell"),
    cell("assert x", "remove-input"),
]


def test_the_three_kinds_of_cell_are_accepted():
    assert list(folds.faults(GOOD)) == []
    assert [folds.claim(each) for each in GOOD] == [None, None, "two halves make a whole, exactly", None]


@pytest.mark.parametrize(
    ("made", "fault"),
    [
        ([cell("assert True, 'open'")], "an open cell asserts: assert True"),
        ([cell("torch.testing.assert_close(a, b)")], "an open cell asserts"),
        ([cell("if x: assert x")], "an open cell asserts"),
        (
            [cell("plot()\nassert x", "hide-input")],
            "a folded picture asserts, which only a check does: plot()",
        ),
        ([cell("x = 1\n\n" * 13)], "an open cell has 13 lines, at most 12 are read: x = 1"),
        ([cell("x = 1\n" * 11)] * 11, "121 lines of code are open, at most 120 are read"),
        (
            [cell("assert True", "hide-cell")],
            "a folded check has no title '# @title Checked: …': assert True",
        ),
        ([cell("# @title Proof\nassert True", "hide-cell")], "a folded check has no title"),
        ([cell("# @title Checked: all of it\nprint(1)", "hide-cell")], "a folded check asserts nothing"),
    ],
)
def test_a_cell_of_no_kind_is_named(made, fault):
    assert any(told.startswith(fault) for told in folds.faults(made))


def test_a_fold_is_labelled_and_a_check_has_an_address():
    def container(source, mode):
        facts = {"nb_element": "cell_code", "hide_mode": mode, "prompt_show": "Code", "prompt_hide": "Code"}
        return nodes.container("", nodes.literal_block(source, source), **facts)

    check, picture, plain = (
        container(CHECK, "all"),
        container("# @title How it is drawn\ndraw()", "input"),
        container("draw()", "input"),
    )
    folds.label(None, nodes.section("", plain, picture, check))
    assert (check["ids"], check["classes"]) == (["check-1"], ["check"])
    assert check["prompt_show"] == check["prompt_hide"] == "two halves make a whole, exactly"
    assert check.astext() == CHECK.partition("\n")[2]
    assert (picture["prompt_show"], picture.astext(), picture["ids"]) == ("How it is drawn", "draw()", [])
    assert (plain["prompt_show"], plain.astext()) == ("Code", "draw()")


def test_a_twin_folds_what_its_page_folds():
    fence = "```{code-cell} ipython3\n:tags: [%s]\n\nx = 1\n```\n\n"
    head = twins.front_matter((BOOK / "01-attention.md").read_text(encoding="utf-8"))
    read = twins.notebook(head + fence % "hide-cell" + fence % "hide-input" + fence % "remove-input")
    folded = [made.metadata.get("jupyter", {}).get("source_hidden", False) for made in read.cells]
    assert folded == [made.metadata.get("cellView") == "form" for made in read.cells] == [True, True, False]


def test_a_check_that_fails_stops_the_chapter_and_names_its_claim(tmp_path):
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    false = cell("# @title Checked: one is two\nassert 1 == 2", "hide-cell")
    nbformat.write(new_notebook(cells=[cell("1"), false], metadata=kernel), tmp_path / "a.ipynb")
    done = tmp_path / "done.ipynb"
    done.touch()
    command = [sys.executable, BOOK / "_ext" / "run_twin.py", tmp_path / "a.ipynb", done]
    outcome = subprocess.run(command, capture_output=True, text=True)
    assert outcome.returncode == 1
    assert "a.ipynb, cell 1: the check “one is two” failed: " in outcome.stderr
    assert not done.exists()


WAITS = """
print("so far")
import subprocess
subprocess.Popen(["sh", "-c", "echo begun; exec cat"], stdin=subprocess.PIPE).wait()
"""


def test_a_chapter_that_takes_too_long_shows_what_it_and_its_programs_printed(tmp_path, capfd, monkeypatch):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # under pytest, kernels leave out what programs print
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(new_notebook(cells=[cell("1"), cell(WAITS)], metadata=kernel), tmp_path / "a.ipynb")
    with pytest.raises(SystemExit, match=r"a\.ipynb, cell 1: A cell timed out .* 2 seconds") as outcome:
        run_twin.main(tmp_path / "a.ipynb", tmp_path / "done.ipynb", seconds=2)
    assert "so far\nbegun\n" in str(outcome.value)
    assert "encryption" not in capfd.readouterr().err


@pytest.fixture
def executed(tmp_path, monkeypatch):
    """Executed notebooks, one chapter with two checks."""
    made = [cell(CHECK, "hide-cell"), cell("print(1)"), cell("# @title Checked: b\nassert 1", "hide-cell")]
    made[0].outputs = [
        new_output("stream", name="stdout", text="error 0\n"),
        new_output("stream", name="stderr", text="x"),
    ]
    nbformat.write(new_notebook(cells=made), tmp_path / "01-attention.ipynb")
    monkeypatch.setattr(verification_page, "EXECUTED", tmp_path)


def test_the_list_is_filled_by_checks_and_marked_tests(executed, tmp_path):
    marked = '@pytest.mark.proves("01-attention", "tiles equal loops, to 1e-5")\ndef test_tiles(): ...\n'
    (tmp_path / "tests" / "deep").mkdir(parents=True)
    (tmp_path / "tests" / "deep" / "test_a.py").write_text(
        f"import pytest\n\n{marked}\ndef test_other(): ...\n"
    )
    tests = verification_page.marked_tests(tmp_path / "tests")
    assert tests == [("01-attention", "tiles equal loops, to 1e-5", "tests/deep/test_a.py::test_tiles")]
    assert verification_page.rows("01-attention", tests) == [
        ("two halves make a whole, exactly", "check-1", "error 0"),
        ("b", "check-2", ""),
        ("tiles equal loops, to 1e-5", None, "tests/deep/test_a.py::test_tiles"),
    ]
    assert verification_page.rows("02-transformer", tests) == []


def test_every_marked_test_names_a_page_and_a_test_that_exist():
    marked = verification_page.marked_tests(ROOT / "tests")
    assert marked
    assert {f"book/{page}" for page, _, _ in marked} <= set(contents.pages())
    for _, claim, place in marked:
        path, name = place.split("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
        assert claim
        assert "\n" not in claim


def test_a_claim_of_a_page_that_does_not_exist_is_refused(executed, monkeypatch):
    tests = [("99-nothing", "x", "tests/test_a.py::test_x")]
    monkeypatch.setattr(verification_page, "marked_tests", lambda folder: tests)
    directive = SimpleNamespace(env=SimpleNamespace(note_reread=lambda: None))
    with pytest.raises(ValueError, match="'99-nothing', which is no page"):
        verification_page.Verification.run(directive)


def test_every_chapter_keeps_to_the_kinds():
    for page in twins.chapters():
        cells = twins.notebook(page.read_text(encoding="utf-8")).cells
        assert list(folds.faults([c for c in cells if c.cell_type == "code"])) == [], page.name
