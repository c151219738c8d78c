import errno
import os

import pytest
import torch

from attention_on_edges.training import checkpoint_files as files

CONFIG = {"size": {"N": 2, "h": (4, 8)}, "seed": 0}


def test_a_state_comes_back_and_the_newest_two_are_kept(tmp_path):
    whole = torch.arange(6.0).view(2, 3)
    state = {"model": {"a": whole.T, "b": whole[0].bfloat16()}, 3: [1, 2.5, None, "x"], "big": 2**127}
    for step in (5, 10, 100_000_000):
        files.save_checkpoint(tmp_path, step, state, CONFIG)
    kept = files.checkpoints(tmp_path)
    assert [path.name for path in kept] == ["step-00000010.pt", "step-100000000.pt"]
    assert sorted(tmp_path.iterdir()) == sorted(kept)
    found = files.load_checkpoint(kept[-1], CONFIG)
    for name, x in state.pop("model").items():
        assert found["model"][name].dtype == x.dtype
        assert torch.equal(found["model"][name], x)
    del found["model"]
    assert found == state


def test_another_configuration_is_refused(tmp_path):
    files.save_checkpoint(tmp_path, 2, {}, CONFIG | {"size": {"N": 2, "h": 8}})
    with pytest.raises(files.CheckpointError, match=r"step-00000002.* size\.h is 8 there and \[4, 8\] here"):
        files.load_checkpoint(*files.checkpoints(tmp_path), CONFIG)


@pytest.mark.parametrize("bytes_left", [0, 100, 1000, b"<html>not here</html>", {"x": 1}])
def test_a_damaged_checkpoint_is_named_with_the_one_before_it(tmp_path, bytes_left):
    (tmp_path / "step-best.pt").touch()
    for step in (3, 5):
        files.save_checkpoint(tmp_path, step, {"x": torch.zeros(500)}, CONFIG)
    newest = files.checkpoints(tmp_path)[-1]
    if isinstance(bytes_left, dict):
        torch.save(bytes_left, newest)
    else:
        newest.write_bytes(newest.read_bytes()[:bytes_left] if isinstance(bytes_left, int) else bytes_left)
    with pytest.raises(files.CheckpointError, match=r"05.pt is damaged.*; step-00000003.pt is before it"):
        files.load_checkpoint(newest, CONFIG)


def test_no_bit_may_flip(tmp_path):
    files.save_checkpoint(tmp_path, 1, {"x": torch.randn(50)}, CONFIG)
    path = files.checkpoints(tmp_path)[0]
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), 37):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(files.CheckpointError, match="is damaged"):
            files.load_checkpoint(path, CONFIG)
    path.write_bytes(content)
    with pytest.raises(files.CheckpointError, match="is damaged, renamed"):
        files.load_checkpoint(path.rename(tmp_path / "step-00000002.pt"), CONFIG)


def test_what_is_no_file_of_steps_is_passed_over(tmp_path):
    files.save_checkpoint(tmp_path, 1, {}, CONFIG)
    (tmp_path / "step-².pt").touch()
    os.mkfifo(tmp_path / "step-00000099.pt")
    assert [path.name for path in files.checkpoints(tmp_path)] == ["step-00000001.pt"]


@pytest.mark.parametrize(("call", "code"), [("fsync", errno.EINVAL), ("open", errno.EACCES)])
def test_a_folder_that_cannot_be_flushed_is_no_failure(tmp_path, monkeypatch, call, code):
    before = getattr(os, call)

    def refusing(at, *given):
        if call == "open" or os.path.isdir(f"/proc/self/fd/{at}"):
            raise OSError(code, "as on a network share")
        return before(at, *given)

    monkeypatch.setattr(os, call, refusing)
    files.write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    files.write_atomically(path, b"old")

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        files.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_name_appears_only_after_the_bytes_are_on_the_disk(tmp_path, monkeypatch):
    events = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append("fsync"), sync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append("replace"), replace(a, b)))
    files.write_atomically(tmp_path / "file", b"x")
    assert events == ["fsync", "replace", "fsync"]
