"""A Sphinx extension: live ``{translator}`` and ``{language-model}``; their files are built with the book."""

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

PLACE = "_static/live"


class Translator(SphinxDirective):
    """``{translator} ARTIFACT``: shown at work before it is loaded."""

    required_arguments = 1

    def run(self):
        """Make the markup; the model's files are written when the pages are."""
        from attention_on_edges.live.page import front_page

        name = self.arguments[0]
        self.env.live_models = {*getattr(self.env, "live_models", ()), name}
        up = "../" * self.env.docname.count("/")
        return [nodes.raw("", front_page(name, up + PLACE), format="html")]


class LanguageModel(SphinxDirective):
    """``{language-model}``: texts of a language model whose lines can be cut; loaded on scroll."""

    def run(self):
        """Make the markup; the file is written when the pages are."""
        from attention_on_edges.live.page import lines_section

        self.env.live_lines = True
        return [nodes.raw("", lines_section("../" * self.env.docname.count("/") + PLACE), format="html")]


def write_files(app, error):
    """Write the scripts and the model's data into the built book."""
    if error or app.builder.format != "html":
        return
    from attention_on_edges.live.page import lines_file, model_files, script_file

    folder = app.outdir / PLACE
    folder.mkdir(parents=True, exist_ok=True)
    found = {"live.js": script_file()}
    if getattr(app.env, "live_lines", False):
        found["lines.js"] = lines_file()
    for name in getattr(app.env, "live_models", ()):
        found |= model_files(name)
    for name, text in found.items():
        (folder / name).write_text(text, encoding="utf-8")


def setup(app):
    """Register the directives."""
    app.add_directive("translator", Translator)
    app.add_directive("language-model", LanguageModel)
    app.connect("build-finished", write_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
