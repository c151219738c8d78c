"""The book's order, as the table of contents gives it."""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def parts():
    """Return the parts in order: heading, and their pages as paths without suffix; the root comes first."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    listed = [
        (part.get("caption", ""), [entry["file"] for entry in part["chapters"]])
        for part in toc.get("parts", [toc])
    ]
    return [("", [toc["root"]]), *listed]


def pages():
    """Return all pages in order, as paths without suffix."""
    return [page for _, names in parts() for page in names]
