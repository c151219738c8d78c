"""Comparable timings: in one run, interleaved, medians."""

import statistics
import time
from collections.abc import Callable, Mapping

from edgewise.validation import check_count

TURN = 0.05
"""Seconds; a faster function is called repeatedly within its turn until about this time has passed."""

MOST_CALLS = 20
"""Measured calls in a turn, at most."""

LONG = 1.0
"""Seconds; slower functions get no warm-up call in each turn."""


def interleave(functions: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Time functions in turns, so that a slow moment of the machine hits all of them.

    A turn begins with an unmeasured call, because the previous function affects caches and allocator; a
    function slower than ``LONG`` seconds skips it. A function faster than ``TURN`` seconds is called several
    times.

    Parameters
    ----------
    functions : mapping of str to callable
        Each is called twice unmeasured, then has ``repeats`` turns.
    repeats : int
        At least 1.

    Returns
    -------
    dict of str to float
        Median seconds of each.
    """
    check_count("repeats", repeats, 1)
    calls, in_vain = {}, {}
    for name, function in functions.items():
        function()
        seconds = _seconds(function)
        calls[name] = min(1 + int(TURN / seconds), MOST_CALLS)
        in_vain[name] = 1 if seconds < LONG else 0
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            turn = [_seconds(function) for _ in range(in_vain[name] + calls[name])]
            times[name] += turn[in_vain[name] :]
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def _seconds(function: Callable[[], object]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin
