"""A Sphinx extension: the pages ``book/api.md`` and ``book/api-workshop.md`` document the two packages.

The modules are found on disk, so that none can be forgotten; each has a section with all that it defines.
Sphinx's autosummary would make a page of each.
"""

import ast
import inspect
import pydoc
import re
from pathlib import Path

from api_links import PACKAGES, entry_of

CODE = Path(__file__).resolve().parents[2] / "code"
PAGES = {"book/api": "edgewise", "book/api-workshop": "attention_on_edges"}
"""The pages, and the packages that they document."""

MOST_SHOWN = 200
"""Letters of a constant's value."""


def modules(package):
    """Return a package's modules that define anything, as names and paths, in alphabetical order.

    Those of the command line are left out, since it explains itself, and those that only the lab's page uses.
    """
    found = {}
    for path in sorted((CODE / package).rglob("*.py")):
        parts = path.relative_to(CODE).with_suffix("").parts
        if public_names(path) and not {"commands", "lab"} & set(parts):
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
    for name in modules(PAGES[docname]):
        block = f".. automodule:: {name}\n   :members:\n   :special-members: __call__\n"
        block += "   :ignore-module-all:\n   :no-value:"
        source[0] += f"\n## `{name}`\n\n```{{eval-rst}}\n{block}\n```\n"


def complete_docstring(app, what, name, obj, options, lines):
    """Add what autodoc leaves out, and keep napoleon from taking a first clause for an attribute's type."""
    if not lines:
        return
    if what in ("attribute", "data", "property"):
        lines[0] = f": {lines[0]}"
        lines += values(obj) if what == "data" else []
    elif inspect.isgeneratorfunction(inspect.unwrap(obj)) and not inspect.isgeneratorfunction(obj):
        lines[0] = f"*Context manager.* {lines[0]}"
    elif what == "class":
        parents = [parent for parent in obj.__bases__ if parent.__module__.split(".")[0] in PACKAGES]
        if parents:
            names = ", ".join(f":class:`~{parent.__module__}.{parent.__qualname__}`" for parent in parents)
            after = lines.index("") if "" in lines else len(lines)
            lines[after:after] = ["", f"A kind of {names}.", ""]


def values(constant):
    """Return lines that show a constant, or the keys of a table; none if that is long."""
    parts = constant if type(constant) is tuple else (constant,)
    if isinstance(constant, dict) and all(isinstance(key, str) for key in constant):
        shown, told = ", ".join(f"``{key!r}``" for key in constant), "Keys"
    elif all(isinstance(part, int | float | str) for part in parts):
        shown, told = f"``{constant!r}``", "Value"
    else:
        return []
    return ["", f"{told}: {shown}."] if len(shown) <= MOST_SHOWN else []


def find_definition(app, env, node, contnode):
    """Lead a name that is imported where it is used, or from a subpackage, to where it is defined."""
    if node.get("refdomain") != "py":
        return None
    module, kind, target = node.get("py:module"), node.get("py:class"), node["reftarget"]
    places = f"{module}.{kind}.{target}", f"{module}.{target}", target
    meant = next(filter(None, map(pydoc.locate, places)), None)
    entry = entry_of(meant)
    if entry is None or entry.split(".")[0] not in PACKAGES:
        return None
    return env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, "obj", entry, node, contnode)


def skip_fields(app, what, name, obj, skip, options):
    """Leave out the fields of named tuples, which their classes describe."""
    return True if (getattr(obj, "__doc__", None) or "").startswith("Alias for field number") else None


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
    app.connect("autodoc-process-docstring", complete_docstring, priority=400)  # before napoleon
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("missing-reference", find_definition)
    app.connect("autodoc-process-signature", hide_signature)
    app.connect("html-page-context", break_at_dots)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
