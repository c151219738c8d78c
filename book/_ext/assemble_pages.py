"""Lays out in ``.pages`` what Jupyter Book renders: the book's files, and the chapters' notebooks.

    python book/_ext/assemble_pages.py     prints the notebooks to be run, those that take longest first

A notebook is run again, in its place, if its twin, the code, the pinned environment, a study or a trained
model has changed since. ``.pages`` is not in ``_build``, since nbmake passes over all that is there.
"""

import hashlib
import json

import write_notebooks
from contents import ROOT

PAGES = ROOT / ".pages"
LONGEST = ("11-adaptive", "07-training", "08-translation")
SOURCES = {".py", ".js", ".css", ".json", ".gz"}


def common_digest():
    """Return the digest of what every notebook depends on."""
    code = [path for path in sorted((ROOT / "code").rglob("*")) if path.suffix in SOURCES]
    data = sorted([*ROOT.glob("book/studies/*.json"), *ROOT.glob("book/artifacts/*/provenance.json")])
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in [ROOT / "requirements.txt", *code, *data]))


def has_run(path, digest):
    """Whether a notebook holds what its cells printed, to the last, from the same sources."""
    if not path.exists():
        return False
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    failed = any(output["output_type"] == "error" for cell in code for output in cell["outputs"])
    finished = "shell.execute_reply" in code[-1]["metadata"].get("execution", {})
    return notebook["metadata"].get("digest") == digest and finished and not failed


def main():
    """Link to all files but the notebooks, copy those that are out of date, and name them."""
    (PAGES / "book").mkdir(parents=True, exist_ok=True)
    for old in [*PAGES.iterdir(), *PAGES.glob("book/*")]:
        if old.is_symlink() or (old.suffix == ".ipynb" and not (ROOT / "book" / old.name).exists()):
            old.unlink()
    for path in [ROOT / "_config.yml", ROOT / "_toc.yml", ROOT / "code", *(ROOT / "book").iterdir()]:
        if path.suffix != ".ipynb":
            (PAGES / path.relative_to(ROOT)).symlink_to(path)
    common = common_digest()
    for page in sorted(write_notebooks.chapters(), key=lambda page: page.stem not in LONGEST):
        twin, copy = page.with_suffix(".ipynb").read_bytes(), PAGES / "book" / f"{page.stem}.ipynb"
        digest = common.copy()
        digest.update(twin)
        if not has_run(copy, digest.hexdigest()):
            notebook = json.loads(twin)
            notebook["metadata"]["digest"] = digest.hexdigest()
            copy.write_text(json.dumps(notebook), encoding="utf-8")
            print(copy.relative_to(ROOT))


if __name__ == "__main__":
    main()
