"""A Sphinx extension: live ``{translator}`` and ``{language-model}``; their files are built with the book."""

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from attention_on_edges.live import page

PLACE = "_static/live"


class Translator(SphinxDirective):
    """``{translator}``: shown at work before it is loaded."""

    def run(self):
        """Make the markup; the files are written when the pages are."""
        return [nodes.raw("", page.front_page(place(self)), format="html")]


class LanguageModel(SphinxDirective):
    """``{language-model}``: texts of a language model whose lines can be cut; loaded on scroll."""

    def run(self):
        """Make the markup."""
        return [nodes.raw("", page.lines_section(place(self)), format="html")]


def place(directive):
    """Return the folder of the files, from a page."""
    return "../" * directive.env.docname.count("/") + PLACE


def write_files(app, error):
    """Write the scripts and the models' data into the built book."""
    if error or app.builder.format != "html":
        return
    folder = app.outdir / PLACE
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in page.page_files().items():
        (folder / name).write_text(text, encoding="utf-8")


def setup(app):
    """Register the directives."""
    app.add_directive("translator", Translator)
    app.add_directive("language-model", LanguageModel)
    app.connect("build-finished", write_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
