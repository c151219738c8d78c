"""The lab: checks for code that a reader writes, which say what is wrong with it and never raise.

One function per task, :func:`task1` to :func:`task6`, each of which takes the reader's class and returns a
:class:`Report`; :mod:`attention_on_edges.lab.solutions`, where each class is finished; and ``SLIPS``, the
mistakes that the checks know by name.
"""

from attention_on_edges.lab import solutions
from attention_on_edges.lab.checks import task1, task2, task3, task4, task5, task6
from attention_on_edges.lab.report import Finding, Report
from attention_on_edges.lab.slips import SLIPS
