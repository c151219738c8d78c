"""Links from code cells to the API: which names are linked, and that the code stays what it was."""

import re
import sys

import pytest
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from places import ROOT

sys.path.insert(0, str(ROOT / "book" / "_ext"))

import api_links

GRAPH = "edgewise.graphs.attention_graph"
DOCUMENTED = {
    "edgewise.graphs.constructors.complete",
    f"{GRAPH}.AttentionGraph",
    f"{GRAPH}.AttentionGraph.to_mask",
    f"{GRAPH}.AttentionGraph.num_edges",
    "edgewise.attention.MultiHeadAttention",
    "edgewise.attention.MultiHeadAttention.get",
    "edgewise.attention.dot_product_attention",
}
IMPORT = "from edgewise.graphs import complete\n"


def links(*cells, documented=DOCUMENTED):
    """Names that the last of a page's cells links, each with its line and its entry."""
    reader = api_links.Reader(documented)
    for cell in cells:
        markup = highlight(cell, PythonLexer(), HtmlFormatter(nowrap=True))
        linked = api_links.link(markup, reader, lambda entry: entry)
        assert re.sub(r"</?a\b[^>]*>", "", linked) == markup, "nothing but links is added"
    found = re.finditer(r'<a class="api-link" href="(.*?)">(.*?)</a>', linked)
    return [(linked[: match.start()].count("\n") + 1, match[2], match[1]) for match in found]


def test_an_imported_name_leads_to_where_it_is_defined():
    assert links(IMPORT) == [(1, "complete", "edgewise.graphs.constructors.complete")]
    assert links(IMPORT, "x = [complete(2)]") == [(1, "complete", "edgewise.graphs.constructors.complete")]
    wrapped = (
        "from edgewise.attention import (\n    MultiHeadAttention,\n    dot_product_attention as dot,\n)"
    )
    assert [(line, name) for line, name, _ in links(wrapped)] == [
        (2, "MultiHeadAttention"),
        (3, "dot_product_attention"),
    ]
    assert links(wrapped, "dot(1)") == [(1, "dot", "edgewise.attention.dot_product_attention")]


@pytest.mark.parametrize(
    "code",
    [
        "from edgewise import attention\nattention.dot_product_attention",
        "import edgewise.attention as a\na.dot_product_attention",
        "import edgewise.attention\nedgewise.attention.dot_product_attention",
    ],
)
def test_a_modules_name_leads_to_its_entry(code):
    entry = "edgewise.attention.dot_product_attention"
    assert links(code) == [(2, "dot_product_attention", entry)]


def test_methods_are_found_where_the_class_is_known():
    method = (1, "to_mask", f"{GRAPH}.AttentionGraph.to_mask")
    assert links(IMPORT, "graph = complete(3)", "graph.to_mask()") == [method]
    assert links(IMPORT, "complete(3).to_mask()")[1:] == [method]
    assert links(
        "from edgewise.attention import MultiHeadAttention\nm = MultiHeadAttention(4, 2)", "m.get"
    ) == [(1, "get", "edgewise.attention.MultiHeadAttention.get")]
    assert links(IMPORT, "(é, graph) = 1, complete(3)\nprint('é', graph.to_mask)")[1:] == []
    assert links(IMPORT, "graph = complete(3)\nprint('é', graph.to_mask)")[1:] == [(2, *method[1:])]


@pytest.mark.parametrize(
    "code",
    [
        "complete = sum\ncomplete(3)",
        "for complete in range(3):\n    complete",
        "[complete for complete in range(3)]",
        "lambda complete: complete",
        "def complete():\n    pass\ncomplete()",
        "import complete\ncomplete()",
        "other.complete()",
        "'complete(3)  # complete'",
        "%timeit complete(3)",
    ],
)
def test_what_has_the_name_but_is_something_else_is_not_linked(code):
    assert links(IMPORT, code) == []


def test_a_name_inside_a_function_does_not_hide_the_one_outside():
    code = "def f(complete):\n    return complete\n\ncomplete(3)"
    assert [line for line, *_ in links(IMPORT, code)] == [4]


def test_an_entry_is_linked_once_a_cell():
    assert len(links(IMPORT + "complete(1), complete(2)")) == 1


def test_only_what_the_api_lists_is_linked():
    assert links(IMPORT, "complete(3)", documented=set()) == []
    assert links("from edgewise.graphs import nothing_of_the_kind, complete") == [
        (1, "complete", "edgewise.graphs.constructors.complete")
    ]
