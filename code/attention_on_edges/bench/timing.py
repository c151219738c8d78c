"""Comparable timings: in one run, interleaved, medians."""

import statistics
import time
from collections.abc import Callable, Mapping

import torch

from edgewise.validation import check_count

TURN = 0.05
"""Seconds; a faster function is called repeatedly within its turn until about this time has passed."""

MOST_CALLS = 20
"""Measured calls in a turn, at most."""

LONG = 1.0
"""Seconds; slower functions get no warm-up call in each turn."""


def interleave(
    functions: Mapping[str, Callable[[], object]], repeats: int, device: torch.device | str = "cpu"
) -> dict[str, float]:
    """Time functions in turns, so that a slow moment of the machine hits all of them.

    A turn begins with an unmeasured call, because the previous function affects caches and allocator. A
    function faster than ``TURN`` seconds is called several times in its turn; one slower than ``LONG`` is
    called once, and its second call is its first turn.

    Parameters
    ----------
    functions : mapping of str to callable
        Each is called twice, then has ``repeats`` turns.
    repeats : int
        At least 1.
    device : torch.device or str
        Where they run; on CUDA they are timed by events.

    Returns
    -------
    dict of str to float
        Median seconds of each.
    """
    check_count("repeats", repeats, 1)
    seconds = _by_events if torch.device(device).type == "cuda" else _by_clock
    first, times = {}, {}
    for name, function in functions.items():
        function()
        first[name] = seconds(function)
        times[name] = [first[name]] if first[name] >= LONG else []
    for turn in range(repeats):
        for name, function in functions.items():
            if first[name] < LONG:
                calls = 1 + min(1 + int(TURN / first[name]), MOST_CALLS)
                times[name] += [seconds(function) for _ in range(calls)][1:]
            elif turn > 0:
                times[name].append(seconds(function))
    return {name: statistics.median(turns) for name, turns in times.items()}


def _by_events(function: Callable[[], object]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    function()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def _by_clock(function: Callable[[], object]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def peak_on(device: torch.device, function: Callable[[], object]) -> int:
    """Call a function; return the bytes of a GPU that it holds at most besides those held before."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    function()
    return torch.cuda.max_memory_allocated(device) - before


def matrix_product(device: torch.device, dtype: torch.dtype) -> tuple[Callable[[], object], int]:
    """Return a product of two large square matrices, and its floating-point operations."""
    size = 8192 if device.type == "cuda" else 1024
    square = torch.randn(size, size, device=device, dtype=dtype)
    return lambda: square @ square, 2 * size**3
