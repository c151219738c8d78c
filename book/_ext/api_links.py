"""A Sphinx extension: the packages' names in code cells lead to their entries on the pages ``book/api*.md``.

A cell's code is read, not run: an imported name is what the package has under it, and a name that was set
to a class's call, or to that of a function that says what it returns, is known to be such an object. Each
entry is linked where a cell first names it. sphinx-codeautolink would do the same, but stops at sections
without a title, which exercises hold.
"""

import ast
import html
import importlib
import inspect
import re
import sys
import typing

PACKAGES = ("edgewise", "attention_on_edges")
CELL = re.compile(r'(<div class="cell_input.*?<pre>)(.*?)(?=</pre>)', re.DOTALL)
MARKUP = re.compile(r"(<[^>]*>)|([^<]+)")


class Instance(typing.NamedTuple):
    """Something of which only the class is known."""

    kind: type


class Reader(ast.NodeVisitor):
    """Reads a page's cells in order, and keeps in mind which name is what of the package.

    Attributes
    ----------
    found : dict
        For the cell read last: line and column in bytes of a name, and the name of its entry.
    """

    def __init__(self, documented):
        self.documented, self.scope, self.found = documented, {}, {}

    def read(self, code):
        """Return what ``found`` holds after reading a cell; nothing if it is not Python alone."""
        self.found = {}
        try:
            self.visit(ast.parse(code))
        except SyntaxError:
            return {}
        return self.found

    def note(self, entry, line, column):
        """Keep the place where a cell first names an entry."""
        if entry in self.documented and entry not in self.found.values():
            self.found[line, column] = entry

    def visit_Import(self, node):
        """Bind modules of the package."""
        for alias in node.names:
            top = alias.name.split(".")[0]
            module = importlib.import_module(alias.name) if top in PACKAGES else None
            self.bind(alias.asname or top, sys.modules[top] if module and not alias.asname else module)

    def visit_ImportFrom(self, node):
        """Bind and note what is imported from the package."""
        known = (node.module or "").split(".")[0] in PACKAGES
        for alias in node.names:
            thing = getattr(importlib.import_module(node.module), alias.name, None) if known else None
            self.bind(alias.asname or alias.name, thing)
            self.note(entry_of(thing), alias.lineno, alias.col_offset)

    def visit_Assign(self, node):
        """Bind a name to what is known of its value, and forget what other targets were."""
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)
            if isinstance(target, ast.Name):
                self.bind(target.id, self.value(node.value))

    def visit_Name(self, node):
        """Note a name that is read; forget one that is set."""
        if isinstance(node.ctx, ast.Load):
            self.note(entry_of(self.scope.get(node.id)), node.lineno, node.col_offset)
        else:
            self.bind(node.id, None)

    def visit_Attribute(self, node):
        """Note a module's name, or a method or attribute of a known object."""
        self.visit(node.value)
        column = node.end_col_offset - len(node.attr.encode())
        for entry in entries_of(self.value(node.value), node.attr):
            self.note(entry, node.end_lineno, column)

    def visit_arg(self, node):
        """Forget what a parameter's name was."""
        self.bind(node.arg, None)

    def visit_inner(self, node):
        """Read a scope of its own: what it sets is forgotten at its end."""
        self.bind(getattr(node, "name", ""), None)
        outer, self.scope = self.scope, dict(self.scope)
        for part in getattr(node, "generators", ()):  # they bind names used before them
            self.visit(part)
        self.generic_visit(node)
        self.scope = outer

    visit_FunctionDef = visit_ClassDef = visit_Lambda = visit_inner  # noqa: N815
    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_inner  # noqa: N815

    def bind(self, name, thing):
        """Let a name be a thing, or nothing that is known."""
        self.scope.pop(name, None)
        if thing is not None:
            self.scope[name] = thing

    def value(self, node):
        """Return what an expression is, as far as it can be told: a thing of the package, or an instance."""
        if isinstance(node, ast.Name):
            return self.scope.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value)
            owner = owner.kind if isinstance(owner, Instance) else owner
            return None if owner is None else getattr(owner, node.attr, None)
        return returned(self.value(node.func)) if isinstance(node, ast.Call) else None


def returned(called):
    """Return what calling a class, or a function that says what it returns, gives; else None."""
    if inspect.isroutine(called):
        try:
            called = typing.get_type_hints(called).get("return")
        except (NameError, TypeError):
            return None
    ours = inspect.isclass(called) and called.__module__.split(".")[0] in PACKAGES
    return Instance(called) if ours else None


def entry_of(thing):
    """Return the full name of a class or a function, by which the API's pages list it."""
    if inspect.isclass(thing) or inspect.isroutine(thing):
        return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"
    return None


def entries_of(owner, attribute):
    """Yield the full names that an attribute of a module or class may have."""
    if inspect.ismodule(owner):
        yield entry_of(getattr(owner, attribute, None))
    owner = owner.kind if isinstance(owner, Instance) else owner
    for kind in inspect.getmro(owner) if inspect.isclass(owner) else ():
        yield f"{kind.__module__}.{kind.__qualname__}.{attribute}"


def link(markup, reader, address):
    """Return a cell's highlighted code with links; ``address`` gives that of an entry."""
    code = html.unescape(re.sub(r"<[^>]*>", "", markup))
    found, line, column, linked = reader.read(code), 1, 0, []
    for tag, text in MARKUP.findall(markup):
        plain = html.unescape(text)
        entry = found.get((line, column)) if text.strip() else None
        linked.append(f'<a class="api-link" href="{address(entry)}">{text}</a>' if entry else tag or text)
        line += plain.count("\n")
        column = len(plain.rpartition("\n")[2].encode()) + (0 if "\n" in plain else column)
    return "".join(linked)


def link_cells(app, pagename, templatename, context, doctree):
    """Link the names in a page's code cells."""
    objects = app.env.get_domain("py").objects

    def address(entry):
        place = objects[entry]
        return f"{app.builder.get_relative_uri(pagename, place.docname)}#{place.node_id}"

    reader = Reader(objects)
    body = context.get("body") or ""
    context["body"] = CELL.sub(lambda cell: cell[1] + link(cell[2], reader, address), body)


def setup(app):
    """Run when a page's body is set."""
    app.connect("html-page-context", link_cells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
