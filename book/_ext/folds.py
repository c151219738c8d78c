"""A Sphinx extension: a fold's closed line says what it holds.

The first line of a folded cell may be ``# @title TEXT``; the text is the closed line of the page, of Colab
and of Jupyter. A cell with the tag ``hide-cell`` proves something: its title begins with "Checked:" and says
what was checked and how exactly. ``_static/book.css`` says how it looks.
"""

import re

from docutils import nodes

TITLE = re.compile(r"# @title (.+)\n")
CHECKED = "Checked: "


def label(app, doctree):
    """Write each fold's title on its closed line, take it out of the code, and mark the checks."""
    for cell in doctree.findall(nodes.container):
        if cell.get("nb_element") != "cell_code" or not cell.get("hide_mode"):
            continue
        code = next(iter(cell.findall(nodes.literal_block)), None)
        found = TITLE.match(code.astext() + "\n") if code else None
        if found:
            code.rawsource = code.astext().partition("\n")[2].strip("\n")
            code.children = [nodes.Text(code.rawsource)]
            cell["prompt_show"] = cell["prompt_hide"] = found[1].removeprefix(CHECKED)
            if cell["hide_mode"] == "all" and found[1].startswith(CHECKED):
                cell["classes"].append("check")


def name_folds(app, pagename, templatename, context, doctree):
    """Let a fold's accessible name be its closed line; myst-nb calls all of them alike."""
    if "body" in context:
        context["body"] = context["body"].replace('<summary aria-label="Toggle hidden content">', "<summary>")


def setup(app):
    """Label folds after reading, name them when a page is written."""
    app.connect("doctree-read", label)
    app.connect("html-page-context", name_folds)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
