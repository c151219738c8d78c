"""A Sphinx extension: warnings, hence failures, for faults that Sphinx and Jupyter Book pass over.

They name pages missing from the table of contents, twins out of step with their pages, and pictures without
alternative text or caption.
"""

import re

from docutils import nodes
from sphinx.util import logging

import contents
from twins import ROOT, chapters, twin, with_setup_cell

LOG = logging.getLogger(__name__)
HASH = re.compile(r"[0-9a-f]{16}")
"""What myst-nb takes for alternative text where a cell gives none: a file named after its content."""


def check_sources(app):
    """Name pages that are not listed, and twins that are out of step."""
    listed = contents.pages()
    for page in sorted((ROOT / "book").glob("*.md")):
        if f"book/{page.stem}" not in listed:
            LOG.warning("book/%s is not in _toc.yml", page.name)
    for page in chapters():
        notebook, text = page.with_suffix(".ipynb"), page.read_text(encoding="utf-8")
        wanted = twin(with_setup_cell(text)).encode()
        if not notebook.exists() or notebook.read_bytes() != wanted:
            LOG.warning("book/%s is out of step with its page: run make notebooks", notebook.name)


def check_pictures(app, doctree):
    """Name the page and the picture that has no alternative text or no caption."""
    for picture in doctree.findall(nodes.image):
        alt, where = picture.get("alt") or "", f"{app.env.docname}.md: {picture['uri']}"
        if not alt.strip() or HASH.search(alt):
            LOG.warning("%s has no alternative text", where)
        if not captioned(picture):
            LOG.warning("%s has no caption", where)


def captioned(picture):
    """Whether a picture is inside a figure with a caption, possibly several levels down."""
    above = picture.parent
    while above is not None and not isinstance(above, nodes.figure):
        above = above.parent
    return above is not None and any(above.findall(nodes.caption))


def setup(app):
    """Check sources before and doctrees after reading."""
    app.connect("builder-inited", check_sources)
    app.connect("doctree-read", check_pictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
