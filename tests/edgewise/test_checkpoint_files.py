import errno
import json
import os
from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from edgewise.training import checkpoint_files as module
from edgewise.training.checkpoint_files import (
    CheckpointError,
    checkpoints,
    load_checkpoint,
    save_checkpoint,
    write_atomically,
)

CONFIG = {"size": {"N": 2, "h": 4}, "seed": 0}

NAMES = ["tensor", "mapping", "1", "a/b", "a", "b", "state", ""]
"""Keys that have met others, or marks of the format, in one format or another."""

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**127), 2**127),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.sampled_from(["tensor", "mapping", "<tensor>", "state/0", "\ud800"]),
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]).map(
        lambda dtype: torch.arange(4).to(dtype)
    ),
    st.just(torch.zeros(0, 3)),
    st.just(torch.tensor(2.5)),
)
trees = st.recursive(
    leaves,
    lambda t: (
        st.lists(t, max_size=3)
        | st.dictionaries(st.integers(-2, 2) | st.sampled_from(NAMES) | st.text(max_size=3), t, max_size=3)
    ),
    max_leaves=8,
)


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        keys = [[(type(key), key) for key in tree] for tree in (one, other)]
        return keys[0] == keys[1] and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return type(one) is type(other) and one == other


@given(st.dictionaries(st.sampled_from(NAMES) | st.integers(0, 2), trees, max_size=3))
def test_a_tree_comes_back_as_it_was(tmp_path_factory, state):
    folder = tmp_path_factory.mktemp("run")
    assert same(load_checkpoint(save_checkpoint(folder, 3, state, CONFIG), CONFIG), state)


def test_views_and_shared_tensors_are_saved_as_they_look(tmp_path):
    whole = torch.arange(6.0).view(2, 3)
    state = {"a": whole.T, "b": whole, "c": whole[0]}
    assert same(load_checkpoint(save_checkpoint(tmp_path, 0, state, CONFIG), CONFIG), state)


def test_the_newest_and_the_one_before_it_are_kept(tmp_path):
    for step in (5, 10, 100_000):
        save_checkpoint(tmp_path, step, {"step": step}, CONFIG)
    assert [p.name for p in checkpoints(tmp_path)] == [
        "step-00000010.safetensors",
        "step-00100000.safetensors",
    ]
    assert [p.name for p in tmp_path.iterdir() if p not in checkpoints(tmp_path)] == []


class TestBrokenFiles:
    @pytest.fixture
    def folder(self, tmp_path):
        for step in (1, 2):
            save_checkpoint(tmp_path, step, {"x": torch.arange(1000.0) + step}, CONFIG)
        return tmp_path

    def refused(self, folder, what, advice="the one before it, step-00000001.safetensors, is whole"):
        before = {p.name: p.read_bytes() for p in folder.iterdir()}
        with pytest.raises(CheckpointError) as caught:
            load_checkpoint(checkpoints(folder)[-1], CONFIG)
        assert "step-00000002.safetensors" in str(caught.value)
        assert what in str(caught.value)
        assert advice in str(caught.value)
        assert {p.name: p.read_bytes() for p in folder.iterdir()} == before

    @pytest.mark.parametrize("length", [0, 4, 100, -1])
    def test_truncated(self, folder, length):
        path = checkpoints(folder)[-1]
        path.write_bytes(path.read_bytes()[:length])
        self.refused(folder, "is truncated or no safetensors file")

    def test_a_bit_has_flipped(self, folder):
        path = checkpoints(folder)[-1]
        data = bytearray(path.read_bytes())
        data[-7] ^= 1
        path.write_bytes(data)
        self.refused(folder, "is damaged")

    @pytest.mark.parametrize(("format_", "age"), [(1, "older"), (3, "newer")])
    def test_another_format(self, folder, monkeypatch, format_, age):
        monkeypatch.setattr(module, "FORMAT", format_)
        save_checkpoint(folder, 2, {}, CONFIG)
        monkeypatch.undo()
        self.refused(folder, f"has format {format_}, {age} than 2, which this edgewise reads")

    @pytest.mark.parametrize(("old", "new"), [(b'\\"seed\\": 0', b'\\"seed\\": 1'), (b'\\"x\\"', b'\\"y\\"')])
    def test_an_edited_header(self, folder, old, new):
        path = checkpoints(folder)[-1]
        assert path.read_bytes().count(old) == 1
        path.write_bytes(path.read_bytes().replace(old, new))
        self.refused(folder, "is damaged: it is not what was written")

    @pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
    def test_no_regular_file(self, folder, make):
        checkpoints(folder)[-1].unlink()
        make(folder / "step-00000002.safetensors")
        with pytest.raises(CheckpointError, match=r"is no regular file; the one before it"):
            load_checkpoint(checkpoints(folder)[-1], CONFIG)

    def test_another_configuration(self, folder):
        save_checkpoint(folder, 2, {}, CONFIG | {"size": {"N": 2, "h": 8}})
        self.refused(folder, "is of another configuration: size.h is 8 there and 4 here")

    def test_somebody_elses(self, folder):
        save_file({"x": torch.ones(1)}, checkpoints(folder)[-1])
        self.refused(folder, "was not written by edgewise")

    def test_both(self, folder):
        for path in checkpoints(folder):
            path.write_bytes(b"")
        self.refused(folder, "is truncated", "there is no whole checkpoint of this configuration before it")

    def test_none_of_this_configuration(self, folder):
        for step in (1, 2):
            save_checkpoint(folder, step, {}, CONFIG | {"seed": 1})
        self.refused(
            folder, "seed is 1 there and 0 here", "there is no whole checkpoint of this configuration"
        )


def test_what_a_killed_process_left_is_swept_away(tmp_path):
    (tmp_path / ".step-00000001.safetensors.part").write_bytes(b"half")
    path = save_checkpoint(tmp_path, 2, {}, CONFIG)
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_file(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist; there is no whole checkpoint"):
        load_checkpoint(tmp_path / "step-1.safetensors", CONFIG)


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_name_appears_only_after_the_bytes_are_on_the_disk(tmp_path, monkeypatch):
    events = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append("fsync"), sync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append("replace"), replace(a, b)))
    write_atomically(tmp_path / "file", b"x")
    assert events == ["fsync", "replace", "fsync"]


def test_what_json_cannot_hold_is_refused(tmp_path):
    with pytest.raises(TypeError, match="holds tensors and JSON, got set at state/a/0"):
        save_checkpoint(tmp_path, 0, {"a": [set()]}, CONFIG)
    assert checkpoints(tmp_path) == []


@pytest.mark.parametrize("key", [True, 1.0, None, ("a",)])
def test_keys_that_json_would_change_are_refused(tmp_path, key):
    with pytest.raises(TypeError, match=r"keys of a checkpoint are strings or integers, got .* at state/a"):
        save_checkpoint(tmp_path, 0, {"a": {key: 1}}, CONFIG)


def test_tuples_come_back_as_lists(tmp_path):
    path = save_checkpoint(tmp_path, 0, {"a": (1, (2.0, "x"))}, CONFIG)
    assert load_checkpoint(path, CONFIG) == {"a": [1, [2.0, "x"]]}


@given(st.data())
def test_any_change_to_the_bytes_is_refused(tmp_path_factory, data):
    """A byte changed, the end cut off, or two parts swapped: equal content or a refusal."""
    folder = tmp_path_factory.mktemp("run")
    state = {"x": torch.arange(6.0), "steps": {1: 2}}
    path = save_checkpoint(folder, 3, state, CONFIG)
    whole = bytearray(path.read_bytes())
    place = st.integers(0, len(whole) - 1)
    kind = data.draw(st.sampled_from(["flip", "cut", "swap"]))
    if kind == "flip":
        whole[data.draw(place)] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del whole[data.draw(place) :]
    else:
        a, b = sorted([data.draw(place), data.draw(place)])
        whole = whole[b:] + whole[a:b] + whole[:a]
    path.write_bytes(whole)
    with suppress(CheckpointError):
        assert same(load_checkpoint(path, CONFIG), state)


def test_the_header_is_plain_json(tmp_path):
    path = save_checkpoint(tmp_path, 0, {"a": torch.ones(2)}, CONFIG)
    length = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + length])["__metadata__"]
    assert json.loads(header["edgewise"])["config"] == CONFIG
