"""What make's stages say, and what it says first where something is missing."""

import os
import re
import shutil
import subprocess
import sys

from paths import ROOT

FAILS = "print('== FAILURES ==\\nwhy\\nFAILED tests/a.py::test_b[c d] - assert 0'); raise SystemExit(1)"


def ran(*command, **options):
    return subprocess.run(
        [ROOT / ".ci" / command[0], *command[1:]], capture_output=True, text=True, **options
    )


def test_a_stage_that_passes_is_one_line():
    says = "print('noise\\n2 passed, 1 warning in 1.00s')"
    result = ran("stage", "a test of stages", sys.executable, "-c", says)
    assert result.returncode == 0
    assert re.fullmatch(r"a test of stages +\d+ s   2 passed, 1 warning\n", result.stdout)


def test_a_stage_that_fails_says_how_to_run_alone_what_failed(tmp_path):
    result = ran("stage", "tests", sys.executable, "-c", FAILS, cwd=tmp_path)
    assert result.returncode == 1
    assert "FAILED\n== FAILURES ==\nwhy\n" in result.stdout
    assert "    .venv/bin/pytest 'tests/a.py::test_b[c d]'\n" in result.stdout
    assert (tmp_path / "_build" / "log" / "tests.txt").read_text().startswith("== FAILURES ==")


def test_what_is_missing_is_said_with_the_command_that_brings_it(tmp_path):
    for name in ("awk", "bash", "cat", "cksum", "df", "dirname", "env", "grep", "mkdir", "uname"):
        (tmp_path / name).symlink_to(shutil.which(name))
    (tmp_path / "python3").symlink_to(sys.executable)
    place = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    result = ran("install", "test", env=place)
    assert result.returncode == 1
    for needed in ("Chromium", "A C++ compiler"):
        assert f"{needed}, which" in result.stderr
    assert [result.stderr.count(system) for system in ("Debian", "Ubuntu", "macOS")] == [2, 2, 2]
    snap = tmp_path / "chromium-browser"  # as Ubuntu's, which only says where the real one is
    snap.write_text("#!/bin/sh\necho 'requires the chromium snap to be installed'")
    snap.chmod(0o755)
    assert "Chromium, which" in ran("install", "test", env=place).stderr
    assert "names nothing" in ran("install", "test", env=place | {"BROWSER": "nothing"}).stderr
    assert os.access(ran("install", "browser").stdout.strip(), os.X_OK)
