"""The lab: checks for code that a reader writes, which say what is wrong with it and never raise.

One function per task, :func:`task1` to :func:`task6`, each of which takes the reader's class and returns a
:class:`Report`; and :mod:`attention_on_edges.lab.given`, where each class is finished.
"""

from attention_on_edges.lab import attention, given, model, stacks
from attention_on_edges.lab.attention import task1, task4
from attention_on_edges.lab.model import task6
from attention_on_edges.lab.report import Finding, Report
from attention_on_edges.lab.stacks import task2, task3, task5

SLIPS = {
    1: attention.SLIPS,
    2: stacks.FEED_FORWARD_SLIPS,
    3: stacks.ENCODER_SLIPS | stacks.DROPOUT_SLIPS,
    4: attention.MASK_SLIPS,
    5: stacks.DECODER_SLIPS | stacks.DECODER_DROPOUT_SLIPS,
    6: model.FORCED_SLIPS | model.GREEDY_SLIPS,
}
"""The mistakes that each task's check can recognise, by name, with their messages."""

__all__ = ["SLIPS", "Finding", "Report", "given", "task1", "task2", "task3", "task4", "task5", "task6"]
