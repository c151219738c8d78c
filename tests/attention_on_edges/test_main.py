"""The command where it lacks what the extra brings."""

import subprocess
import sys

import pytest

LACKING = "import sys; sys.modules['{}'] = None; from attention_on_edges.__main__ import main; main()"


@pytest.mark.parametrize("package", ["typer", "tokenizers", "sacrebleu"])
def test_it_names_the_extra_in_one_line(package):
    command = [sys.executable, "-c", LACKING.format(package), "info"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr == f"error: edgewise needs {package}: pip install 'edgewise[chapters]'\n"


def test_a_fault_of_its_own_keeps_its_traceback():
    command = [sys.executable, "-c", LACKING.format("attention_on_edges.commands.options"), "info"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert "Traceback" in result.stderr
