"""Writes each chapter's twin, the notebook that Binder, Colab and the build run.

    python book/_ext/write_notebooks.py

A chapter is a page ``book/*.md`` with a ``kernelspec`` in its front matter. The notebook's first cell, which
the page does not have, lets it run in Colab as it is.
"""

import re

import jupytext
import nbformat
import yaml

from contents import ROOT

ADDRESS = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]["url"]

FRONT_MATTER = re.compile(r"---\n.*?\n---\n", re.DOTALL)

# The notebook is installed in place, so that the package finds the book's artifacts. DGL has no wheel for
# every Python and the book runs without it, hence the second try.
CODE = f"""\
# @title Set-up: fetches the book where this notebook runs without it
import importlib.util

if importlib.util.find_spec("attention_on_edges") is None:
    import os
    import subprocess
    import sys

    address = "{ADDRESS}"
    clone = os.path.abspath(address.split("/")[-1])
    if not os.path.isdir(clone):
        subprocess.run(["git", "clone", "--depth", "1", address, clone], check=True)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--editable"]
    if subprocess.run([*install, clone + "[chapters,dgl]"]).returncode != 0:
        subprocess.run([*install, clone + "[chapters]"], check=True)
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


def chapters():
    """Return the paths of all chapters, in order."""
    pages = sorted((ROOT / "book").glob("*.md"))
    return [page for page in pages if "\nkernelspec:" in front_matter(page.read_text(encoding="utf-8"))]


def front_matter(text):
    """Return a page's front matter, or nothing."""
    match = FRONT_MATTER.match(text)
    return match.group() if match else ""


def notebook(text):
    """Return a chapter's text as a notebook, set up first, in which what the page folds is folded too."""
    head = front_matter(text)
    read = jupytext.reads(f"{head}\n{BLOCK}\n{text[len(head) :].lstrip()}", fmt="md:myst")
    for cell in read.cells:
        if {"hide-cell", "hide-input"} & set(cell.metadata.get("tags", [])):
            cell.metadata["cellView"] = "form"
            cell.metadata["jupyter"] = {"source_hidden": True}
    return read


def twin(text):
    """Return the twin of a chapter's text, the same bytes for the same text."""
    made = notebook(text)
    made.metadata = nbformat.from_dict(
        {"kernelspec": made.metadata["kernelspec"], "language_info": {"name": "python"}}
    )
    made.nbformat, made.nbformat_minor = 4, 5
    for number, cell in enumerate(made.cells):
        cell["id"] = f"cell-{number:03d}"
    nbformat.validate(made)
    return nbformat.writes(made) + "\n"


def main():
    """Bring the twins up to date."""
    wanted = {page.with_suffix(".ipynb"): twin(page.read_text(encoding="utf-8")) for page in chapters()}
    for path, text in wanted.items():
        if not path.exists() or path.read_bytes() != text.encode():
            path.write_bytes(text.encode())
            print(f"wrote {path.relative_to(ROOT)}")
    for path in (ROOT / "book").glob("*.ipynb"):
        if path not in wanted:
            path.unlink()
            print(f"removed {path.relative_to(ROOT)}, which has no page")


if __name__ == "__main__":
    main()
