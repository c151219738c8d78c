"""The six tasks: what each class is called with, and in which steps it is checked."""

from functools import partial
from typing import Any

from attention_on_edges.lab import solutions
from attention_on_edges.lab.grading import FF, LAYERS, SOURCES, TARGETS, D, Exam, H, Task
from attention_on_edges.lab.report import Report

PARALLEL = ("values", "in parallel", "gradients")
STACK = ("submodules", "values", "dropout", "gradients")

TASKS = {
    1: Task(solutions.MultiHeadAttention, (H, D), PARALLEL, senders=2),
    2: Task(solutions.FeedForward, (D, FF), PARALLEL),
    3: Task(solutions.EncoderStack, (H, D, FF, 0.5), STACK),
    4: Task(
        solutions.MultiHeadAttention,
        (H, D),
        ("without maskout", "values", "large scores", "in parallel", "gradients"),
        senders=2,
        options={"maskout": True},
    ),
    5: Task(solutions.DecoderStack, (H, D, FF, 0.5), STACK, senders=1),
    6: Task(
        solutions.Transformer,
        (SOURCES, TARGETS, LAYERS, D, FF, H, 0.5),
        ("submodules", "values", "in parallel", "dropout", "decoding", "gradients"),
    ),
}


def check(number: int, subject: Any) -> Report:
    """Check a reader's class, constructed and called as the page says; nothing is raised."""
    return Exam(number, TASKS, subject).report()


task1, task2, task3, task4, task5, task6 = (partial(check, number) for number in TASKS)
