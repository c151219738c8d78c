"""Runs one chapter's twin through nbmake and keeps what it printed.

    python book/_ext/run_twin.py book/01-attention.ipynb _build/executed/01-attention.ipynb

The twin itself stays as it is. Where a cell fails or takes too long nothing is written, and the message ends
with all that the cell had printed, programs that it started included. nbmake is called as a library because
its command line writes over the notebook that it runs, and passes over all that lies in _build.
"""

import sys
import time
from pathlib import Path

import nbformat
from jupyter_client import KernelManager
from nbmake.nb_run import NotebookRun

import stale
from folds import claim

SECONDS_A_CELL = 600
# A kernel whose connection is not encrypted warns of it, once a chapter.
KernelManager.transport_encryption.default_value = "auto"


def main(twin, executed, seconds=SECONDS_A_CELL):
    """Execute ``twin`` in its own folder and write the outcome to ``executed``."""
    start, digest = time.perf_counter(), stale.digest(twin)
    result = NotebookRun(twin.resolve(), seconds).execute()
    if result.error is not None:
        executed.unlink(missing_ok=True)
        index = result.error.failing_cell_index
        cell = result.nb.cells[index]
        failed = f"the check “{claim(cell)}” failed: " if claim(cell) else ""
        printed = "".join(output.get("text", "") for output in cell.outputs)
        sys.exit(f"{twin}, cell {index}: {failed}{result.error.summary}\n{result.error.trace}\n{printed}")
    for cell in result.nb.cells:
        cell.metadata.pop("execution", None)  # nbmake's clock readings
    result.nb.metadata["digest"] = digest
    result.nb.metadata["execution_seconds"] = time.perf_counter() - start
    executed.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(result.nb, executed)
    print(f"{twin}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
