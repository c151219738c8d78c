"""A Sphinx extension: cells are open, or folded under a line that says what they hold.

The first line of a folded cell may be ``# @title TEXT``; the text is the closed line of the page, of Colab
and of Jupyter. A cell with the tag ``hide-cell`` proves something: its title begins with "Checked:" and says
what was checked and how exactly, and it asserts. An open cell is there to be read: it asserts nothing and is
short. A page that breaks one of these rules does not build.
"""

import re

from docutils import nodes
from sphinx.util import logging

import twins

LOG = logging.getLogger(__name__)
TITLE = re.compile(r"# @title (.+)\n")
CHECKED = "Checked: "
ASSERTS = re.compile(r"^\s*([\w .]+: )?(assert\b|([\w.]+\.)?assert_\w+\()|\braise AssertionError", re.M)
LINES_OF_A_CELL = 12
LINES_OF_A_PAGE = 120


def title(source):
    """Return the title of a cell's source; None if it has none."""
    found = TITLE.match(source)
    return found.group(1).strip() if found else None


def claim(cell):
    """Return what a notebook's cell claims to have checked; None if it is not a check."""
    if "hide-cell" not in cell.metadata.get("tags", []):
        return None
    said = title(cell.source + "\n") or ""
    return said.removeprefix(CHECKED) if said.startswith(CHECKED) else None


def faults(cells):
    """Yield what is wrong with the kinds of a page's cells."""
    opened = 0
    for cell in cells:
        tags = cell.metadata.get("tags", [])
        lines = sum(bool(line.strip()) for line in cell.source.split("\n"))
        first = next(iter(cell.source.split("\n")), "")
        if "hide-cell" in tags:
            if claim(cell) is None:
                yield f"a folded check has no title '# @title {CHECKED}…': {first}"
            elif not ASSERTS.search(cell.source):
                yield f"a folded check asserts nothing: {first}"
        elif "hide-input" in tags:
            if ASSERTS.search(cell.source):
                yield f"a folded picture asserts, which only a check does: {first}"
        elif not {"remove-input", "remove-cell"} & set(tags):
            opened += lines
            if ASSERTS.search(cell.source):
                yield f"an open cell asserts: {first}"
            if lines > LINES_OF_A_CELL:
                yield f"an open cell has {lines} lines, at most {LINES_OF_A_CELL} are read: {first}"
    if opened > LINES_OF_A_PAGE:
        yield f"{opened} lines of code are open, at most {LINES_OF_A_PAGE} are read"


def check_cells(app):
    """Name the pages whose cells are of no kind."""
    for page in twins.chapters():
        cells = [
            cell
            for cell in twins.notebook(page.read_text(encoding="utf-8")).cells
            if cell.cell_type == "code"
        ]
        for fault in faults(cells):
            LOG.warning("book/%s: %s", page.name, fault)


def label(app, doctree):
    """Write each fold's title on its closed line, take it out of the code, and give each check an address."""
    checks = 0
    for cell in doctree.findall(nodes.container):
        if cell.get("nb_element") != "cell_code" or not cell.get("hide_mode"):
            continue
        code = next(iter(cell.findall(nodes.literal_block)), None)
        if code is None:
            continue
        said = title(code.astext() + "\n")
        if said is None:
            continue
        rest = TITLE.sub("", code.astext() + "\n", count=1).strip("\n")
        code.children = [nodes.Text(rest)]
        code.rawsource = rest
        cell["prompt_show"] = cell["prompt_hide"] = said.removeprefix(CHECKED)
        if cell["hide_mode"] == "all" and said.startswith(CHECKED):
            checks += 1
            cell["ids"].append(f"check-{checks}")
            cell["classes"].append("check")


def name_folds(app, pagename, templatename, context, doctree):
    """Let a fold's accessible name be its closed line; myst-nb calls all of them alike."""
    if "body" in context:
        context["body"] = context["body"].replace('<summary aria-label="Toggle hidden content">', "<summary>")


def setup(app):
    """Check sources before, label folds after reading."""
    app.connect("builder-inited", check_cells)
    app.connect("doctree-read", label)
    app.connect("html-page-context", name_folds)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
