"""The environment that the notebooks' set-up cell and Binder make, made for real."""

import json
import shutil
import subprocess
import sys

import pytest

from places import BOOK, ROOT


@pytest.mark.nightly
def test_a_notebook_runs_where_the_extra_for_chapters_is_installed_and_nothing_else(tmp_path):
    python, copy = tmp_path / "bin" / "python", tmp_path / "copy"
    shutil.copytree(ROOT / "code", copy / "code")  # pip builds where the package lies
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy)
    subprocess.run([sys.executable, "-m", "venv", tmp_path], check=True)
    pinned = ["--constraint", ROOT / "requirements.txt", f"{copy}[chapters]"]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *pinned], check=True)
    cells = json.loads((BOOK / "01-attention.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    chapter = tmp_path / "chapter.py"
    chapter.write_text("import matplotlib; matplotlib.use('agg')\n" + "\n".join(code), encoding="utf-8")
    subprocess.run([python, chapter], cwd=BOOK, check=True)
    lacking = "import importlib.util as u; print(*map(u.find_spec, ('sphinx', 'pytest', 'playwright')))"
    found = subprocess.run([python, "-c", lacking], check=True, capture_output=True, text=True).stdout
    assert found.split() == ["None"] * 3
