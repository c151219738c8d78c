import os
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import settings

from edgewise.graphs import dgl_available, per_graph
from paths import ROOT

os.environ["MPLBACKEND"] = "agg"
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before anybody imports Triton
NIGHTLY = bool(os.environ.get("EDGEWISE_NIGHTLY"))
settings.register_profile("edgewise", deadline=None, derandomize=True, max_examples=80 if NIGHTLY else 25)
settings.load_profile("edgewise")


@pytest.fixture(autouse=True)
def afresh():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    per_graph.clear_cache()  # plans may have been made with other constants


@pytest.fixture
def doubled():
    """Numbers are float64: where two ways of computing are compared, a sum that cancels hides nothing."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def few():
    """Toy tasks have few strings, and of few length penalties one is chosen."""
    from book_support import FEW

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attention_on_edges.tasks.SIZES", FEW)
        patch.setattr("attention_on_edges.runs.scores.PENALTIES", (0.0, 1.0))
        yield


@pytest.fixture
def process_group(tmp_path):
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def browser():
    from browser import chromium

    with chromium() as program:
        yield program


def missing(marker):
    """What a marked test needs and this machine lacks; nothing if it has it."""
    if marker == "corpus" and not Path(os.environ.get("EDGEWISE_DATA") or "/dev/null").is_dir():
        return "EDGEWISE_DATA names no folder of corpora"
    if marker == "cuda" and not torch.cuda.is_available():
        return "there is no CUDA device"
    if marker == "triton" and (torch.cuda.is_available() or find_spec("triton") is None):
        return "Triton is not installed, or there is a CUDA device, for which its interpreter is off"
    if marker == "dgl" and not dgl_available():
        return "DGL cannot be imported here"
    if marker == "history" and (not (ROOT / ".git").exists() or (ROOT / ".git" / "shallow").exists()):
        return "this is no clone with its whole history"
    if marker == "nightly" and not NIGHTLY:
        return "make test NIGHTLY=1 runs them"
    return None


def pytest_configure(config):
    config.left_out = {}


def pytest_collection_modifyitems(config, items):
    for marker in ("corpus", "cuda", "triton", "dgl", "history", "nightly"):
        out = [item for item in items if item.get_closest_marker(marker)]
        if marker == "triton":  # what is left of CUDA's is not for the interpreter
            out = [item for item in out if not item.get_closest_marker("cuda")]
        if out and (reason := missing(marker)):
            items[:] = [item for item in items if item not in out]
            config.left_out[marker] = f"deselected {len(out)} tests marked {marker!r}: {reason}"
            config.hook.pytest_deselected(items=out)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # one process of several, which prints nothing itself
        session.config.workeroutput["left_out"] = session.config.left_out


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.left_out |= getattr(node, "workeroutput", {}).get("left_out", {})


def pytest_terminal_summary(terminalreporter, config):
    for line in config.left_out.values():
        terminalreporter.write_line(line)
