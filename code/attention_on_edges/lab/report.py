"""The report of a check, for display."""

import html
import re
from dataclasses import dataclass

MARKS = {"ok": "✓", "wrong": "✗", "unfinished": "…", "not checked": "·"}
"""Every status a finding can have, and its sign."""

COLORS = {"passed": "#008060", "wrong": "#d55e00", "unfinished": "#777"}


@dataclass(frozen=True)
class Finding:
    """One step of a check.

    Attributes
    ----------
    step : str
        What was looked at.
    status : str
        ``"ok"``, ``"wrong"``, ``"unfinished"`` or ``"not checked"``.
    message : str
        What was seen.
    line : str
        The reader's line of code that it comes from, if there is one.
    """

    step: str
    status: str
    message: str = ""
    line: str = ""

    def __str__(self) -> str:
        text = f"  {MARKS[self.status]} {self.step}: {self.status}"
        text += f". {self.message}" if self.message else ""
        return text + (f"\n      `{self.line}`" if self.line else "")


@dataclass(frozen=True)
class Report:
    """The findings of a check: prints as text, displays in a notebook, and is true if all is well.

    Attributes
    ----------
    title : str
        Task and class.
    findings : tuple of Finding
        One for each step, in order.
    """

    title: str
    findings: tuple[Finding, ...]

    @property
    def status(self) -> str:
        """``"passed"``, ``"wrong"`` or ``"unfinished"``."""
        found = {finding.status for finding in self.findings}
        return next((status for status in ("wrong", "unfinished") if status in found), "passed")

    @property
    def heading(self) -> str:
        """Title and outcome in one line."""
        outcome = {"passed": "passed", "wrong": "not right yet", "unfinished": "unfinished"}
        return f"{self.title}: {outcome[self.status]}"

    def __bool__(self) -> bool:
        return self.status == "passed"

    def __repr__(self) -> str:
        return "\n".join([self.heading, *map(str, self.findings)])

    def _repr_html_(self) -> str:
        heading, found = (html.escape(text) for text in (self.heading, "\n".join(map(str, self.findings))))
        found = re.sub("`([^`]+)`", r"<code>\1</code>", found)
        look = f"border-left:.3rem solid {COLORS[self.status]};padding-left:.8rem;max-width:46rem;"
        look += "white-space:pre-wrap;overflow-wrap:anywhere"
        return (
            f'<div class="edgewise-check" role="group" aria-label="{heading}" style="{look}">'
            f"<strong>{heading}</strong>\n{found}</div>"
        )
