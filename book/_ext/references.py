"""A Sphinx extension: each chapter that cites ends with the list of what it cites.

The page ``book/references.md`` has the whole list.
"""

import json
import re

from docutils import nodes

WHOLE = "book/references"

# A bullet list has no labels, so that a work may be in many lists.
LIST = """\
## Works cited

```{bibliography}
:list: bullet
:style: plain
:filter: docname in docnames
```
"""


def add_list(app, docname, source):
    """Write the list at the end of the page, for Sphinx to read."""
    if app.env.doc2path(docname).endswith(".ipynb") and re.search(r"(?<!`)\{cite[a-z:]*\}`", source[0]):
        notebook = json.loads(source[0])
        cell = {"cell_type": "markdown", "id": "works-cited", "metadata": {}, "source": LIST}
        source[0] = json.dumps(notebook | {"cells": [*notebook["cells"], cell]})


def stay_on_the_page(app, doctree, docname):
    """Let a citation lead to its own page's list rather than to the whole one, where there is one."""
    citations = [c for c in app.env.get_domain("cite").citations if c.bibliography_key.docname == docname]
    whole = app.builder.get_relative_uri(docname, WHOLE)
    own = {f"{whole}#{citation.citation_id}": citation.citation_id for citation in citations}
    for link in doctree.findall(nodes.reference):
        if link.get("refuri") in own:
            link["refid"] = own[link.attributes.pop("refuri")]


def setup(app):
    """Run before the pages are parsed, and once their citations are known."""
    app.connect("source-read", add_list)
    app.connect("doctree-resolved", stay_on_the_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
