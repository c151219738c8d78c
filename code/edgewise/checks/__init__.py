"""The lab: checks for code that a reader writes, which say what is wrong with it and never raise.

One function a task, :func:`task1` to :func:`task6`, each of which takes the reader's class and returns a
:class:`Report`; and :mod:`edgewise.checks.given`, where each class is finished.
"""

from edgewise.checks import given
from edgewise.checks.attention import task1, task4
from edgewise.checks.model import task6
from edgewise.checks.report import Finding, Report
from edgewise.checks.stacks import task2, task3, task5

__all__ = ["Finding", "Report", "given", "task1", "task2", "task3", "task4", "task5", "task6"]
