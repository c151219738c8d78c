"""A Sphinx extension: the directive ``{verification}`` lists what the pages claim and what proves it.

Two things fill the list. A folded check (see ``folds.py``) has run when the page was built, or there would be
no page: its row leads to it and shows what it printed. A test marked ``@pytest.mark.proves("page", "claim")``
runs in ``make test``: its row names it.
"""

import ast

import nbformat
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import contents
import folds
from contents import ROOT

EXECUTED = ROOT / "_build" / "executed"
TESTS = ROOT / "tests"


def checks(stem):
    """Return a page's folded checks in order, each a pair: what was checked, what the check printed."""
    path = EXECUTED / f"{stem}.ipynb"
    cells = nbformat.read(path, as_version=4).cells if path.exists() else []
    return [(said, printed(cell)) for cell in cells if (said := folds.claim(cell)) is not None]


def printed(cell):
    """Return what a cell wrote to its standard output."""
    texts = [output["text"] for output in cell.outputs if output.get("name") == "stdout"]
    return "".join(texts).strip()


def marked_tests(folder):
    """Return the marked tests below a folder: page, claim, and the test as pytest names it."""
    found = []
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for mark in getattr(node, "decorator_list", []):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.proves":
                    page, claim = map(ast.literal_eval, mark.args)
                    found.append((page, claim, f"{path.relative_to(folder.parent)}::{node.name}"))
    return found


def rows(stem, marked):
    """Return a page's rows: the claim, how to reach its check (None for a test), and what is known of it."""
    found = [(said, f"check-{i}", shown) for i, (said, shown) in enumerate(checks(stem), 1)]
    return found + [(said, None, test) for page, said, test in marked if page == stem]


class Verification(SphinxDirective):
    """A sentence with the count, and for each page a heading and a list."""

    def run(self):
        """Make the nodes."""
        self.env.note_reread()
        marked = marked_tests(TESTS)
        stems = [name.removeprefix("book/") for name in contents.pages()]
        for page, claim, test in marked:
            if page not in stems:
                raise ValueError(f"{test} proves {claim!r} of {page!r}, which is no page")
        listed = {stem: found for stem in stems if (found := rows(stem, marked))}
        run = sum(address is not None for found in listed.values() for _, address, _ in found)
        held = sum(map(len, listed.values())) - run
        count = f"{run} checks ran when these pages were built and passed; {held} more are held by tests."
        return [nodes.paragraph(text=count), *(section(*page) for page in listed.items())]


def section(stem, listed):
    """Return one page's part of the list as nodes."""
    shown = nodes.bullet_list(classes=["verified"])
    for said, address, known in listed:
        line = nodes.paragraph()
        if address:
            line += nodes.reference("", said, refuri=f"{stem}.html#{address}", internal=True)
        else:
            line += nodes.Text(said)
        if known:
            line += [nodes.Text(" "), nodes.literal(text="; ".join(known.split("\n")))]
        shown += nodes.list_item("", line)
    return nodes.section("", nodes.title("", title(stem)), shown, ids=[f"verified-{stem}"])


def title(stem):
    """Return a page's title, the first heading of its source."""
    text = (ROOT / "book" / f"{stem}.md").read_text(encoding="utf-8")
    return next(line for line in text.split("\n") if line.startswith("# ") and "@title" not in line)[2:]


def setup(app):
    """Register the directive."""
    app.add_directive("verification", Verification)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
