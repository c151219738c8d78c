"""Bind the files of each artifact and study to each other, once: checksums and a digest of the provenance."""

import json
from pathlib import Path

from attention_on_edges.experiments.artifacts import seal
from attention_on_edges.experiments.json_files import sealed, write_json

BOOK = Path(__file__).resolve().parents[1] / "book"

for path in sorted(BOOK.glob("artifacts/*/provenance.json")):
    facts = json.loads(path.read_text("utf-8"))
    if "digest" not in facts:
        seal(path.parent, facts)
for path in sorted(BOOK.glob("studies/*.json")):
    facts = json.loads(path.read_text("utf-8"))
    if "digest" not in facts:
        write_json(path, sealed(facts))
