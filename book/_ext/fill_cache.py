"""Fills the cache of Jupyter Book with the executed twins, so that rendering runs no cell again.

The cache is emptied first: it knows a notebook by its cells and does not see a change in the package.
"""

import shutil
import sys

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from myst_nb.core.read import read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig

from setup_cell import CONFIG, ROOT
from twins import chapters


def read_page(page):
    """Return a page as the notebook that Jupyter Book makes of it."""
    return read_myst_markdown_notebook(page.read_text(encoding="utf-8"), MdParserConfig())


def fold_as_page(executed, source):
    """Give an executed twin's cells the metadata of the page's, which knows one way of folding alone."""
    pairs = ([cell for cell in book.cells if cell.cell_type == "code"] for book in (executed, source))
    for cell, original in zip(*pairs, strict=False):
        cell.metadata = original.metadata


def main():
    """Cache every chapter's executed twin and see that its page finds it."""
    folder = ROOT / CONFIG["execute"]["cache"]
    shutil.rmtree(folder, ignore_errors=True)
    cache = get_cache(folder)
    for page in chapters():
        executed = nbformat.read(ROOT / "_build" / "executed" / f"{page.stem}.ipynb", as_version=4)
        source = read_page(page)
        fold_as_page(executed, source)
        data = {"execution_seconds": executed.metadata.pop("execution_seconds")}
        cache.cache_notebook_bundle(CacheBundleIn(executed, str(page), data=data), check_validity=False)
        try:
            cache.match_cache_notebook(source)
        except KeyError:
            sys.exit(f"{page.relative_to(ROOT)} and its twin hold different code: run make notebooks")


if __name__ == "__main__":
    main()
