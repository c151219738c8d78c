"""A Sphinx extension: what Jupyter Book, its theme and MyST need to be told about this book's pages."""

import re
from urllib.parse import urlsplit

import write_notebooks


def leave_out_sources(app, config):
    """Let Sphinx pass over the chapters' sources: it reads their notebooks, executed, beside them.

    The page for what is not found links from wherever it is shown: from the path of the site's address.
    """
    config.notfound_urls_prefix = urlsplit(config.ogp_site_url).path
    config.exclude_patterns += [f"book/{page.name}" for page in write_notebooks.chapters()]


def drop_scripts(app, pagename, templatename, context, doctree):
    """Take faulty scripts of sphinx-thebe off a page, and MathJax if it has no formula.

    Sphinx loads MathJax if any page below has one.
    """
    formulas = app.env.get_domain("math").data["has_equations"].get(pagename)
    unwanted = "thebe" if formulas else "thebe|mathjax"
    context["script_files"] = [
        script
        for script in context["script_files"]
        if not re.search(unwanted, f"{script.filename} {script.attributes.get('body')}".lower())
    ]


def rename_roles(app, pagename, templatename, context, doctree):
    """Replace Docutils' deprecated role ``doc-biblioentry`` of bibliography entries by ``listitem``."""
    if "body" in context:
        context["body"] = context["body"].replace('role="doc-biblioentry"', 'role="listitem"')


def list_labels(app, env):
    """Let ``[text](page.md#label)`` find a label, as it finds a heading; MyST knows headings alone.

    Such a link opens the page in a notebook and on a code host too, where ``[text](#label)`` leads nowhere.
    """
    for name, (page, place, *_) in env.get_domain("std").anonlabels.items():
        env.metadata[page].setdefault("myst_slugs", {}).setdefault(name, (None, place, ""))


def setup(app):
    """Run before pages are read, after labels are known, and after the theme has added its scripts."""
    app.connect("config-inited", leave_out_sources)
    app.connect("env-updated", list_labels)
    app.connect("html-page-context", drop_scripts, priority=900)
    app.connect("html-page-context", rename_roles)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
