"""The report of a check, for display."""

import html
import re
from dataclasses import dataclass

MARKS = {"ok": "✓", "wrong": "✗", "unfinished": "…", "not checked": "·"}
"""Every status a finding can have, and its sign."""

STYLE = """\
.edgewise-check{font-family:inherit;color:inherit;border-left:.3rem solid #777;padding:.1rem 0 .1rem .8rem;\
margin:.5rem 0;max-width:46rem}
.edgewise-check.passed{border-color:#008060}
.edgewise-check.wrong{border-color:#d55e00}
.edgewise-check p,.edgewise-check ul{margin:.2rem 0}
.edgewise-check ul{list-style:none;padding:0}
.edgewise-check li{margin:.15rem 0;overflow-wrap:anywhere}
.edgewise-check ul li pre{background:transparent;color:inherit;border:0;margin:.1rem 0 .1rem 1.3rem;\
padding:0;white-space:pre-wrap;font-size:.9em}
"""


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
        return text + (f"\n      {self.line}" if self.line else "")


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
        heading = html.escape(self.heading, quote=True)
        return (
            f"<style>{STYLE}</style>"
            f'<div class="edgewise-check {self.status}" role="group" aria-label="{heading}">'
            f"<p><strong>{heading}</strong></p><ul>{''.join(map(_item, self.findings))}</ul></div>"
        )


def _item(finding: Finding) -> str:
    mark = f'<span aria-hidden="true">{MARKS[finding.status]}</span>'
    step, message, line = map(html.escape, (finding.step, finding.message, finding.line))
    message = re.sub("`([^`]+)`", r"<code>\1</code>", message)
    text = f"<li>{mark} <strong>{step}</strong>: {finding.status}{f'. {message}' if message else ''}"
    return f"{text}{f'<pre>{line}</pre>' if line else ''}</li>"
