"""Source code as the package runs it, for pages that show it rather than retype it."""

import ast
import html
import inspect
import re
import textwrap
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer


class Source:
    """The source of one or several functions or classes of this package, ready to be displayed.

    Parameters
    ----------
    objects : functions, methods or classes
        Shown one after the other, each under the name of its module, without docstrings.
    """

    def __init__(self, *objects: Any):
        self.parts = [(_place(o), _source(o)) for o in objects]

    def _repr_html_(self) -> str:
        blocks = (
            f'<p class="source-place"><code>{html.escape(place)}</code></p>'
            f'<div class="highlight"><pre>{_lines(code)}</pre></div>'
            for place, code in self.parts
        )
        return f'<div class="edgewise-source">{"".join(blocks)}</div>'

    def __repr__(self) -> str:
        return "\n\n".join(f"# {place}\n{code}" for place, code in self.parts)


def show_source(*objects: Any) -> Source:
    """Return the source of functions, methods or classes as something a notebook displays."""
    return Source(*objects)


def _lines(code: str) -> str:
    """Each line as an element that wraps where its text begins, and a little further."""
    colored = highlight(code, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)).splitlines()
    indents = (len(line) - len(line.lstrip()) for line in code.splitlines())
    return "".join(
        f'<span class="line" style="--hang: {indent + 4}ch">{line}\n</span>'
        for indent, line in zip(indents, colored, strict=True)
    )


def _place(item: Any) -> str:
    return f"{item.__module__.replace('.', '/')}.py: {item.__qualname__}"


def _source(item: Any) -> str:
    code = re.sub(r"  # noqa.*", "", textwrap.dedent(inspect.getsource(item)))
    gone: list[Any] = [
        node.body[0]
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None
    ]
    lines = enumerate(code.splitlines(), 1)
    return "\n".join(line for i, line in lines if not any(x.lineno <= i <= x.end_lineno for x in gone))
