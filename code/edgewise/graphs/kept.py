"""What is found once per graph and kept with it: plans, patterns, predictions."""

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from edgewise.validation import InputError

Found = TypeVar("Found")


OUTSIDE = "a program is given a graph's plan, it makes none: call the module once before, on such a batch"


def kept(find: Callable[..., Found]) -> Callable[..., Found]:
    """Ask a function of a graph, and of numbers, once per graph; its name is that of what is kept.

    Compiled programs use what is kept, they do not make it. What was made in inference mode serves training.
    """

    @functools.wraps(find)
    def ask(graph: Any, *numbers: int) -> Found:
        name = find.__name__
        for number in numbers:
            name = f"{name} {number}"
        if name not in graph.kept:
            if torch.compiler.is_exporting():
                raise InputError(OUTSIDE)
            programs = torch.compiler.is_compiling() or "torch._dynamo" in sys.modules
            keep = torch.compiler.disable(_keep, reason=OUTSIDE) if programs else _keep
            keep(graph, name, find, numbers)
        return graph.kept[name]

    return ask


def _keep(graph: Any, name: str, find: Callable[..., Any], numbers: tuple[int, ...]) -> None:
    with torch.inference_mode(False):
        graph.kept[name] = find(graph, *numbers)
