"""Processes of their own, and their peak memory."""

import multiprocessing
import os
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**36)}
"""Environment that makes glibc keep freed memory, as PyTorch does on a GPU; other systems ignore it.

Otherwise glibc returns and re-acquires large buffers in every pass, which dominates the time on long texts.
"""


def alone(function: Callable[..., Any], *arguments: Any, **environment: str) -> Any:
    """Call a function in a fresh process, with environment variables besides this one's.

    Raises
    ------
    RuntimeError
        If the system ends the process, for lack of memory say.
    """
    fresh = multiprocessing.get_context("spawn")
    with patch.dict(os.environ, environment), ProcessPoolExecutor(1, mp_context=fresh) as pool:
        return pool.submit(function, *arguments).result()


def peak() -> int:
    """Peak memory of this process, in bytes.

    Linux's VmHWM is of this program alone; ``getrusage`` would include the parent that started it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text("ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
