"""A Sphinx extension: a page's glyph, a drawing of the graph that it is about, at its head and on its tile.

``_static/glyphs`` has one for each chapter, and ``page.svg`` for all other pages. ``{chapters}`` makes tiles
of a table of chapters and their questions.
"""

import html
import re

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import contents

DRAWN = contents.ROOT / "book" / "_static" / "glyphs"
ROW = re.compile(r"\| \[(.+)\]\(([\w-]+)\.md\) \| (.+) \|$")


def glyph(stem):
    """Return a page's glyph as an element, which takes the page's colours."""
    path = DRAWN / f"{stem[:2] if stem[0].isdigit() else stem}.svg"
    return (path if path.exists() else DRAWN / "page.svg").read_text(encoding="utf-8")


def put_in(app, pagename, templatename, context, doctree):
    """Put a page's glyph above its heading; the landing page has the translator in its place."""
    if "body" in context and pagename in contents.pages()[1:]:
        drawn = glyph(pagename.removeprefix("book/"))
        context["body"] = context["body"].replace("<h1>", f"{drawn}\n<h1>", 1)


def tile(title, stem, question):
    """Return a chapter's tile: its glyph and its question."""
    words = f"<strong>{html.escape(title)}</strong><span>{html.escape(question)}</span>"
    return f'<li><a href="{stem}.html">{glyph(stem)}{words}</a></li>'


class Chapters(SphinxDirective):
    """A tile for each row."""

    has_content = True

    def run(self):
        """Make the list of tiles."""
        tiles = "".join(tile(*ROW.match(line).groups()) for line in self.content[2:])
        return [nodes.raw("", f'<ul class="tiles">{tiles}</ul>', format="html")]


def setup(app):
    """Put glyphs in when a page's body is written, and register the directive."""
    app.connect("html-page-context", put_in)
    app.add_directive("chapters", Chapters)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
