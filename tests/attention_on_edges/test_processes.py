"""The command line in several processes, as torchrun starts them; who reads what of each batch."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from attention_on_edges import experiments
from attention_on_edges.commands import app as cli
from attention_on_edges.commands import running
from attention_on_edges.data import tasks
from attention_on_edges.data.tasks import TranslationDataset
from edgewise.graphs import GraphPool
from edgewise.training.checkpoint_files import CheckpointError, checkpoints
from processes import ROOT, free_port, process, set_role
from workshop import FEW, TINY_COPY

pairs = st.lists(st.integers(1, 9), min_size=1, max_size=30)


@given(pairs, st.integers(2, 5), st.integers(1, 40), st.booleans(), st.integers(0, 3))
def test_every_example_is_seen_once_over_all_processes(lengths, size, budget, bucketed, seed):
    """Batch for batch the shares are what one process gets, each sentence in one of them."""
    splits = {"train": [([str(i)], ["x"] * n) for i, n in enumerate(lengths)]}
    symbols = ["x", *map(str, range(len(lengths)))]

    def epochs(share):
        data = TranslationDataset(splits, symbols, seed)
        for _ in range(2):
            for batch in data(GraphPool(), "train", budget, share=share):
                yield [] if batch.stand_in else data.decode(batch.src[0].tolist())
            for batch in data.by_tokens(GraphPool(), "train", budget, bucketed, share=share):
                yield [] if batch.stand_in else data.decode(batch.src[0].tolist())

    whole = [sorted(batch) for batch in epochs((0, 1))]
    shares = zip(*(epochs((rank, size)) for rank in range(size)), strict=True)
    assert [sorted(name for part in parts for name in part) for parts in shares] == whole
    names = sorted(symbols[1:])
    assert sorted(name for batch in whole for name in batch) == sorted(names * 4)


def test_shares_of_a_batch_are_about_as_long():
    lengths = torch.randint(1, 60, (128,)).tolist()
    data = TranslationDataset({"train": [(["x"], ["x"] * n) for n in lengths]}, ["x"])
    tokens = [next(data(GraphPool(), "train", 128, share=(rank, 4))).n_tokens for rank in range(4)]
    assert max(tokens) - min(tokens) < 60


def call(rank, size, port, words, folder, seeds):
    """The command line as one of several processes, its errors in a file."""
    set_role(os.environ, rank, size, port)
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    with open(Path(folder, f"errors-{rank}"), "w") as errors:
        os.dup2(errors.fileno(), 2)
    torch.set_num_threads(1)
    seed = replace(TINY_COPY.training, seed=seeds[rank])
    experiments.EXPERIMENTS["copy"], tasks.SIZES = replace(TINY_COPY, training=seed), FEW
    cli.app(words)


def call_all(words, folder, seeds=(0, 0)):
    """Exit codes of the processes, and the errors that they wrote; the store is here, as with torchrun."""
    port, size = free_port(), len(seeds)
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    rest = (size, port, [str(word) for word in words], folder, seeds)
    processes = [process(call, rank, *rest) for rank in range(size)]
    for each in processes:
        each.start()
    for each in processes:
        each.join(300)
    lines = [Path(folder, f"errors-{rank}").read_text().splitlines() for rank in range(size)]
    del store
    codes = [each.exitcode for each in processes]
    return codes, [line for part in lines for line in part if line.startswith("error: ")]


def test_processes_that_would_not_do_the_same_are_refused_in_one_line(tmp_path):
    codes, lines = call_all(["train", "copy", "--out", tmp_path / "run"], tmp_path, seeds=(0, 1))
    assert codes == [1, 1]
    assert lines == [
        "error: all processes must do the same, but training.seed is 0 on rank 0 and 1 on rank 1"
    ]
    assert not checkpoints(tmp_path / "run" / "checkpoints")


def test_the_first_process_alone_writes(tmp_path, monkeypatch):
    """Artifact, log and checkpoint come once; a folder in use and a run that is there are one line each."""
    monkeypatch.setattr(tasks, "SIZES", FEW)
    words = ["train", "copy", "--out", tmp_path / "run"]
    assert call_all([*words, "--steps", 3], tmp_path) == ([0, 0], [])
    codes, lines = call_all(words, tmp_path)
    assert codes == [1, 1]
    assert len(lines) == 1
    assert "holds a run already" in lines[0]
    with pytest.raises(CheckpointError, match="processes is 2 there and 1 here"):
        experiments.start(TINY_COPY, tmp_path / "run", resume=True)
    assert call_all([*words, "--resume"], tmp_path) == ([0, 0], [])
    steps = [
        json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert steps == [*range(1, 10), 9, *range(10, 19), 18]
    provenance = json.loads((tmp_path / "run" / "artifact" / "provenance.json").read_text())
    assert provenance["processes"] == 2
    with running.alone(tmp_path / "run"):
        codes, lines = call_all([*words, "--resume"], tmp_path)
    assert codes == [1, 1]
    assert len(lines) == 1
    assert "another process trains in" in lines[0]


def test_wrong_usage_is_said_once_a_machine(tmp_path):
    codes, lines = call_all(["train", "copy", "--device", "cpu", "--nothing"], tmp_path)
    assert codes == [2, 2]
    assert len(lines) == 1


WORKER = """
import os, sys, time
from pathlib import Path
from attention_on_edges import experiments
from attention_on_edges.commands import app as cli
from attention_on_edges.data import tasks
from edgewise.training import Trainer
from workshop import FEW, TINY_COPY
experiments.EXPERIMENTS["copy"], tasks.SIZES = TINY_COPY, FEW
Path(sys.argv.pop(), os.environ["RANK"]).write_text(str(os.getpid()))
log = Trainer._log
Trainer._log = lambda run, **facts: (log(run, **facts), time.sleep(0.2))
cli.app()
"""


@pytest.mark.nightly
def test_a_process_that_is_killed_ends_the_job_and_the_run_goes_on(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "pids").mkdir()
    words = ["train", "copy", "--out", str(tmp_path / "run"), "--resume"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    path = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    job = subprocess.Popen(
        [*torchrun, "--nproc-per-node", "2", str(tmp_path / "worker.py"), *words, str(tmp_path / "pids")],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
    )
    log, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 120
    while not (log.exists() and '"step": 12,' in log.read_text()) and time.monotonic() < deadline:
        assert job.poll() is None, job.stderr.read()
        time.sleep(0.02)
    os.kill(int((tmp_path / "pids" / "1").read_text()), signal.SIGKILL)
    killed = time.monotonic()
    _, errors = job.communicate(timeout=90)
    assert time.monotonic() - killed < 60
    assert job.returncode != 0
    lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, errors
    assert "another process of this run is gone" in lines[0]
    assert call_all(words, tmp_path) == ([0, 0], [])
    assert call_all(["train", "copy", "--out", tmp_path / "whole"], tmp_path) == ([0, 0], [])
    for part in ("metrics.jsonl", "artifact/model.safetensors"):
        assert (tmp_path / "run" / part).read_bytes() == (tmp_path / "whole" / part).read_bytes()


WAITS = "import signal, sys; print(*sys.argv[1:], file=sys.stderr, flush=True); signal.pause()"


def test_a_command_of_the_page_that_takes_too_long_shows_what_it_printed(tmp_path):
    twin = json.loads((ROOT / "book" / "12-beyond-one-machine.ipynb").read_text("utf-8"))
    sources = ["".join(cell["source"]) for cell in twin["cells"]]
    imports, both = (text for text in sources if text.startswith(("# @title Imports", "# @title Run both")))
    for folder in ("edgewise", "torch", "torch/distributed"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "torch" / "distributed" / "run.py").write_text(WAITS)
    exec(imports, names := {})
    names["edgewise"] = SimpleNamespace(__file__=tmp_path / "edgewise" / "__init__.py")
    with pytest.raises(RuntimeError, match=r"timed out .*:\n--standalone --local-addr 127\.0\.0\.1 --nproc"):
        exec(both.replace("280", "2").replace("(1, 2)", "(2,)"), names)


def test_torchruns_signal_counts_as_ctrl_c_in_a_team_only():
    before = signal.getsignal(signal.SIGTERM)
    for size in (1, 2):
        run = SimpleNamespace(communicator=SimpleNamespace(size=size, rank=0), stop_requested=False)
        with running.stopping(run):
            assert (signal.getsignal(signal.SIGTERM) is before) == (size == 1)
            if size == 2:
                os.kill(os.getpid(), signal.SIGTERM)
        assert run.stop_requested == (size == 2)
        assert signal.getsignal(signal.SIGTERM) is before


def test_the_command_line_says_it_once_a_machine(monkeypatch):
    given = {}
    set_role(given, 0, 2, free_port())
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    for local, said in (("0", 1), ("1", 0)):
        monkeypatch.setenv("LOCAL_RANK", local)
        result = CliRunner().invoke(cli.app, ["train", "copy", "--device", "mps"])
        assert result.exit_code == 1
        assert result.stderr.count("\n") == said
