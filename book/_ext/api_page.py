"""A Sphinx extension: the pages ``book/api.md`` and ``book/api-tools.md`` document the whole package.

The modules are found on disk, so that none can be forgotten; each has a section with all that it defines.
"""

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "code" / "edgewise"
MODELS = {
    "adaptive",
    "analysis",
    "attention",
    "dense",
    "gnn",
    "graphs",
    "layers",
    "longrange",
    "message_passing",
    "sparse",
    "transformer",
}
"""Documented on the first page; the rest follows on the second, for the pages' weight."""
PAGES = {"book/api": True, "book/api-tools": False}
"""The pages, and whether they document the models."""


def modules():
    """Return the package's modules that define anything, as names and paths, in alphabetical order."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if public_names(path):
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return dict(sorted(found.items()))


def public_names(path):
    """Return the functions and classes that a module defines and does not hide."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    names = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return [name for name in names if not name.startswith("_")]


def add_modules(app, docname, source):
    """Write a section for each module at the end of its page, for autodoc to read."""
    if docname not in PAGES:
        return
    for name in modules():
        if (name.split(".")[1] in MODELS) == PAGES[docname]:
            block = f".. automodule:: {name}\n   :members:\n   :ignore-module-all:\n   :no-value:"
            source[0] += f"\n## `{name}`\n\n```{{eval-rst}}\n{block}\n```\n"


def keep_sentences(app, what, name, obj, options, lines):
    """Begin an attribute's docstring with an empty type; napoleon takes a first clause for one."""
    if what in ("attribute", "data", "property") and lines:
        lines[0] = f": {lines[0]}"


def hide_signature(app, what, name, obj, options, signature, returns):
    """Show no arguments for a protocol, which is not made; autodoc shows those of its placeholder."""
    return ("", None) if getattr(obj, "_is_protocol", False) else None


def break_at_dots(app, pagename, templatename, context, doctree):
    """Let a module's name, where it is too wide, go on in the next line after a dot."""
    if pagename in PAGES:
        for part in ("body", "toc"):
            context[part] = re.sub(
                r'(<h2>|">)(<code [^>]*><span class="pre">)([\w.]+)',
                lambda found: found[1] + found[2] + found[3].replace(".", ".<wbr/>"),
                context[part],
            )


def setup(app):
    """Run before the pages are parsed."""
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("sphinx.ext.napoleon")
    app.connect("source-read", add_modules)
    app.connect("autodoc-process-docstring", keep_sentences, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", hide_signature)
    app.connect("html-page-context", break_at_dots)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
