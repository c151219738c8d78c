"""A Sphinx extension: each chapter that cites ends with the list of what it cites.

The page ``book/references.md`` keeps the whole list, says which page cites what, and lists the figures.
"""

import json
import re

import yaml
from docutils import nodes

import contents

WHOLE = "book/references"

FIGURE = re.compile(r"^mystnb:\n(?: .*\n)+", re.MULTILINE)
"""What the head of a cell says of its figure."""
FIRST_SENTENCE = re.compile(r"(.+?[.?!]”?)(?: |$)")

# A bullet list has no labels, so that a work may be in many lists.
LIST = """\
## Works cited

```{bibliography}
:list: bullet
:style: plain
:filter: docname in docnames
```
"""


def keys(page):
    """Return the keys that a page cites, each once, in order."""
    text = (contents.ROOT / f"{page}.md").read_text(encoding="utf-8")
    cited = re.findall(r"(?<!`)\{cite[a-z:]*\}`([^`]+)`", text)
    return list(dict.fromkeys(key.strip() for group in cited for key in group.split(",")))


def by_page():
    """Say as a section for each page of the book what it cites."""
    cited = {page: ",".join(keys(page)) for page in contents.pages()}
    lines = [f"- [](/{page}.md): {{cite:t}}`{all_keys}`" for page, all_keys in cited.items() if all_keys]
    return "\n\n## Page by page\n\n" + "\n".join(lines) + "\n"


def figures():
    """Say as a section for each page what its figures show: the first sentence of each caption."""
    lines = []
    for page in contents.pages():
        text = (contents.ROOT / f"{page}.md").read_text(encoding="utf-8")
        heads = [yaml.safe_load(head)["mystnb"] for head in FIGURE.findall(text)]
        found = [head["figure"] for head in heads if "figure" in head]
        lines += [f"- [](/{page}.md)"] * bool(found)
        lines += [f"  - {{numref}}`{f['name']}`: {FIRST_SENTENCE.match(f['caption'])[1]}" for f in found]
    return "\n\n## Figures\n\n" + "\n".join(lines) + "\n"


def add_lists(app, docname, source):
    """Write the lists at the end of the pages, for Sphinx to read."""
    if docname == WHOLE:
        source[0] += figures() + by_page()
    elif app.env.doc2path(docname).endswith(".ipynb") and keys(docname):
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
    app.connect("source-read", add_lists)
    app.connect("doctree-resolved", stay_on_the_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
