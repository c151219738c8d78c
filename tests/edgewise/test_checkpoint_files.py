import errno
import json
import os

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
    load_tensors,
    save_checkpoint,
    save_tensors,
    write_atomically,
)

CONFIG = {"size": {"N": 2, "h": 4}, "seed": 0}

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**127), 2**127),
    st.floats(allow_nan=False),
    st.text(max_size=5).filter(lambda s: s != module.TENSOR),
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]).map(
        lambda dtype: torch.arange(4).to(dtype)
    ),
    st.just(torch.zeros(0, 3)),
    st.just(torch.tensor(2.5)),
)
trees = st.recursive(
    leaves,
    lambda t: (
        st.lists(t, max_size=3) | st.dictionaries(st.text("abc./", min_size=1, max_size=3), t, max_size=3)
    ),
    max_leaves=8,
)


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return type(one) is type(other) and one == other


@given(st.dictionaries(st.text("ab", min_size=1, max_size=2), trees, max_size=3))
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

    def test_a_newer_format(self, folder, monkeypatch):
        monkeypatch.setattr(module, "FORMAT", 2)
        save_checkpoint(folder, 2, {}, CONFIG)
        monkeypatch.undo()
        self.refused(folder, "has format 2, newer than 1, which this edgewise reads; update it")

    def test_another_configuration(self, folder):
        save_checkpoint(folder, 2, {}, CONFIG | {"size": {"N": 2, "h": 8}})
        self.refused(folder, "is of another configuration: size.h is 8 there and 4 here")

    def test_what_a_configuration_does_not_say_is_as_usual(self, folder):
        newest = checkpoints(folder)[-1]
        usual = {"processes": 1}
        load_checkpoint(newest, CONFIG, usual)
        load_checkpoint(newest, CONFIG | usual, usual)
        with pytest.raises(CheckpointError, match="processes is 1 there and 2 here; there is no whole"):
            load_checkpoint(newest, CONFIG | {"processes": 2}, usual)
        save_checkpoint(folder, 2, {}, CONFIG | {"processes": 2})
        with pytest.raises(CheckpointError, match="processes is 2 there and 1 here; the one before it"):
            load_checkpoint(newest, CONFIG, usual)

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

    def test_an_artifacts_weights(self, folder):
        save_tensors(checkpoints(folder)[-1], {"x": torch.ones(1)}, {"name": "copy"})
        self.refused(folder, "is of another configuration: it is None there")


def test_what_a_killed_process_left_is_swept_away(tmp_path):
    (tmp_path / ".step-00000001.safetensors.part").write_bytes(b"half")
    path = save_checkpoint(tmp_path, 2, {}, CONFIG)
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_file(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        load_tensors(tmp_path / "none")


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
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


def test_the_header_is_plain_json(tmp_path):
    save_tensors(tmp_path / "x", {"a": torch.ones(2)}, {"name": "copy"})
    length = int.from_bytes((tmp_path / "x").read_bytes()[:8], "little")
    header = json.loads((tmp_path / "x").read_bytes()[8 : 8 + length])
    assert json.loads(header["__metadata__"]["edgewise"])["name"] == "copy"
