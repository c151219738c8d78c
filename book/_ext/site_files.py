"""A Sphinx extension: the site's search index, section by section, and a zip of the site.

Sphinx indexes pages; here a section ``PLACE`` of a page has an entry of its own, ``PAGE#PLACE``, which
``_templates/search.js`` takes apart again. The zip is for reading without a network.
"""

import html
import re
import zipfile
from pathlib import Path

from docutils import nodes
from sphinx.search import js_index

ZIP = "attention-on-edges.zip"
LINK = re.compile(rb'<a class="offline-copy"[^>]*>(.*?)</a>', re.DOTALL)
"""The link to the zip on the landing page; the copy inside the zip does without."""
PRELOAD = re.compile(rb'<link rel="preload"[^>]* as="font"[^>]*>\n?')


def index_sections(app, error):
    """Write the index anew; a term in italics, where a section introduces it, counts as a title."""
    if error or app.builder.name != "html":
        return
    indexer = app.builder.indexer
    indexer.prune([])
    for page in sorted(app.env.found_docs):
        tree = app.env.get_and_resolve_doctree(page, app.builder)
        sections = [title.parent for title in tree.findall(nodes.title) if title.parent.tagname == "section"]
        for term in list(tree.findall(nodes.emphasis)):
            term.replace_self(nodes.title("", term.astext()))
        for section in reversed(sections):  # those within another come before it, and are then gone
            whole = section is sections[0]
            names = [part.next_node(nodes.title).astext() for part in sections[:1] + [section][whole:]]
            place = page if whole else f"{page}#{section['ids'][0]}"
            section.parent.remove(section)
            indexer.feed(place, page, html.escape(" > ".join(names)), section)
    with (Path(app.outdir) / "searchindex.js").open("w", encoding="utf-8") as file:
        indexer.dump(file, js_index)


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
    """Run after Sphinx and Jupyter Book have written their own files."""
    app.connect("build-finished", index_sections)
    app.connect("build-finished", pack, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
