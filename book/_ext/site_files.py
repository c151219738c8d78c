"""A Sphinx extension: a zip of the whole book, for reading without a network."""

import re
import zipfile
from pathlib import Path

ZIP = "attention-on-edges.zip"
LINK = re.compile(rb'<a class="offline-copy"[^>]*>(.*?)</a>', re.DOTALL)
"""The link to the zip on the landing page; the copy inside the zip does without."""
PRELOAD = re.compile(rb'<link rel="preload"[^>]* as="font"[^>]*>\n?')


def packed(data):
    """Return a file for a disk, from which fonts cannot be preloaded: there a page waits for them."""
    data = LINK.sub(rb"\1", PRELOAD.sub(b"", data))
    return data.replace(b"font-display: optional", b"font-display: block")


def pack(app, error):
    """Write all files of the site into a zip, the same bytes for the same files."""
    if error or app.builder.name != "html":
        return
    folder = Path(app.outdir)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ZIP)
    with zipfile.ZipFile(folder / ZIP, "w") as archive:
        for path in files:
            entry = zipfile.ZipInfo(f"{Path(ZIP).stem}/{path.relative_to(folder).as_posix()}")
            entry.external_attr = 0o644 << 16
            data = path.read_bytes()
            data = packed(data) if path.suffix in (".html", ".css") else data
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 6)


def setup(app):
    """Run after Jupyter Book has written its own files."""
    app.connect("build-finished", pack, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
