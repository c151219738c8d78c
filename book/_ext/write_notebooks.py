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

# Installed in place, so that the package finds the book's artifacts, by what also makes Binder's environment.
CODE = f"""\
# @title Set-up: fetches the book where this notebook runs without it, and takes one thread
import importlib.util
import os
import sys
import warnings

for told in ("IProgress not found", "`is_gradient_checkpointing` is deprecated"):  # by other libraries
    warnings.filterwarnings("ignore", told)
address = "{ADDRESS}"
clone = os.path.abspath(address.split("/")[-1])
if importlib.util.find_spec("attention_on_edges") is None:
    import subprocess
    from importlib.metadata import version

    if not os.path.isdir(clone):
        subprocess.run(["git", "clone", "--depth", "1", address, clone], check=True)
    subprocess.run(["bash", clone + "/binder/postBuild", sys.executable], check=True)
    sys.path.append(clone + "/code")
    for name in {{"numpy", "matplotlib"}} & {{*sys.modules}}:
        if sys.modules[name].__version__ != version(name):
            raise SystemExit("Restart the session, then run all cells: another " + name + " is loaded.")
if os.path.isdir(clone + "/book"):
    os.chdir(clone + "/book")

import torch

if "OMP_NUM_THREADS" not in os.environ:
    torch.set_num_threads(1)  # for small models the fastest, the more so where others compute, too
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
