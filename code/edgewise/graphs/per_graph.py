"""What is found once per graph and kept with it: edges, plans, patterns, costs.

Graphs of packed sequences of equal lengths are equal, and have one store: what was found for one of them
serves the next, in the next step. These stores, and nothing else in the library, outlive their graphs. They
are kept for the latest graphs, up to a bound, and :func:`clear_cache` empties them.
"""

import functools
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor

from edgewise.validation import InputError

Value = TypeVar("Value")

OUTSIDE = (
    "a compiled program is given a graph's plan, it makes none: make it before, by "
    "edgewise.prepare(graph, num_heads, head_dim)"
)

GRAPHS, BYTES = 1024, 2**26
"""Bounds of what is kept of packed graphs: how many graphs, and bytes in all."""


Known = dict[str, Any]
"""What has been found of a graph, by what found it: a plain dictionary, which compilers follow."""

_shared: OrderedDict[Hashable, Known] = OrderedDict()
_sizes: dict[Hashable, int] = {}
_lock = threading.Lock()
_names: dict[str, str] = {}


def shared(key: Hashable) -> Known:
    """Return what is known of all graphs that a key determines."""
    with _lock:
        known = _shared.setdefault(key, {})
        _shared.move_to_end(key)
        if len(_shared) > GRAPHS:
            _forget_oldest()
    return known


def _forget_oldest() -> None:
    _sizes.pop(_shared.popitem(last=False)[0], None)


def clear_cache() -> None:
    """Forget what was found of packed graphs."""
    with _lock:
        _shared.clear()
        _sizes.clear()


def per_graph(find: Callable[..., Value]) -> Callable[..., Value]:
    """Keep what a function of a graph, and of numbers, returns with the graph, under the function's name.

    Compiled programs use what is known, they find nothing. What was found in inference mode serves training.
    """
    if _names.setdefault(find.__name__, find.__module__) != find.__module__:
        raise ValueError(f"{find.__name__} of {_names[find.__name__]} is kept under that name already")

    @functools.wraps(find)
    def ask(graph: Any, *numbers: int) -> Value:
        name = find.__name__
        for number in numbers:
            name = f"{name} {number}"
        if name not in graph._known:
            if torch.compiler.is_exporting():
                raise InputError(OUTSIDE)
            if torch.compiler.is_compiling():
                torch._dynamo.graph_break(msg=OUTSIDE)  # with fullgraph an error that says so
            programs = torch.compiler.is_compiling() or "torch._dynamo" in sys.modules
            outside = torch.compiler.disable(_find, reason=OUTSIDE) if programs else _find
            return outside(graph, name, find, numbers)
        return graph._known[name]

    return ask


def _find(graph: Any, name: str, find: Callable[..., Any], numbers: tuple[int, ...]) -> Any:
    with torch.inference_mode(False):
        found, like = find(graph, *numbers), torch.empty(0, device="cpu")
    if type(like) is not Tensor or torch._is_functional_tensor(like):
        return found  # of a mode in which tensors are not real, which is not kept
    graph._known[name] = found
    with _lock:
        if _shared.get(graph._key) is graph._known:
            _sizes[graph._key] = _sizes.get(graph._key, 0) + size_of(found)
            if _sizes[graph._key] > BYTES:
                del _shared[graph._key], _sizes[graph._key]  # too large to be kept; the others stay
            while sum(_sizes.values()) > BYTES:
                _forget_oldest()
    return found


def size_of(found: Any) -> int:
    """Bytes of tensors, in tuples or lists of them too, and of what says its own size."""
    if isinstance(found, Tensor):
        return found.nbytes
    if isinstance(found, (tuple, list)):
        return sum(map(size_of, found))
    return int(getattr(found, "size", 0))
