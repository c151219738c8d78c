"""What gives the site its face: glyphs, figures in the page's colours, figures borrowed from other pages."""

import re
import sys
from collections import Counter
from types import SimpleNamespace
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pytest
from docutils import nodes

from attention_on_edges.figures import PALETTE, use_style
from browser import ROOT, chromium

sys.path.insert(0, str(ROOT / "book" / "_ext"))

import borrowed
import contents
import glyphs
import inline_figures
import landing_page
import picture as front


class TestGlyphs:
    @pytest.mark.parametrize("page", [p for p in contents.pages() if p != "book/index"])
    def test_every_page_has_one(self, page):
        drawn = ElementTree.fromstring(glyphs.glyph(page))
        assert len(drawn.findall("circle")) >= 4
        for circle in drawn.findall("circle"):
            assert 0 < float(circle.get("cx")) < glyphs.WIDTH
            assert 0 < float(circle.get("cy")) < glyphs.HEIGHT

    def test_chapters_differ(self):
        drawn = [glyphs.glyph(f"book/{number:02}-x") for number in range(1, 14)]
        assert len(set(drawn)) == 13

    def test_a_page_without_is_named(self, monkeypatch, caplog):
        monkeypatch.setattr(contents, "pages", lambda: ["book/index", "book/01-a", "book/other"])
        said = []
        monkeypatch.setattr(
            glyphs, "LOG", SimpleNamespace(warning=lambda text, page: said.append(text % page))
        )
        glyphs.check_pages(None)
        assert said == ["book/other.md has no glyph: add it to book/_ext/glyphs.py"]

    def test_it_is_above_the_heading(self):
        context = {"body": "<section><h1>One</h1><h1>Two</h1></section>"}
        glyphs.put_in(None, "book/01-attention", "", context, None)
        assert re.match(
            r'<section><svg class="glyph".*</svg>\s<h1>One</h1><h1>Two</h1>', context["body"], re.S
        )


class TestFigures:
    @pytest.fixture
    def picture(self, tmp_path):
        use_style()
        figure, ax = plt.subplots()
        ax.plot([0, 1], [0, 1], "o-", mfc="white")
        ax.text(0.5, 0.5, "on a dark ground", color="white")
        ax.text(0.2, 0.5, "in ink")
        figure.savefig(tmp_path / "a.svg")
        plt.close(figure)
        return tmp_path

    def put_in(self, folder, body):
        app = SimpleNamespace(builder=SimpleNamespace(images={"a.svg": "drawn.svg"}), srcdir=folder)
        context = {"body": body}
        inline_figures.put_in(app, "book/x", "", context, None)
        return context["body"]

    def test_a_picture_takes_the_colours_and_the_type_of_its_page(self, picture):
        body = self.put_in(
            picture, '<p><img alt="Said &amp; seen" class="x" src="../_images/drawn.svg" /></p>'
        )
        drawn = ElementTree.fromstring(body)[0]
        assert drawn.get("role") == "img"
        assert drawn.get("aria-label") == "Said & seen"
        assert PALETTE["ink"] not in body
        texts = {t.text: t.get("style") for t in drawn.iter("{http://www.w3.org/2000/svg}text")}
        texts |= {t.text: t.get("style") for t in drawn.iter("text")}
        assert "fill: #ffffff" in texts["on a dark ground"]
        assert "currentColor" in texts["in ink"]
        assert all("var(--figure-face)" in style for style in texts.values())
        shapes = re.findall(r"<(?!text|tspan)\w[^>]*>", body)
        assert not any("#ffffff" in shape for shape in shapes)
        assert any("var(--pst-color-background)" in shape for shape in shapes)

    def test_the_words_of_the_front_picture_are_in_ink(self):
        drawn = ElementTree.parse(ROOT / "book" / "_static" / "picture.svg")
        styles = {t.text: t.get("style") for t in drawn.iter("{http://www.w3.org/2000/svg}text")}
        assert all(f"fill: {PALETTE['ink']}" in styles[word] for word in front.SOURCE + front.TARGET)

    def test_the_front_picture_moves_by_itself_and_rests_in_a_page(self):
        path = ROOT / "book" / "_static" / "picture.svg"
        drawn = path.read_text(encoding="utf-8")
        assert front.motion() in drawn
        with chromium() as browser:
            page = browser.new_page()
            page.goto(path.as_uri())
            moving = page.evaluate("document.getAnimations().map(a => a.effect.target.id.split('-')[0])")
            assert Counter(moving) == {"enc": 20, "cross": 25, "dec": 10}
            page.goto("about:blank")
            page.set_content(drawn.partition("?>")[2])
            assert page.evaluate("document.getAnimations().length") == 0

    def test_two_pictures_share_no_id(self, picture):
        link = '<img alt="a" src="_images/drawn.svg">'
        body = self.put_in(picture, f"<p>{link}{link}</p>")
        ids = re.findall(r' id="([^"]+)"', body)
        assert ids
        assert len(ids) == len(set(ids))
        assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', body)) == set(ids)

    def test_other_pictures_stay(self, picture):
        for link in ('<img alt="a" src="_images/other.svg">', '<img alt="a" src="https://x/drawn.svg">'):
            assert self.put_in(picture, link) == link


class TestBorrowed:
    def resolve(self, page="book/a", figure="fig-a"):
        drawn = nodes.figure("", nodes.image(uri="x.svg", alt="said"), nodes.caption(text="of its own page"))
        drawn["names"], drawn["ids"] = ["fig-a"], ["fig-a"]
        other = nodes.section("", drawn)
        place = borrowed.Borrowed("", nodes.paragraph(text="as told here"), page=page, figure=figure)
        document = nodes.section("", place)
        borrow = borrowed.Borrow.__new__(borrowed.Borrow)
        borrow.document = document
        settings = SimpleNamespace(
            env=SimpleNamespace(found_docs={"book/a"}, get_doctree=lambda page: other),
        )
        borrow.document.settings = settings
        borrow.run()
        return document, drawn

    def test_the_figure_has_a_caption_of_its_own_and_no_number(self):
        document, drawn = self.resolve()
        (shown,) = document.findall(nodes.figure)
        assert shown[0]["uri"] == "x.svg"
        assert [c.astext() for c in shown.findall(nodes.caption)] == ["as told here"]
        assert (shown["ids"], shown["names"]) == (["shown-fig-a"], [])
        assert drawn["ids"] == ["fig-a"]

    def test_what_is_missing_is_named(self):
        with pytest.raises(ValueError, match="there is no page book/b"):
            self.resolve(page="book/b")
        with pytest.raises(ValueError, match="book/a has no figure fig-b"):
            self.resolve(figure="fig-b")


def test_a_tile_says_what_a_chapter_asks_and_how_long_it_takes(monkeypatch):
    monkeypatch.setattr(landing_page, "time_to_run", lambda stem: "13\xa0s")
    drawn = ElementTree.fromstring(landing_page.tile("1 Attention", "01-attention", "Why & how?"))
    link = drawn[0]
    assert link.get("href") == "01-attention.html"
    assert link.find("strong").text == "1 Attention"
    assert link.find("span").text == "Why & how?"
    assert re.fullmatch("\\d+\xa0min to read, 13\xa0s to run", link.find("small").text)
