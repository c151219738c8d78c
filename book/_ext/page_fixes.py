"""A Sphinx extension: no Thebe scripts in the pages, no roles that ARIA has given up.

The theme loads sphinx-thebe in every book. Its constants end up in each page twice, which the browser
logs as an error, and it can fetch scripts from outside. This book has no Thebe button.
"""


def drop_thebe(app, pagename, templatename, context, doctree):
    """Take sphinx-thebe's scripts off a page."""
    context["script_files"] = [
        script
        for script in context["script_files"]
        if "thebe" not in str(script.filename) + script.attributes.get("body", "").lower()
    ]


def rename_roles(app, pagename, templatename, context, doctree):
    """Call the entries of a bibliography what they are in its list; Docutils still says doc-biblioentry."""
    if "body" in context:
        context["body"] = context["body"].replace('role="doc-biblioentry"', 'role="listitem"')


def setup(app):
    """Run after the theme has added its scripts."""
    app.connect("html-page-context", drop_thebe, priority=900)
    app.connect("html-page-context", rename_roles)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
