"""A Sphinx extension: the pages ``book/api.md`` and ``book/api-tools.md`` document the whole package.

The modules are found on disk, so that none can be forgotten; each has a section with all that it defines.
"""

import ast
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
    pages = {"book/api": True, "book/api-tools": False}
    if docname not in pages:
        return
    for name in modules():
        if (name.split(".")[1] in MODELS) == pages[docname]:
            block = f".. automodule:: {name}\n   :members:\n   :ignore-module-all:\n   :no-value:"
            source[0] += f"\n## `{name}`\n\n```{{eval-rst}}\n{block}\n```\n"


def setup(app):
    """Run before the pages are parsed."""
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("sphinx.ext.napoleon")
    app.connect("source-read", add_modules)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
