import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from attention_on_edges import runs, studies
from attention_on_edges.cli import app as cli
from attention_on_edges.cli.one_line_errors import one_line_errors
from attention_on_edges.corpora.text import check_alphabet
from attention_on_edges.corpora.tokenization import BPE
from attention_on_edges.corpora.tokenizer_config import TokenizerConfig
from attention_on_edges.runs import artifacts
from attention_on_edges.runs.study_results import Study
from attention_on_edges.training.checkpoint_files import checkpoints
from book_support import TINY
from edgewise.propagation import ENGINES
from edgewise.validation import InputError


@pytest.fixture(autouse=True)
def tiny(monkeypatch, few):
    monkeypatch.setitem(runs.EXPERIMENTS, "copy", TINY)


def call(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def one_line(result):
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_train_stops_resumes_and_leaves_an_artifact(tmp_path):
    words = ["train", "copy", "--out", tmp_path]
    first = call(*words, "--steps", 3)
    assert first.exit_code == 0, first.output
    assert "stopped at step 3; go on with the same command and --resume" in first.output
    assert "holds a run already" in one_line(call(*words))
    second = call(*words, "--resume")
    assert second.exit_code == 0, second.output
    assert "exact_match" in second.output
    assert (tmp_path / "artifact" / "provenance.json").exists()
    assert call(*words, "--resume").exit_code == 0
    scored = call("evaluate", tmp_path / "artifact")
    assert scored.exit_code == 0, scored.output
    for line, word in zip(scored.output.splitlines()[1:3], ("found", "recorded"), strict=True):
        assert f"test, {word}" in line
        assert re.findall(r"[a-z]+_[a-z]+", line) == ["exact_match", "token_accuracy"]


def test_a_study_writes_its_figures(tmp_path, monkeypatch):
    monkeypatch.setitem(studies.STUDIES, "s", Study("s", "Why?", (TINY,)))
    assert call("study", "s", "--out", tmp_path).output == f"{tmp_path / 's.json'}\n"


FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("error", "said"), [(InputError("x"), "error: x\n"), (FULL, f"error: {FULL}\n"), (ValueError("x"), "")]
)
def test_a_fault_inside_the_program_keeps_its_traceback(error, said, monkeypatch):
    def fail(*given):
        raise error

    monkeypatch.setattr(artifacts, "find", fail)
    result = call("evaluate", "copy")
    assert result.exit_code == 1
    assert result.stderr == said
    assert (result.exception is error) == (not said)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "nothing"], "experiment must be one of"),
        (["train", "copy", "--device", "cpu:"], "is not available; this machine has cpu"),
        (["train", "copy", "--device", "cpu:first"], "is not available; this machine has cpu"),
        (["train", "copy", "--device", "cuda:99"], "is not available; this machine has cpu"),
        (["bench", "engines", "--only", "nothing"], "nothing is called 'nothing'; there are 128 x 10"),
        (["bench", "nothing"], "subject must be one of"),
        (["evaluate", "nothing"], "no artifact 'nothing'; there are: copy"),
        (["evaluate", "./nothing"], "there is no folder ./nothing"),
        (["study", "../x"], "study must be one of"),
    ],
)
def test_a_name_of_nothing_is_told_and_exit_code_2(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call(*words)
    assert result.exit_code == 2
    assert message in result.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    """A model of text with drawn weights."""
    experiment = replace(TINY, task="captions", tokenizer=TokenizerConfig(260))
    torch.manual_seed(0)
    weights = artifacts.halved(dict(experiment.model.build(263).named_parameters()))
    facts = {"commit": "", "seed": 0, "seconds": 1.0} | dict.fromkeys(("date", "device", "torch"), "any")
    folder, tokenizer = tmp_path_factory.mktemp("made") / "text", BPE.train(["a dog runs"], 260).to_json()
    artifacts.write(folder, weights, experiment.config, {"losses": [1.0]}, facts, tokenizer)
    return folder


@pytest.mark.parametrize(
    ("given", "lines", "messages"),
    [
        (b"a dog\r\na man", 2, []),
        (b"a dog\n\na man\n", 3, ["text 2 must not be empty"]),
        (b"a dog\na \xff man\na man\n", 3, ["text 2 is not UTF-8"]),
        (b"x" * 300_000 + b"\n\na man", 3, ["text 1 must have at most", "text 2 must not be empty"]),
    ],
)
def test_a_line_out_for_each_line_in(given, lines, messages, translator):
    """In order; for one that cannot be translated an empty one, and an error."""
    words = ["translate", "--model", str(translator), "--beam", "1"]
    result = CliRunner().invoke(cli.app, words, input=given)
    assert result.exit_code == (1 if messages else 0), result.output
    out = result.stdout.split("\n")[:-1]
    assert len(out) == lines
    errors = result.stderr.splitlines()
    assert len(errors) == len(messages)
    for error, message in zip(errors, messages, strict=True):
        assert error.startswith(f"error: {message}")
        assert out[int(message.split()[1]) - 1] == ""
    if given.startswith(b"a dog") and messages:
        whole = CliRunner().invoke(cli.app, [*words, "a dog", "a man"])
        assert [out[0], out[2], ""] == whole.stdout.split("\n")


def test_a_terminal_of_another_encoding_loses_no_line(translator):
    words = ["translate", "--model", str(translator), "--beam", "1"]
    result = CliRunner(charset="latin-1").invoke(cli.app, words, input="\u5b57\na dog\n".encode())
    assert result.exit_code == 1
    assert "\\u5b57" in result.stderr
    assert [bool(line) for line in result.stdout.split("\n")] == [False, True, False]


def test_what_no_corpus_has_is_refused_and_a_file_that_ends_early_is_a_fault():
    for text in ("שלום", "😀", "a 狗"):
        with pytest.raises(InputError, match="text has signs that the translator never saw"):
            check_alphabet(text)
    check_alphabet("Ça coûte 20 €, à 30 °C… naïve!")
    with pytest.raises(RuntimeError, match="a file ends too early"), one_line_errors():
        raise EOFError


def test_info():
    result = call("info")
    assert result.exit_code == 0
    for word in ("edgewise", torch.__version__, "cpu", *ENGINES, "artifacts"):
        assert word in result.output


def test_a_run_that_is_asked_to_stop_saves_and_says_how_to_go_on(tmp_path):
    command = [sys.executable, "-m", "attention_on_edges", "train", "sort", "--out", str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    log = tmp_path / "metrics.jsonl"
    deadline = time.monotonic() + 300
    while not (log.exists() and log.stat().st_size):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "go on with the same command and --resume" in errors
    (path,) = checkpoints(tmp_path / "checkpoints")
    assert f"stopped at step {int(path.stem.split('-')[1])};" in errors
