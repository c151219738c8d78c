"""A campaign of hostile calls: each is refused in one line that says what is wrong, or gives a right result.

Rows of a table are a name, what is done to the files or given to the command, and what the message says.
"""

import codecs
import json
import os
import re
import resource
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from attention_on_edges import experiments
from attention_on_edges.__main__ import main
from attention_on_edges.commands.app import app
from attention_on_edges.commands.translating import MOST_BYTES
from attention_on_edges.data import tasks
from attention_on_edges.data.tokenization import BPE
from attention_on_edges.data.tokenizer_config import TokenizerConfig
from attention_on_edges.experiments import STUDIES, Experiment, ModelConfig, Study, artifacts, run_study
from attention_on_edges.experiments.json_files import sealed
from attention_on_edges.experiments.studies import load_study
from edgewise.decoding import beam_search, greedy
from edgewise.training import TrainingConfig
from edgewise.training.checkpoint_files import checkpoints
from edgewise.validation import InputError
from processes import process
from workshop import FEW, TINY

TEXT = Experiment(
    "tiny",
    "Drawn weights.",
    "captions",
    ModelConfig(N=1, dim_model=16, dim_ff=16, h=2, shared=True),
    TrainingConfig(epochs=1, batch_tokens=500),
    TokenizerConfig(260),
)
FACTS = {"commit": "0" * 40, "changed": False, "date": "2026-01-01", "seed": 0, "seconds": 1.0}
FACTS |= dict.fromkeys(("device", "torch", "python"), "any")
METRICS = {"losses": [1.0], "epochs": [], "test": {"bleu": 1.0}, "search": {"beam": 2, "length_penalty": 1.0}}
LINES = {"tiny": ["a dog runs", "a man sits"], "other": ["two cats sleep", "one cat eats"]}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two artifacts that differ in nothing but weights and pieces; the tokenisers have the same size."""
    folder = tmp_path_factory.mktemp("made")
    for seed, (name, lines) in enumerate(LINES.items()):
        splitter = BPE.train(lines, 260)
        torch.manual_seed(seed)
        model = TEXT.model.build(263)
        weights = artifacts.halved(dict(model.named_parameters()))
        artifacts.write(folder / name, weights, TEXT.config, METRICS, FACTS, splitter.to_json())
    return folder


@pytest.fixture
def folder(made, tmp_path):
    shutil.copytree(made / "tiny", tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.setitem(experiments.EXPERIMENTS, "copy", TINY)
    monkeypatch.setattr(tasks, "SIZES", FEW)
    begun, before = time.process_time(), signal.signal(signal.SIGALRM, hangs)
    signal.alarm(150)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    assert time.process_time() - begun < 30  # ten on a machine like ours


def hangs(number, frame):
    raise TimeoutError("a call did not come back")


def translate(folder):
    """Read all that there is to an artifact."""
    artifact = artifacts.load(folder)
    artifact.figures("test")
    return [found[0].text for found in experiments.load_translator(artifact)(["a dog"], beam=2)]


def reseal(folder):
    """Make provenance fit the files, as a program would that writes artifacts itself."""
    artifacts.seal(folder, json.loads((folder / "provenance.json").read_bytes()))


# What may happen to a file.


def flip(path, other):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path, other):
    os.truncate(path, path.stat().st_size // 2)


def empty(path, other):
    path.write_bytes(b"")


def remove(path, other):
    path.unlink()


def swap(path, other):
    shutil.copy(other / path.name, path)


def make_fifo(path, other):
    path.unlink()
    os.mkfifo(path)


def make_folder(path, other):
    path.unlink()
    path.mkdir()


DAMAGES = [flip, cut, empty, remove, swap, make_fifo, make_folder]
FILES = ["config.json", "metrics.json", "model.safetensors", "tokenizer.json", "provenance.json"]
SAME = {(swap, "config.json"), (swap, "metrics.json")}  # the two models differ in neither


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_file_of_a_model_is_refused_by_name(damage, file, folder, made):
    damage(folder / file, made / "other")
    if (damage, file) in SAME:
        assert translate(folder) == translate(made / "tiny")
        return
    with pytest.raises(InputError) as caught:
        translate(folder)
    named = file if (damage, file) != (swap, "provenance.json") else "is damaged, or another model's"
    assert named in str(caught.value)


def edit(*path, value=None, drop=False):
    """Set, or drop, what lies at a path in a JSON file."""

    def edited(file):
        facts = found = json.loads(file.read_bytes())
        for key in path[:-1]:
            found = found[key]
        if drop:
            del found[path[-1]]
        else:
            found[path[-1]] = value
        file.write_text(json.dumps(facts))

    return edited


def write(data):
    return lambda file: file.write_bytes(data)


def tensors(change):
    return lambda file: file.write_bytes(safetensors.torch.save(change(safetensors.torch.load_file(file))))


def first(value):
    """Put a number into the weights."""

    def put(weights):
        name = sorted(weights)[0]
        weights[name].view(-1)[0] = value
        return weights

    return put


WEIGHT = "encoder.norm.weight"
CONFIGS = [
    *((write(data), "config.json") for data in (b"", b"{", b"[]", b"null", b'"x"', b"3", b"\xff", b"{} {}")),
    (write(b"{}"), "missing required field `name`"),
    *(
        (edit(field, drop=True), f"missing required field `{field}`")
        for field in ("name", "about", "task", "model", "training", "tests")
    ),
    (edit("name", value=3), r"Expected `str`, got `int` - at `\$.name`"),
    (edit("more", value=3), "there is no field 'more'"),
    (edit("model", value=[]), r"Expected `object`, got `array` - at `\$.model`"),
    (edit("model", "more", value=3), "model: there is no field 'more'; there are N, dim_ff"),
    (edit("model", "N", value="2"), r"Expected `int`, got `str` - at `\$.N`"),
    (edit("model", "N", value=2.5), r"Expected `int`, got `float` - at `\$.N`"),
    (edit("model", "N", value=True), r"Expected `int`, got `bool` - at `\$.N`"),
    (edit("model", "N", value=None), r"Expected `int`, got `null` - at `\$.N`"),
    (edit("model", "N", value=0), "N must be at least 1, got 0"),
    (edit("model", "N", value=-1), "N must be at least 1, got -1"),
    (edit("model", "N", value=100_000), "N must be at most 1000 layers, got 100000"),
    (edit("model", "N", value=2), "weights must be those of the model"),
    (edit("model", "h", value=3), "model: .*divisible"),
    (edit("model", "h", value=0), "model: h must be at least 1"),
    (edit("model", "dim_model", value=10**9), "config.json, model: "),
    (edit("model", "dim_ff", value=-1), "model: dim_ff must be"),
    (edit("model", "dropout", value=2), "model: dropout must lie in"),
    (edit("model", "shared", value="yes"), r"Expected `bool`, got `str` - at `\$.shared`"),
    (edit("model", "max_steps", value=3), "model: there is no field 'N'"),
    (edit("training", "epochs", value="x"), r"training: Expected `int`, got `str` - at `\$.epochs`"),
    (edit("training", "epochs", value=0), "training: epochs must be at least 1"),
    (edit("training", "betas", value=[0.9]), "training: .*length 2"),
    (edit("training", "more", value=1), "training: there is no field 'more'"),
    (edit("tokenizer", value=[]), r"Expected `object \| null`, got `array` - at `\$.tokenizer`"),
    (edit("tokenizer", value=None), "tiny is not a model of text"),
    (edit("tokenizer", "vocab_size", value=3), "tokenizer: vocab_size must be at least 256, got 3"),
    (edit("tests", value="test"), r"Expected `array`, got `str` - at `\$.tests`"),
]
OTHERS = [
    ("metrics.json", write(b"[]"), "must hold a JSON object"),
    ("metrics.json", edit("test", drop=True), "metrics.json, test: Expected `object`, got `null`"),
    ("metrics.json", edit("test", "bleu", value="high"), r"Expected `float`, got `str` - at `\$\[...\]`"),
    ("metrics.json", edit("search", "beam", value="2"), r"search: Expected `int`, got `str` - at `\$.beam`"),
    ("metrics.json", edit("search", "width", value=2), "search: there is no field 'width'"),
    ("tokenizer.json", write(b""), "holds no tokenizer"),
    ("tokenizer.json", write(b"{}"), "holds no tokenizer"),
    ("tokenizer.json", write(b"\xff"), "holds no tokenizer"),
    (
        "tokenizer.json",
        write(BPE.train(["a b"], 259).to_json().encode()),
        "weights must be those of the model",
    ),
    ("model.safetensors", write(b""), "is no safetensors file"),
    ("model.safetensors", tensors(first(float("nan"))), "decoder.layers.* holds NaN or infinities"),
    ("model.safetensors", tensors(first(float("inf"))), "holds NaN or infinities"),
    (
        "model.safetensors",
        tensors(lambda w: {n: x for n, x in w.items() if n != WEIGHT}),
        f"not alike: .*{WEIGHT}",
    ),
    ("model.safetensors", tensors(lambda w: w | {"more": w[WEIGHT].clone()}), "not alike: .*more"),
    ("model.safetensors", tensors(lambda w: w | {WEIGHT: torch.ones(1)}), f"not alike: .*{WEIGHT}"),
]


@pytest.mark.parametrize(
    ("file", "change", "message"), [*(("config.json", *row) for row in CONFIGS), *OTHERS]
)
def test_files_that_belong_together_have_to_make_sense_too(file, change, message, folder):
    change(folder / file)
    reseal(folder)
    with pytest.raises(InputError, match=message) as caught:
        translate(folder)
    assert file in str(caught.value) or "weights" in str(caught.value) or "tiny" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (write(b"[]"), "must hold a JSON object, got"),
        (write(b"{}"), "missing required field"),
        (
            lambda file: os.truncate(file, 1 << 40),
            "has 1,099,511,627,776 bytes, more than",
        ),
        (edit("commit", drop=True), "missing required field `commit`"),
        (edit("seconds", value="long"), r"Expected `float`, got `str` - at `\$.seconds`"),
        (edit("seconds", value=2.0), "was changed after it was written"),
        (edit("more", value=1), "was changed after it was written"),
        (edit("digest", drop=True), "was changed after it was written"),
        (edit("files", drop=True), "was changed after it was written"),
    ],
)
def test_an_edited_provenance(change, message, folder):
    change(folder / "provenance.json")
    with pytest.raises(InputError, match=message):
        translate(folder)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"../x": "0"}, r"\.\./x.* missing or unknown"),
        ({"config.json": 3}, "Expected `str`, got `int`"),
        ({}, "config.json.* missing or unknown"),
    ],
)
def test_provenance_names_the_files_of_a_model_and_no_others(files, message, folder):
    path = folder / "provenance.json"
    facts = json.loads(path.read_bytes())
    files = files and facts["files"] | files
    path.write_text(json.dumps(sealed({k: v for k, v in facts.items() if k != "digest"} | {"files": files})))
    with pytest.raises(InputError, match=message):
        translate(folder)


@given(st.data())
def test_any_change_to_a_models_bytes_is_refused(made, tmp_path_factory, data):
    """Bytes flipped, cut off or swapped in any file: the same translations, or a refusal."""
    folder = tmp_path_factory.mktemp("changed") / "tiny"
    shutil.copytree(made / "tiny", folder)
    path = folder / data.draw(st.sampled_from(FILES))
    whole = bytearray(path.read_bytes())
    a, b = sorted(data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=2, max_size=2)))
    kind = data.draw(st.sampled_from(["flip", "cut", "swap"]))
    if kind == "flip":
        whole[a] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del whole[a:]
    else:
        whole = whole[b:] + whole[a:b] + whole[:a]
    path.write_bytes(whole)
    with suppress(InputError):
        assert translate(folder) == translate(made / "tiny")


# Studies: their lines while they run, their file when they are done.


STUDY = Study("s", "Why?", (TINY,))
LINE = {"config": TINY.config, "row": {"variant": "copy", "seed": 0, "loss": 1.0}, "stage": FACTS}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"nonsense\n", r"s\.jsonl, line 1 is damaged: Expecting value"),
        (b"[]\n", "line 1 must hold a JSON object"),
        (b"{}\n", "line 1: .*missing required field `config`"),
        (b"[" * 200_000 + b"\n", "line 1 is damaged"),
        (
            json.dumps(LINE | {"row": {"variant": "copy", "seed": 1}}).encode() + b"\n",
            "another version of this",
        ),
        (
            json.dumps(LINE | {"row": 1}).encode() + b"\n",
            r"line 1: Expected `object`, got `int` - at `\$.row`",
        ),
        (json.dumps(LINE | {"config": {}}).encode() + b"\n", "another version of this study"),
        (b"\xff\n", "line 1 is damaged"),
    ],
)
def test_lines_of_a_study(data, message, tmp_path):
    (tmp_path / "s.jsonl").write_bytes(data)
    with pytest.raises(InputError, match=message):
        run_study(STUDY, tmp_path)
    assert (tmp_path / "s.jsonl").read_bytes() == data


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_lines_of_a_study_are_in_a_file(make, tmp_path):
    make(tmp_path / "s.jsonl")
    with pytest.raises(InputError, match="no regular file"):
        run_study(STUDY, tmp_path)


def test_a_study_goes_on_after_a_line_that_was_cut_off(tmp_path):
    line = json.dumps(LINE).encode()
    (tmp_path / "s.jsonl").write_bytes(line + b"\n" + line[:50])
    study = Study("s", "Why?", (TINY, TINY))
    with pytest.warns(UserWarning, match="its run is made again"):
        assert run_study(study, tmp_path, limit=0) == 1
    assert (tmp_path / "s.jsonl").read_bytes() == line + b"\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (write(b""), "is damaged"),
        (write(b"[]"), "must hold a JSON object"),
        (write(b"{}"), "was changed after it was written"),
        (edit("rows", 0, "loss", value=0.0), "was changed after it was written"),
        (edit("digest", drop=True), "was changed after it was written"),
    ],
)
def test_the_file_of_a_study(change, message, tmp_path, monkeypatch):
    monkeypatch.setattr(artifacts, "artifacts_folder", lambda: tmp_path / "artifacts")
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "s.jsonl").write_text(json.dumps(LINE) + "\n")
    run_study(STUDY, tmp_path / "studies")
    assert load_study("s").rows == [LINE["row"]]
    change(tmp_path / "studies" / "s.json")
    with pytest.raises(InputError, match=message):
        load_study("s")


# The command line: words, exit code, what standard error says.


def call(*words, given=None):
    return CliRunner().invoke(app, [str(word) for word in words], input=given)


def one_line(result, code, message):
    assert result.exit_code == code, (result.output, result.exception)
    assert isinstance(result.exception, SystemExit)
    assert re.fullmatch(rf"error: .*{message}.*\n", result.stderr), result.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["evaluate", "nothing"], 2, "no artifact 'nothing'; there are: copy"),
        (["evaluate", ""], 2, "no artifact ''"),
        (["evaluate", "./nothing"], 2, "there is no folder ./nothing"),
        (["evaluate", "copy", "--limit", "0"], 2, "limit"),
        (["translate", "x", "--model", "nothing"], 2, "no artifact 'nothing'"),
        (["translate", "x", "--model", "copy"], 1, "copy is not a model of text"),
        (["translate", "x", "--model", ".."], 2, "no artifact '..'"),
        (["translate", "x", "--beam", "0"], 2, "beam"),
        (["translate", "x", "--beam", "99999"], 2, "64"),
        (["translate", "x", "--nbest", "9"], 2, r"--nbest must be at most --beam \(5\), got 9"),
        (["study", "nothing"], 2, "study must be one of .*'golf-multi30k'; got 'nothing'"),
        (["study", "../../x"], 2, "study must be one of"),
        (["study", "heads", "--runs", "0"], 2, "runs"),
        (["bench", "nothing"], 2, "subject must be one of 'engines'"),
        (["bench", "engines", "--only", "nothing"], 2, "nothing is called 'nothing'; there are 128 x 10"),
        (["bench", "pyg", "--small", "--contestant", "nothing"], 2, "there are TransformerConv"),
        (["train", "nothing"], 2, "experiment must be one of"),
        (["train", "copy", "--device", "tpu"], 2, "'tpu' is not available"),
    ],
)
def test_words(words, code, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call(*words)
    errors = result.stderr.splitlines(keepends=True)
    assert all(line.startswith("measuring") for line in errors[:-1])
    result.stderr_bytes = errors[-1].encode()
    one_line(result, code, message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "lines", "messages"),
    [
        (b"", 0, []),
        (b"a dog\na man\n", 2, []),
        (b"a dog\r\na man", 2, []),
        (b"\xef\xbb\xbfa dog\n", 1, []),
        ("\u05e9\u05dc\u05d5\u05dd 🚲\n\u0000 字\n".encode(), 2, []),
        (b"a dog\n\na man\n", 3, ["text 2 must not be empty"]),
        (b" \t\n", 1, ["text 1 must not be empty"]),
        (b"a dog\na \xff man\na man\n", 3, ["text 2 is not UTF-8"]),
        (b"a dog\n" + b"x y " * 1000 + b"\na man\n", 3, ["text 2 must have at most 250 pieces, got"]),
        (b"a dog\n" + b"x" * (3 * MOST_BYTES) + b"\na man\n", 3, ["text 2 must have at most 100,000 bytes"]),
        (b"x" * (MOST_BYTES + 1), 1, ["text 1 must have at most 100,000 bytes"]),
        (b"\n" * 3, 3, [f"text {n} must not be empty" for n in (1, 2, 3)]),
    ],
)
def test_lines_of_input(given, lines, messages, folder):
    """A line out for each line in, in order; for one that cannot be translated an empty one, and an error."""
    result = call("translate", "--model", folder, "--beam", 1, given=given)
    assert result.exit_code == (1 if messages else 0), result.output
    out = result.stdout.split("\n")[:-1]
    assert len(out) == lines
    errors = result.stderr.splitlines()
    assert len(errors) == len(messages)
    for error, message in zip(errors, messages, strict=True):
        assert error.startswith(f"error: {message}")
        assert out[int(message.split()[1]) - 1] == ""
    if messages and given.startswith(b"a dog"):
        whole = call("translate", "a dog", "a man", "--model", folder, "--beam", 1)
        assert [out[0], out[2]] == whole.stdout.splitlines()


def test_a_byte_order_mark_changes_nothing(folder):
    plain, marked = (
        call("translate", "--model", folder, given=mark + b"a dog\n").stdout
        for mark in (b"", codecs.BOM_UTF8)
    )
    assert plain == marked


def test_arguments_that_are_no_text(folder):
    result = call("translate", "", "a dog", "A \udcff man.", "x y " * 1000, "--model", folder)
    assert result.exit_code == 1
    assert [line.split(" must")[0] for line in result.stderr.splitlines()] == [
        "error: text 1",
        "error: text 3",
        "error: text 4",
    ]
    assert result.stdout.count("\n") == 4


def test_a_folder_does_not_shadow_a_model(folder, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(artifacts, "artifacts_folder", lambda: made)
    shutil.rmtree("tiny")
    Path("tiny").mkdir()
    assert artifacts.load("tiny").folder == made / "tiny"
    with pytest.raises(InputError, match=r"tiny/provenance\.json does not exist"):
        artifacts.load("./tiny")
    shutil.copytree(made / "tiny", "mine")
    with pytest.raises(InputError, match=r"no artifact 'mine'; there are: other, tiny; \./mine would be"):
        artifacts.load("mine")
    assert artifacts.load("./mine").name == artifacts.load(Path("mine")).name == "tiny"


def test_a_run_in_a_folder_of_its_own_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call("train", "copy", "--out", "copy")
    assert result.exit_code == 0, result.output
    assert call("evaluate", "copy/artifact", "--limit", 3).exit_code == 0


@pytest.mark.parametrize(
    ("error", "shown"),
    [(InputError("wrong"), "error: wrong\n"), (ValueError("a fault"), None), (KeyError("x"), None)],
)
def test_a_fault_inside_the_program_keeps_its_traceback(error, shown, monkeypatch, folder):
    def fail(*given):
        raise error

    monkeypatch.setattr(artifacts, "find", fail)
    result = call("translate", "x", "--model", folder)
    assert result.exit_code == 1
    assert result.stderr == (shown or "")
    assert (result.exception is error) == (shown is None)


# Runs and their files.


@pytest.fixture
def begun(tmp_path):
    assert call("train", "copy", "--out", tmp_path / "run", "--steps", 3).exit_code == 0
    return tmp_path / "run"


def header_of(path, old, new):
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (
            lambda run: header_of(newest(run), b'batches_done\\", 3', b'batches_done\\", 2'),
            1,
            "is damaged",
        ),
        (lambda run: flip(newest(run), None), 1, "step-00000003.safetensors is (damaged|truncated)"),
        (lambda run: cut(newest(run), None), 1, "is truncated or no safetensors file"),
        (lambda run: empty(newest(run), None), 1, "is truncated or no safetensors file"),
        (lambda run: make_fifo(newest(run), None), 1, "is no regular file"),
        (lambda run: make_folder(newest(run), None), 1, "is no regular file"),
        (lambda run: make_fifo(run / "metrics.jsonl", None), 1, "metrics.jsonl is no regular file"),
        (lambda run: make_folder(run / "metrics.jsonl", None), 1, "metrics.jsonl is no regular file"),
    ],
)
def test_files_of_a_run(change, code, message, begun):
    change(begun)
    one_line(call("train", "copy", "--out", begun, "--resume"), code, message)


def newest(run):
    return checkpoints(run / "checkpoints")[-1]


def test_checkpoints_are_known_by_their_names(begun):
    """Copies under other names are left alone, and one in another's place is refused."""
    folder = begun / "checkpoints"
    shutil.copy(newest(begun), folder / "step-best.safetensors")
    shutil.copy(newest(begun), folder / "step-00000003.bak.safetensors")
    for steps in (4, 5):
        words = ["train", "copy", "--out", begun, "--resume", "--steps", steps]
        assert f"stopped at step {steps}" in call(*words).output
    assert sorted(path.name for path in folder.iterdir()) == [
        "step-00000003.bak.safetensors",
        "step-00000004.safetensors",
        "step-00000005.safetensors",
        "step-best.safetensors",
    ]
    shutil.copy(newest(begun), folder / "step-00000099.safetensors")
    one_line(call("train", "copy", "--out", begun, "--resume"), 1, "was renamed: it was written after step 5")


def test_a_folder_with_a_log_or_a_model_holds_a_run(begun):
    shutil.rmtree(begun / "checkpoints")
    before = (begun / "metrics.jsonl").read_bytes()
    one_line(call("train", "copy", "--out", begun), 1, "holds a run already; go on with --resume")
    (begun / "metrics.jsonl").rename(begun / "kept")
    (begun / "artifact").mkdir()
    one_line(call("train", "copy", "--out", begun), 1, "holds a finished run; name another folder")
    assert (begun / "kept").read_bytes() == before
    (begun / "artifact").rmdir()
    (begun / "kept").rename(begun / "metrics.jsonl")
    with pytest.warns(UserWarning, match="a log but no checkpoint: the run begins anew"):
        assert call("train", "copy", "--out", begun, "--resume", "--steps", 1).exit_code == 0


def test_a_model_is_not_written_over_something_else(folder, tmp_path):
    artifact = artifacts.load(folder)
    parts = artifacts.halved(artifact.weights), artifact.config, artifact.metrics
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(folder)
    for place in ("file", "link"):
        with pytest.raises(InputError, match="is no folder of a model; move it away"):
            artifacts.write(tmp_path / place, *parts, FACTS)
    with pytest.raises(InputError, match="missing required field"):
        artifacts.write(folder, *parts, {})
    assert artifacts.load(folder).provenance == artifact.provenance


def test_a_model_in_anothers_place(made, tmp_path, monkeypatch):
    monkeypatch.setattr(artifacts, "artifacts_folder", lambda: tmp_path)
    shutil.copytree(made / "tiny", tmp_path / "multi30k")
    with pytest.raises(InputError, match="multi30k holds another model: its name is 'tiny'"):
        artifacts.load("multi30k")


def test_the_name_of_a_folder_is_text(tmp_path):
    one_line(call("train", "copy", "--out", f"{tmp_path}/b\udcff"), 1, "the name of a folder must be Unicode")


@pytest.mark.parametrize("decode", [greedy, beam_search])
def test_weights_that_are_not_numbers_decode_to_nothing(decode):
    model = TINY.build(29).eval()
    model.encoder.norm.weight.data[0] = float("nan")
    with pytest.raises(ValueError, match="probabilities are not numbers"):
        decode(model, [[5, 6]], 0, 1)


def test_a_lock_that_is_a_fifo(tmp_path):
    os.mkfifo(tmp_path / ".lock")
    assert call("train", "copy", "--out", tmp_path, "--steps", 1).exit_code == 0


def test_a_log_that_was_cut_off_merges_no_lines(begun):
    log = begun / "metrics.jsonl"
    os.truncate(log, log.stat().st_size - 20)
    with pytest.warns(UserWarning, match=r"metrics\.jsonl lacks the last [0-9]+ bytes"):
        result = call("train", "copy", "--out", begun, "--resume", "--steps", 4)
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["step"] for line in log.read_text().splitlines()] == [1, 2, 4]


# In processes of their own: what the system does to streams and disks.


def run(folder, words, prepare=None):
    """The command line in this process, errors in a file."""
    with open(folder / "errors", "w") as errors, open(folder / "output", "w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(errors.fileno(), 2)
    experiments.EXPERIMENTS["copy"], tasks.SIZES = TINY, FEW
    torch.set_num_threads(1)
    sys.stdout = os.fdopen(os.dup(1), "w")
    sys.stdin = None
    if prepare:
        prepare()
    sys.argv = ["edgewise", *map(str, words)]
    try:
        main()
    except SystemExit as end:
        os._exit(end.code)


def in_process(folder, words, prepare=None):
    """Exit code, output and errors of a command line in a process of its own."""
    child = process(run, folder, words, prepare)
    child.start()
    child.join(120)
    assert child.exitcode is not None
    return child.exitcode, (folder / "output").read_text(), (folder / "errors").read_text()


def close_output():
    os.close(1)
    sys.stdout = None


def fill_output():
    sys.stdout = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w")


def nobody_reads():
    read, written = os.pipe()
    os.close(read)
    sys.stdout = os.fdopen(written, "w")


def no_input():
    sys.stdin = None


def slow_input():
    """Lines that come when the reader already waits, at an end that does not wait for them."""
    read, written = os.pipe()
    os.set_blocking(read, False)
    if os.fork() == 0:
        for _ in range(3):
            time.sleep(0.2)
            os.write(written, b"a dog\n")
        os._exit(0)
    os.close(written)
    sys.stdin = os.fdopen(read)


def small_files():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


def tiny_files():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))


def endless_input():
    read, written = os.pipe()
    if os.fork() == 0:
        with suppress(BrokenPipeError), open(written, "wb") as stream:
            for _ in range(100_000):
                stream.write(b"a dog\n" * 100)
        os._exit(0)
    os.close(written)
    sys.stdin = os.fdopen(read)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, 3_000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


@pytest.mark.parametrize(
    ("words", "prepare", "code", "message"),
    [
        (["info"], close_output, 2, "error: standard output is closed\n"),
        (["info"], fill_output, 1, "error: .*No space left on device: 'standard output'\n"),
        (["translate"], no_input, 1, "error: standard input is closed: give a text, or lines of input\n"),
        (["translate"], slow_input, 0, ""),
        (["translate", "a dog"], close_output, 2, "error: standard output is closed\n"),
        (["translate", "a dog"], fill_output, 1, "error: .*No space left on device: 'standard output'\n"),
        (["translate", "a dog"], nobody_reads, 1, ""),
        (["translate"], endless_input, 1, "error: .*File too large: 'standard output'\n"),
        (["train", "copy", "--out", "{}/run"], small_files, 1, r"error: .*File too large: '.*safetensors'\n"),
        (
            ["train", "copy", "--out", "{}/run"],
            tiny_files,
            1,
            r"error: .*File too large: '.*metrics\.jsonl'\n",
        ),
    ],
)
def test_streams_and_disks(words, prepare, code, message, tmp_path, folder):
    words = [word.format(tmp_path) for word in words]
    words += ["--model", folder, "--beam", 1] if words[0] == "translate" else []
    found, output, errors = in_process(tmp_path, words, prepare)
    assert found == code, errors
    assert re.fullmatch(message, errors), errors
    if prepare is slow_input:
        assert output.count("\n") == 3
    if prepare is endless_input:
        assert 0 < output.count("\n") < 3_000


def test_a_study_whose_first_line_met_a_full_disk_goes_on(tmp_path, monkeypatch):
    (tmp_path / "s.jsonl").write_bytes(b'{"config": {"na')
    monkeypatch.setitem(STUDIES, "s", STUDY)
    with pytest.warns(UserWarning, match="is not whole"):
        assert call("study", "s", "--out", tmp_path).exit_code == 0
    assert json.loads((tmp_path / "s.json").read_bytes())["rows"][0]["variant"] == "copy"
