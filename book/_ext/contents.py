"""The book's order, as the table of contents gives it."""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def pages():
    """Return all pages in order, as paths without suffix; the root comes first."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [toc["root"], *(entry["file"] for part in toc["parts"] for entry in part["chapters"])]
