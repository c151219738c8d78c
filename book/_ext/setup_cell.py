"""The first, hidden cell of every chapter: it lets the chapter's notebook run in Colab as it is.

``write_notebooks.py`` writes the cell into the chapters; it is changed here and nowhere else.
"""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
ADDRESS = CONFIG["repository"]["url"]

# The notebook is installed in place, so that the package finds the book's artifacts. DGL has no wheel for
# every Python and the book runs without it, hence the second try.
CODE = f"""\
# @title Set-up: fetches the book where this notebook runs without it
import importlib.util

if importlib.util.find_spec("attention_on_edges") is None:
    import os
    import subprocess
    import sys

    def run(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            raise SystemExit(f"This needs {{command[0]}}: install it, then run this cell again.") from None

    address = "{ADDRESS}"
    clone = os.path.abspath(address.split("/")[-1])
    if not os.path.isdir(clone):
        cloned = run("git", "clone", "--depth", "1", address, clone)
        if cloned.returncode != 0:
            raise RuntimeError(f"could not clone {{address}}: {{cloned.stderr.strip()}}")
    for extras in ("[chapters,dgl]", "[chapters]"):
        installed = run(sys.executable, "-m", "pip", "install", "--editable", clone + extras)
        if installed.returncode == 0:
            break
    else:
        raise RuntimeError(f"could not install {{clone}}: {{installed.stderr.strip()}}")
    sys.path.append(f"{{clone}}/code")
    os.chdir(f"{{clone}}/book")
    print(f"Cloned {{address}}, installed it and moved into its folder book/.")
"""

BLOCK = f"""\
```{{code-cell}} ipython3
---
cellView: form
jupyter:
  source_hidden: true
tags: [remove-cell]
---
{CODE}```
"""
