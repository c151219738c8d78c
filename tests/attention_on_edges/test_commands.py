import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from attention_on_edges import experiments
from attention_on_edges.commands import app as cli
from attention_on_edges.commands import running
from attention_on_edges.data import tasks
from edgewise.message_passing import available_engines
from edgewise.training.checkpoint_files import checkpoints
from workshop import FEW, TINY


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.setitem(experiments.EXPERIMENTS, "copy", TINY)
    monkeypatch.setattr(tasks, "SIZES", FEW)


def call(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def one_line(result):
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_train_stops_resumes_and_leaves_an_artifact(tmp_path):
    first = call("train", "copy", "--out", tmp_path, "--steps", 3)
    assert first.exit_code == 0, first.output
    assert f"stopped at step 3; go on with: edgewise train copy --resume --out {tmp_path}" in first.output
    assert not (tmp_path / "artifact").exists()
    second = call("train", "copy", "--out", tmp_path, "--resume")
    assert second.exit_code == 0, second.output
    assert "exact_match" in second.output
    assert (tmp_path / "artifact" / "provenance.json").exists()
    again = call("train", "copy", "--out", tmp_path, "--resume")
    assert again.exit_code == 0, again.output
    scored = call("evaluate", tmp_path / "artifact", "--limit", 20)
    assert scored.exit_code == 0, scored.output
    assert "found" in scored.output
    assert "recorded" in scored.output


def test_the_default_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("train", "copy", "--steps", 1).exit_code == 0
    assert (tmp_path / "runs" / "copy" / "metrics.jsonl").exists()


def test_the_command_to_go_on_with_can_be_pasted(tmp_path):
    folder = tmp_path / "a run"
    first = call("train", "copy", "--device", "cpu:0", "--out", folder, "--steps", 1)
    assert f"edgewise train copy --resume --device cpu:0 --out '{folder}'" in first.output


def test_two_at_once_in_one_folder(tmp_path):
    with running.alone(tmp_path):
        assert "another process trains in" in one_line(call("train", "copy", "--out", tmp_path, "--steps", 1))
    assert call("train", "copy", "--out", tmp_path, "--steps", 1).exit_code == 0


def test_what_goes_wrong_is_one_line(tmp_path):
    assert call("train", "copy", "--out", tmp_path, "--steps", 1).exit_code == 0
    assert "holds a run already" in one_line(call("train", "copy", "--out", tmp_path))
    (path,) = checkpoints(tmp_path / "checkpoints")
    path.write_bytes(path.read_bytes()[:1000])
    assert "is truncated" in one_line(call("train", "copy", "--out", tmp_path, "--resume"))
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert "Not a directory" in one_line(call("train", "copy", "--out", blocked / "run"))
    with pytest.raises(OSError, match="Not a directory"):
        CliRunner().invoke(
            cli.app, ["--traceback", "train", "copy", "--out", str(blocked / "run")], catch_exceptions=False
        )


def test_a_full_disk_is_one_line_and_the_checkpoint_before_is_whole(tmp_path, monkeypatch):
    assert call("train", "copy", "--out", tmp_path, "--steps", 2).exit_code == 0
    sync = os.fsync

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device" in one_line(
        call("train", "copy", "--out", tmp_path, "--resume", "--steps", 3)
    )
    monkeypatch.setattr(os, "fsync", sync)
    assert call("train", "copy", "--out", tmp_path, "--resume", "--steps", 3).exit_code == 0


def test_a_nan_loss_is_one_line(tmp_path, monkeypatch):
    wild = replace(TINY, training=replace(TINY.training, factor=1e30, warmup=1))
    monkeypatch.setitem(experiments.EXPERIMENTS, "copy", wild)
    line = one_line(call("train", "copy", "--out", tmp_path))
    assert "at step" in line
    assert "of epoch 1; there is no checkpoint yet: start again with another configuration" in line


@pytest.mark.parametrize(
    "words",
    [
        ["train", "nothing"],
        ["train", "copy", "--device", "gpu"],
        ["train", "copy", "--device", "cpu:first"],
        ["train", "copy", "--device", "cuda:99"],
        ["train", "copy", "--steps", "0"],
        ["train"],
        ["evaluate", "copy", "--limit", "0"],
        ["bench", "engines", "nothing"],
        ["train", "copy", "--nothing"],
        ["dance"],
    ],
)
def test_wrong_usage_is_one_line(words):
    result = call(*words)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert result.stderr.endswith(" --help\n")
    assert not result.stdout


@pytest.mark.parametrize("words", [[], ["bench"]])
def test_no_command_at_all_is_a_question(words):
    result = call(*words)
    assert result.exit_code == 2
    assert "Usage" in result.output
    assert "error" not in result.stderr


def test_what_takes_long_is_said_before_it_is_done(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEWISE_CACHE", str(tmp_path / "cache"))
    words = ["train", "wmt14", "--small", "--steps", 1, "--out"]
    first, second = (call(*words, tmp_path / name) for name in ("one", "two"))
    assert [line.split()[0] for line in first.stderr.splitlines()] == ["learning", "splitting"]
    assert str(tmp_path / "cache") in first.stderr
    assert second.exit_code == 0
    assert second.stderr == ""


def test_info():
    result = call("info")
    assert result.exit_code == 0
    for word in ("edgewise", torch.__version__, "cpu", *available_engines(), "artifacts"):
        assert word in result.output


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    command = [sys.executable, "-m", "attention_on_edges", "train", "sort", "--out", str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    log = tmp_path / "metrics.jsonl"
    deadline = time.monotonic() + 300
    while not (log.exists() and log.stat().st_size):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "go on with: edgewise train sort --resume --out" in errors
    (path,) = checkpoints(tmp_path / "checkpoints")
    assert f"stopped at step {int(path.stem.split('-')[1])};" in errors
