"""What the landing page computes, and what a site has besides its pages."""

import itertools
import json
import os
import re
import subprocess
import sys
import zipfile
from contextlib import contextmanager
from types import SimpleNamespace
from typing import NamedTuple, Protocol
from xml.etree import ElementTree

import networkx as nx
import pytest
from docutils import nodes
from sphinx.ext.napoleon import NumpyDocstring

from edgewise.models.universal import UTransformer
from places import BOOK, CHAPTERS, ROOT

sys.path.insert(0, str(ROOT / "book" / "_ext"))

import api_links
import api_page
import contents
import landing_page
import site_files
import works_cited


def test_the_commits_that_trained_and_measured_are_in_the_history():
    kept = [*(BOOK / "artifacts").glob("*/provenance.json"), *(BOOK / "studies").glob("*.json")]
    named = {commit for path in kept for commit in re.findall(r'"commit": "(\w+)"', path.read_text("utf-8"))}
    listed = subprocess.run(["git", "rev-list", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
    assert len(named) > 20
    assert not named - set(listed.stdout.split())


def test_contents_keep_the_order_and_the_parts():
    pages = contents.pages()
    assert pages[0] == "book/index"
    assert len(pages) == len(set(pages))
    headings = [heading for heading, _ in contents.parts()]
    assert headings == ["", "Chapters", "Appendices"]
    numbers = [page for page in pages if re.match(r"book/\d", page)]
    assert numbers == sorted(numbers) == [f"book/{path.stem}" for path in CHAPTERS]


def test_every_chapter_but_the_first_names_what_it_needs():
    graph = landing_page.prerequisites()
    assert {f"book/{path.stem}" for path in CHAPTERS} <= set(graph)
    order = contents.pages()
    for chapter in CHAPTERS:
        needed = list(graph.predecessors(f"book/{chapter.stem}"))
        assert bool(needed) == (chapter.stem != "01-attention"), chapter.name
        assert all(order.index(page) < order.index(f"book/{chapter.stem}") for page in needed)


def test_chapters_that_need_each_other_are_refused(monkeypatch):
    text = {
        "book/01-a": "# A\n\nYou need [b](02-b.md). More.\n",
        "book/02-b": "# B\n\nYou need [a](01-a.md).\n",
    }
    monkeypatch.setattr(landing_page, "source", text.get)
    monkeypatch.setattr(contents, "pages", lambda: list(text))
    with pytest.raises(ValueError, match="need each other"):
        landing_page.prerequisites()


def test_the_drawing_has_each_chapter_below_what_it_needs_and_none_upon_another():
    graph = landing_page.prerequisites()
    where, (width, height) = landing_page.places(graph)
    assert all(where[needed][1] < where[page][1] for needed, page in graph.edges)
    assert len(set(where.values())) == len(graph)
    for row in {y for _, y in where.values()}:
        across = sorted(x for x, y in where.values() if y == row)
        assert all(b - a > landing_page.BOX[0] for a, b in itertools.pairwise(across))
        assert across[0] >= landing_page.BOX[0] / 2
        assert across[-1] <= width - landing_page.BOX[0] / 2
    assert max(y for _, y in where.values()) < height


def test_an_arrow_passes_between_the_boxes_of_the_rows_on_its_way():
    (width, height), lower = landing_page.BOX, 76
    boxes = [(126, 24), (84, 24 + lower), (252, 24 + lower), (252, 24 + 2 * lower)]
    corners = landing_page.route(boxes[0], boxes[-1], boxes)
    assert corners[0] == (126, 24 + height / 2)
    assert corners[1:3] == [(168, 24 + lower - height / 2), (168, 24 + lower + height / 2)]
    assert all(abs(corners[1][0] - x) > width / 2 for x, _ in boxes[1:3])
    assert corners[-1][0] == 252
    assert landing_page.route(boxes[0], boxes[1], boxes)[1:-1] == []


def test_the_drawing_leads_to_every_chapter_and_leaves_out_roundabout_edges():
    graph = nx.DiGraph([("book/a", "book/b"), ("book/b", "book/c"), ("book/a", "book/c")])
    nx.set_node_attributes(graph, {page: f"{page} & more" for page in graph}, "title")
    drawn = ElementTree.fromstring(landing_page.draw(graph))
    assert len(drawn.findall("polyline")) == 2
    assert [link.get("href") for link in drawn.findall("a")] == ["a.html", "b.html", "c.html"]
    assert "".join(drawn.find("a").itertext()).strip() == "book/a & more"


def test_reading_time_is_that_of_the_prose():
    words = "word " * 1000
    code = "```{code-cell} ipython3\n" + "name = 1\n" * 4000 + "```\n"
    assert landing_page.minutes_to_read(words) == 5
    assert landing_page.minutes_to_read(f"---\nkernelspec: x\n---\n\n{words}\n\n{code}") == 5
    assert landing_page.minutes_to_read("") == 1


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, ""), (0.2, "1\xa0s"), (61.4, "61\xa0s"), (150, "2\xa0min"), (600, "10\xa0min")],
)
def test_run_time_is_said_shortly(monkeypatch, seconds, said):
    monkeypatch.setattr(landing_page.status_page, "seconds_of", lambda stem: seconds)
    assert landing_page.time_to_run("03-x") == said


def test_results_are_those_of_the_artifacts():
    rows = landing_page.results()
    folders = {path.parent.name for path in (BOOK / "artifacts").glob("*/metrics.json")}
    assert {row[0] for row in rows} == folders
    for name, task, _, measure, shown in rows:
        metrics = json.loads((BOOK / "artifacts" / name / "metrics.json").read_text(encoding="utf-8"))
        figures = metrics[measure.rpartition(" ")[2]]
        exact = figures.get("exact_match", figures.get("bleu", 0) / 100)
        assert float(shown.rstrip("%\xa0")) == pytest.approx(100 * exact, abs=0.051)
        assert task


def test_results_may_be_those_of_some():
    rows = landing_page.results(["sort", "copy"])
    assert [row[0] for row in rows] == ["sort", "copy"]
    with pytest.raises(ValueError, match="no artifact sorted; there are copy, "):
        landing_page.results(["sorted"])


def head_of(base, pagename="book/x", text=""):
    """The metadata of a page with one paragraph."""
    app = SimpleNamespace(config=SimpleNamespace(html_baseurl=base, html_title="Book"))
    context = {"title": 'A <code>"page"</code>', "pathto": lambda path, _: f"../{path}"}
    tree = nodes.section("", nodes.paragraph(text="short"), nodes.paragraph(text=text))
    site_files.add_metadata(app, pagename, "page.html", context, tree)
    return context["metatags"]


def test_pages_are_described_without_an_address():
    head = head_of("", text="many words " * 40)
    assert 'property="og:title" content="A &quot;page&quot;"' in head
    described = re.search(r'name="description" content="([^"]*)"', head).group(1)
    assert described.startswith("many words")
    assert len(described) <= site_files.LONGEST + 2
    assert "http" not in head
    assert "<base" not in head
    assert head.count('<link rel="preload" href="../_static/fonts/') == len(site_files.FONTS) == 6


def test_pages_have_a_card_and_the_404_a_base_where_there_is_an_address():
    head = head_of("https://example.org/book/")
    assert 'og:image" content="https://example.org/book/_static/card.png"' in head
    assert 'og:url" content="https://example.org/book/book/x.html"' in head
    assert '<base href="https://example.org/book/">' in head_of("https://example.org/book/", "404")


def test_sitemap_lists_full_addresses():
    tree = ElementTree.fromstring(site_files.sitemap("https://example.org/a/", ["b&c.html"]).encode())
    assert [place.text for place in tree.iter() if place.tag.endswith("loc")] == [
        "https://example.org/a/b&c.html"
    ]


def test_zip_is_the_same_for_the_same_files(tmp_path):
    (tmp_path / "site" / "book").mkdir(parents=True)
    (tmp_path / "site" / "book" / "index.html").write_text('<a class="offline-copy" href="x">zip</a>')
    packed = []
    for _ in range(2):
        site_files.pack(tmp_path / "site", tmp_path / "out.zip")
        packed.append((tmp_path / "out.zip").read_bytes())
        os.utime(tmp_path / "site" / "book" / "index.html", (10**9, 10**9))
    assert packed[0] == packed[1]
    with zipfile.ZipFile(tmp_path / "out.zip") as whole:
        (name,) = whole.namelist()
        assert name == "attention-on-edges/book/index.html"
        assert whole.read(name) == b"zip"  # the link to the zip is not needed in it


def test_keys_are_cited_once_in_order():
    text = "A {cite}`b2020,a2010` and {cite:t}`a2010`; `{cite}` says {cite}`c`."
    assert works_cited.keys(text) == ["b2020", "a2010", "c"]
    assert works_cited.keys("none") == []


@pytest.mark.parametrize(
    ("head", "cites", "listed"),
    [
        ("---\nkernelspec: x\n---\n", True, True),
        ("---\nkernelspec: x\n---\n", False, False),
        ("", True, False),
    ],
    ids=["chapter", "chapter that cites nothing", "other page"],
)
def test_chapters_that_cite_get_a_list_of_their_own(head, cites, listed):
    text = [f"{head}\n# T\n\n{'{cite}`a`' if cites else ''}\n"]
    works_cited.add_lists(None, "book/01-x", text)
    assert text[0].startswith(head)
    assert ("## Works cited" in text[0]) == (":filter: docname in docnames" in text[0]) == listed


def test_the_whole_list_says_which_page_cites_what():
    text = ["# References\n"]
    works_cited.add_lists(None, "book/references", text)
    lines = re.findall(r"^- \[\]\(/(.*?)\.md\): \{cite:t\}`(.*)`$", text[0], re.MULTILINE)
    assert [page for page, _ in lines] == [page for page in contents.pages() if page in dict(lines)]
    for page, cited in lines:
        assert cited.split(",") == works_cited.keys((ROOT / f"{page}.md").read_text(encoding="utf-8"))
    assert {f"book/{path.stem}" for path in CHAPTERS} <= {page for page, _ in lines}


def completed(what, obj, *lines):
    """A docstring's lines as napoleon gets them."""
    lines = list(lines)
    api_page.complete_docstring(None, what, "module.NAME", obj, None, lines)
    return lines


@pytest.mark.parametrize("what", ["attribute", "data", "property"])
@pytest.mark.parametrize(
    "said", ["[N]: steps taken.", "The newest and the one before: both.", "A mean.\n\nOf: all."]
)
def test_what_an_attribute_is_said_to_be_stays_one_sentence(what, said):
    lines = completed(what, object(), *said.splitlines())
    shown = NumpyDocstring(lines, what=what, name="module.NAME").lines()
    assert "\n".join(shown).strip() == said


def test_what_a_function_returns_is_set_as_a_field():
    lines = completed("function", len, "Count.", "", "Returns", "-------", "int", "    All of them.")
    assert ":returns: All of them." in NumpyDocstring(lines, what="function", name="module.count").lines()


def test_short_constants_are_shown_and_long_ones_are_not():
    assert completed("data", ("a", 2), "Two.") == [": Two.", "", "Value: ``('a', 2)``."]
    assert completed("data", {"a": object()}, "One.") == [": One.", "", "Keys: ``'a'``."]
    for constant in (object(), (object(),), {1: 2}, "long" * 60):
        assert completed("data", constant, "Long.") == [": Long."]


def test_context_managers_and_parents_are_told():
    @contextmanager
    def shut():
        yield

    def numbers():
        yield 1

    class Child(api_links.Reader):
        """Of a parent elsewhere."""

    assert completed("function", shut, "Shut it.") == ["*Context manager.* Shut it."]
    assert completed("function", numbers, "Count.") == ["Count."]
    assert completed("class", Child, "More.") == ["More."]
    assert completed("class", UTransformer, "Many.", "", "Parameters") == [
        *("Many.", "", "A kind of :class:`~edgewise.models.transformer.Transformer`.", ""),
        *("", "Parameters"),
    ]


def test_names_lead_to_where_they_are_defined():
    asked = []
    domain = SimpleNamespace(resolve_xref=lambda *told: asked.append(told[4]))
    node = {"refdomain": "py", "refdoc": "book/api", "py:module": "attention_on_edges.analysis.mixing"}
    for target, kind in (
        ("make_model", None),
        ("update_graph", "MixingTransformer"),
        ("edgewise.graphs.window", None),
    ):
        found = node | {"reftarget": target, "py:class": kind}
        api_page.find_definition(
            SimpleNamespace(builder=None), SimpleNamespace(domains={"py": domain}), found, None
        )
    for target, kind in (
        ("nothing", "py"),
        ("edgewise.training.trainer.json", "py"),
        ("torch.Tensor", "py"),
        ("edgewise.graphs.window", "std"),
    ):
        found = node | {"reftarget": target, "refdomain": kind}
        assert api_page.find_definition(None, None, found, None) is None
    assert [name.removeprefix("edgewise.") for name in asked] == [
        "models.transformer.make_model",
        "models.transformer.Transformer.update_graph",
        "graphs.constructors.window",
    ]


def test_fields_of_named_tuples_are_told_by_their_class():
    class Pair(NamedTuple):
        left: int

    assert api_page.skip_fields(None, "class", "Pair.left", Pair.left, False, None) is True
    assert api_page.skip_fields(None, "module", "completed", completed, False, None) is None


def test_protocols_show_no_arguments():
    class Like(Protocol):
        def go(self): ...

    class Real(Like):
        def __init__(self, way): ...

    assert api_page.hide_signature(None, "class", "Like", Like, None, "(*args)", None) == ("", None)
    assert api_page.hide_signature(None, "class", "Real", Real, None, "(way)", None) is None


def test_names_of_modules_break_at_dots_and_nowhere_else_is_changed():
    code = '<code class="literal"><span class="pre">edgewise.graphs.pool</span></code>'
    broken = code.replace(".", ".<wbr/>")
    for page, heading in (("book/api", broken), ("book/api-workshop", broken), ("book/index", code)):
        context = {"body": f"<h2>{code}</h2><p>{code}</p>", "toc": f'<a href="#pool">{code}</a>'}
        api_page.break_at_dots(None, page, "page.html", context, None)
        assert context == {
            "body": f"<h2>{heading}</h2><p>{code}</p>",
            "toc": f'<a href="#pool">{heading}</a>',
        }
