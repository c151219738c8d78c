"""Small tables of results, for pages: HTML in a notebook, aligned text in a terminal."""

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Number
from types import MappingProxyType
from typing import Any

from tabulate import tabulate

MINUS = re.compile(r"(?<![\w.)/-])-(?=\.?\d)")
"""A hyphen before a number that stands by itself, and so a sign."""


class Table:
    """Rows under a head, ready to be displayed; :func:`table` makes one."""

    def __init__(
        self, head: Sequence[str], rows: list[list[str]], align: list[str], languages: Mapping[str, str]
    ):
        self.head, self.rows, self.align, self.languages = list(head), rows, align, languages

    @property
    def _how(self) -> dict[str, Any]:
        return {"disable_numparse": True, "colalign": self.align}

    def _repr_html_(self) -> str:
        rows = [[self._cell(*pair) for pair in zip(self.head, row, strict=True)] for row in self.rows]
        shown = tabulate(rows, [*(html.escape(str(name)) for name in self.head)], "unsafehtml", **self._how)
        return f'<div class="edgewise-table">{shown}</div>'

    def _cell(self, name: str, text: str) -> str:
        shown = html.escape(MINUS.sub("\N{MINUS SIGN}", text))
        language = self.languages.get(name)
        return shown if language is None else f'<span lang="{language}" translate="no">{shown}</span>'

    def __repr__(self) -> str:
        return tabulate(self.rows, self.head, "simple", **self._how)


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    formats: Sequence[str] | None = None,
    languages: Mapping[str, str] = MappingProxyType({}),
) -> Table:
    """Return rows as a table that a notebook displays.

    Parameters
    ----------
    head : sequence of str
        The columns' names.
    rows : iterable of sequences
        As many values each as there are columns: texts, numbers, or tensors and arrays without an axis.
        Columns that hold numbers are aligned to the right.
    formats : sequence of str, optional
        A format specification for each column, ``".2f"`` or ``".0%"`` for instance, ``""`` for the default:
        separators of thousands in whole numbers, three significant digits in others. Texts stay as they are.
    languages : mapping of str to str
        Columns that are not in English, and the codes of their languages, such as ``fr``.
    """
    values = [[x.item() if getattr(x, "shape", None) == () else x for x in row] for row in rows]
    formats = formats or [""] * len(head)
    align = [
        "right" if any(isinstance(value, Number) for value in column) else "left"
        for column in zip(*values, strict=True)
    ]
    return Table(
        head, [[_text(*pair) for pair in zip(row, formats, strict=True)] for row in values], align, languages
    )


def _text(value: Any, spec: str) -> str:
    if isinstance(value, bool) or not isinstance(value, Number):
        return str(value)
    return format(value, spec or ("," if isinstance(value, int) else ".3g"))
