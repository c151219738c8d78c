"""``.ci/gpu``, which runs on a machine with a GPU, rehearsed with a Python that only takes notes."""

import os
import shutil
import subprocess

from places import ROOT

STUB = """#!/bin/bash
echo "$*" >> calls
[ "$2" = pytest ] && exit 1
[ "$4" = pyg ] && [ -e slow ] && exec sleep 60
exit 0
"""


def test_the_gpu_script_keeps_what_is_done_and_goes_on_with_the_rest(tmp_path):
    """A stage that fails, and one that runs out of time, are run again; those that are done are not."""
    (tmp_path / "python").write_text(STUB)
    (tmp_path / "python").chmod(0o755)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "gpu", tmp_path / ".ci")

    def run(budget):
        (tmp_path / "calls").write_text("")
        known = {"PATH": os.environ["PATH"], "PYTHON": str(tmp_path / "python"), "BUDGET": str(budget)}
        result = subprocess.run([tmp_path / ".ci" / "gpu", tmp_path / "out"], env=known, capture_output=True)
        return result.returncode, (tmp_path / "calls").read_text()

    (tmp_path / "slow").touch()
    code, calls = run(22)
    assert code == 1
    assert "bench engines --large" in calls
    assert "--device cuda" in calls
    assert "bench training" not in calls  # no time left
    (tmp_path / "slow").unlink()
    code, calls = run(60)
    assert code == 1
    assert "bench engines" not in calls
    assert all(name in calls for name in ("pytest", "bench pyg", "train multi30k --resume"))
