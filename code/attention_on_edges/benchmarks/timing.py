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

    A turn begins with an unmeasured call, because the previous function affects caches and allocator. A
    function faster than ``TURN`` seconds is called several times in its turn; one slower than ``LONG`` is
    called once, and its second call is its first turn.

    Parameters
    ----------
    functions : mapping of str to callable
        Each is called twice, then has ``repeats`` turns.
    repeats : int
        At least 1.

    Returns
    -------
    dict of str to float
        Median seconds of each.
    """
    check_count("repeats", repeats, 1)
    first, times = {}, {}
    for name, function in functions.items():
        function()
        first[name] = _seconds(function)
        times[name] = [first[name]] if first[name] >= LONG else []
    for turn in range(repeats):
        for name, function in functions.items():
            if first[name] < LONG:
                calls = 1 + min(1 + int(TURN / first[name]), MOST_CALLS)
                times[name] += [_seconds(function) for _ in range(calls)][1:]
            elif turn > 0:
                times[name].append(_seconds(function))
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def _seconds(function: Callable[[], object]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin
