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


def main():
    """Cache every chapter's executed twin and see that its page finds it."""
    folder = ROOT / CONFIG["execute"]["cache"]
    shutil.rmtree(folder, ignore_errors=True)
    cache = get_cache(folder)
    for page in chapters():
        executed = nbformat.read(ROOT / "_build" / "executed" / f"{page.stem}.ipynb", as_version=4)
        data = {"execution_seconds": executed.metadata.pop("execution_seconds")}
        cache.cache_notebook_bundle(CacheBundleIn(executed, str(page), data=data), check_validity=False)
        try:
            cache.match_cache_notebook(read_page(page))
        except KeyError:
            sys.exit(f"{page.relative_to(ROOT)} and its twin hold different code: run make notebooks")


if __name__ == "__main__":
    main()
