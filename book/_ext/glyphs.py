"""A Sphinx extension: at the head of each page its glyph, a drawing of the graph that the page is about.

``_static/glyphs`` has one for each chapter, and ``page.svg`` for all other pages.
"""

from pathlib import Path

import contents

DRAWN = Path(__file__).resolve().parents[1] / "_static" / "glyphs"


def glyph(stem):
    """Return a page's glyph as an element, which takes the page's colours."""
    path = DRAWN / f"{stem[:2] if stem[0].isdigit() else stem}.svg"
    return (path if path.exists() else DRAWN / "page.svg").read_text(encoding="utf-8")


def put_in(app, pagename, templatename, context, doctree):
    """Put a page's glyph above its heading; the landing page has the translator in its place."""
    if "body" in context and pagename in contents.pages()[1:]:
        drawn = glyph(pagename.removeprefix("book/"))
        context["body"] = context["body"].replace("<h1>", f"{drawn}\n<h1>", 1)


def setup(app):
    """Run when a page's body is written."""
    app.connect("html-page-context", put_in)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
