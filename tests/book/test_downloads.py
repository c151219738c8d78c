"""The built book to take away: as a zip that needs no network, and as a PDF."""

import itertools
import sys
import unicodedata
import zipfile
from pathlib import Path

import pytest

from browser import HTML, ROOT, chromium, served

sys.path.insert(0, str(ROOT / "book" / "_ext"))

import book_pdf
import site_files

NAMES = ["book/index.html", "book/references.html"]
"""The PDF of the test: short pages, one of them with a player and links to the other."""


@pytest.fixture(scope="module")
def browser():
    with chromium() as program:
        yield program


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zip")
    with zipfile.ZipFile(HTML / site_files.ZIP) as packed:
        packed.extractall(folder)
    return folder / "attention-on-edges"


def test_zip_holds_every_file_of_the_site(unpacked):
    def files(root):
        return {path.relative_to(root) for path in root.rglob("*") if path.is_file()}

    assert files(unpacked) == files(HTML) - {Path(site_files.ZIP)}


def test_zip_is_offered_on_the_landing_page_but_not_in_itself(unpacked):
    offered = f'href="../{site_files.ZIP}"'
    assert offered in (HTML / "book" / "index.html").read_text(encoding="utf-8")
    assert offered not in (unpacked / "book" / "index.html").read_text(encoding="utf-8")


WIDTHS = """() => ["inherit", "'Source Serif 4', monospace", "monospace"].map(face => {
    const word = document.createElement("span");
    word.style.fontFamily = face;
    word.textContent = "mmmmmiiiiiWWWW";
    document.querySelector("article section > p").append(word);
    return word.offsetWidth;
})"""
"""The width of some letters as the page shows them, in the book's own type, and in what would replace it."""


@pytest.mark.parametrize("name", ["index", "01-attention"])
def test_zip_shows_everything_from_the_disk_without_a_network(browser, unpacked, name):
    context = browser.new_context(offline=True)
    page, asked, trouble = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("requestfailed", lambda request: trouble.append(request.url))
    page.on("console", lambda said: said.type == "error" and trouble.append(said.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto((unpacked / "book" / f"{name}.html").as_uri(), wait_until="load", timeout=120_000)
    page.evaluate("window.MathJax && MathJax.startup && MathJax.startup.promise")
    assert trouble == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert page.locator(".math:not(:has(mjx-container))").count() == 0
    loaded = "images => images.every(image => image.loading === 'lazy' || image.naturalWidth > 0)"
    assert page.eval_on_selector_all("img", loaded)
    assert page.locator(".edgewise-element").count() == page.locator(".edgewise-element .panels").count()
    page.evaluate("document.fonts.ready.then(() => true)")
    shown, own, replaced = page.evaluate(WIDTHS)
    assert shown == own != replaced
    context.close()


def test_zip_can_be_searched_from_the_disk(browser, unpacked):
    page = browser.new_context(offline=True).new_page()
    page.goto((unpacked / "search.html").as_uri() + "?q=mailbox", wait_until="load")
    page.locator("#search-results li a").first.wait_for()
    found = page.eval_on_selector_all("#search-results li a", "links => links.map(link => link.href)")
    assert any("05-message-passing.html" in link for link in found)
    page.context.close()


@pytest.fixture(scope="module")
def printed(browser):
    """Two pages of the book as a PDF: the writer, and what was printed."""
    with served() as site:
        parts = [book_pdf.print_page(browser, site, name) for name in NAMES]
        return book_pdf.join(browser, site, parts), parts


def bookmarks(writer, items, level=1):
    for item in items:
        if isinstance(item, list):
            yield from bookmarks(writer, item, level + 1)
        else:
            yield level, item.title, writer.get_destination_page_number(item)


def reopened(writer, folder):
    writer.write(folder / "book.pdf")
    return book_pdf.PdfReader(folder / "book.pdf")


def test_pdf_has_a_cover_contents_and_numbered_sheets(printed, tmp_path):
    sheets = reopened(printed[0], tmp_path).pages
    assert book_pdf.CONFIG["title"] in sheets[0].extract_text()
    assert sheets[1].extract_text().startswith("Contents")
    last_lines = [sheet.extract_text().strip().splitlines()[-1] for sheet in sheets]
    assert all(line.endswith(f" {number}") for number, line in enumerate(last_lines[1:], 2)), last_lines
    assert len({(float(sheet.mediabox.width), float(sheet.mediabox.height)) for sheet in sheets}) == 1


def test_pdf_has_a_bookmark_for_each_heading_where_it_stands(printed, tmp_path):
    pdf = reopened(printed[0], tmp_path)
    found = list(bookmarks(pdf, pdf.outline))
    headings = [(head["level"], head["text"]) for part in printed[1] for head in part.heads]
    assert [(level, title) for level, title, _ in found[1:]] == headings
    assert len(headings) > 4
    for _, title, number in found:
        assert title in words(pdf.pages[number].extract_text())


def words(text):
    """What was printed, without line breaks and ligatures."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def test_pdf_contents_name_the_sheets(printed, tmp_path):
    pdf = reopened(printed[0], tmp_path)
    lines = " ".join(sheet.extract_text() for sheet in pdf.pages[1 : printed[1][0].first])
    for level, title, number in bookmarks(pdf, pdf.outline):
        if level <= 2 and title != "Contents":
            assert f"{title} {number + 1}" in words(lines)


def test_pdf_keeps_links_between_pages_inside(printed, tmp_path):
    pdf, (landing, references) = reopened(printed[0], tmp_path), printed[1]
    inside, outside = [], []
    for number, sheet in enumerate(pdf.pages):
        for link in (reference.get_object() for reference in sheet.get("/Annots", ())):
            if "/Dest" in link:
                inside.append((number, pdf.get_page_number(link["/Dest"][0].get_object())))
            else:
                outside.append(link["/A"]["/URI"])
    assert not [address for address in outside if "127.0.0.1" in address]
    pairs = itertools.product(range(landing.first, references.first), range(references.first, len(pdf.pages)))
    assert set(pairs) & set(inside)


def test_pdf_shows_the_live_translator_as_its_still_picture(printed, tmp_path):
    pdf, (landing, references) = reopened(printed[0], tmp_path), printed[1]
    words = "".join(sheet.extract_text() for sheet in pdf.pages[landing.first : references.first])
    assert "“Where is the station?” became" in words
    assert "_station" in words
    assert "Load the translator" not in words
