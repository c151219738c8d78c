import os
from pathlib import Path

import matplotlib
import pytest
import torch
from hypothesis import settings

matplotlib.use("agg")
settings.register_profile("edgewise", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("edgewise")

LEFT_OUT = pytest.StashKey[list[str]]()


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def pytest_collection_modifyitems(config, items):
    """Leave out what this machine cannot run; say so in a line, never in silence."""
    missing = {}
    if not Path(os.environ.get("EDGEWISE_DATA", "none"), "multi30k").is_dir():
        missing["corpus"] = "EDGEWISE_DATA names no folder of corpora"
    if not torch.cuda.is_available():
        missing["cuda"] = "there is no CUDA device"
    left_out = {marker: [i for i in items if i.get_closest_marker(marker)] for marker in missing}
    for marker, chosen in left_out.items():
        if chosen:
            config.hook.pytest_deselected(items=chosen)
            items[:] = [item for item in items if item not in chosen]
            config.stash[LEFT_OUT].append(
                f"{len(chosen)} tests marked {marker!r} left out: {missing[marker]}"
            )


def pytest_configure(config):
    config.stash[LEFT_OUT] = []


def pytest_terminal_summary(terminalreporter, config):
    for line in config.stash[LEFT_OUT]:
        terminalreporter.write_line(line)
