"""Prints the built book as one PDF: ``make pdf``.

Chromium prints each page; pypdf joins them behind a cover and a table of contents, numbers the sheets, makes
bookmarks of the headings and turns links from page to page into links inside the file. Players print as the
still picture that they hold for readers without a script; folded solutions are open.
"""

import html
import io
import re
import sys
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote, urldefrag

from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, Fit, FloatObject, NameObject, NumberObject

from browser import chromium, served
from contents import ROOT, pages
from repository import address
from setup_cell import CONFIG

TARGET = ROOT / "_build" / "attention-on-edges.pdf"
PATIENCE = 120_000  # milliseconds, for a page to load on a busy machine
PAPER = {"format": "A4", "print_background": True}
MARGIN = {"top": "18mm", "bottom": "20mm", "left": "18mm", "right": "18mm"}

STYLE = """
.bd-sidebar-primary, .bd-sidebar-secondary, .bd-header, .bd-header-article, .bd-footer-content,
.prev-next-footer, .bd-footer, #jb-print-docs-body, .skip-link, .back-to-top, .pst-back-to-top, .copybtn,
.headerlink, .toggle-button, .tb-button, .admonition > button, .screen-only { display: none !important; }
.bd-main .bd-content .bd-article h1:first-of-type { display: block !important; margin-top: 0; }
.bd-main .bd-content, .bd-article { margin: 0 !important; padding: 0 !important; }
.bd-article-container, .bd-page-width, .bd-container, .bd-content { max-width: none !important; width: 100%; }
figure, .edgewise-still, mjx-container[display="true"], .admonition-title { break-inside: avoid; }
.edgewise-still img, figure img, .output > img { max-width: 100%; max-height: 20cm; }
pre { white-space: pre-wrap !important; break-inside: auto !important; orphans: 5; widows: 5; }
mjx-container [data-c] { stroke: none !important; }
.bd-article div.output, .bd-article figure { overflow: visible !important; }
"""

# Opens what is folded, loads what is lazy, gives stills their description as a caption, and links to all that
# has a name, once: Chromium keeps as destinations only what its own page links to.
PREPARE = """async () => {
    const article = document.querySelector(".bd-article");
    document.querySelectorAll("details").forEach(box => { box.open = true; });
    document.querySelectorAll(".toggle-hidden").forEach(box => box.classList.remove("toggle-hidden"));
    for (const still of document.querySelectorAll(".edgewise-still")) {
        const said = document.createElement("p");
        said.textContent = still.querySelector("img").alt;
        still.append(said);
    }
    for (const code of article.querySelectorAll("div.cell_input, div.highlight")) {
        if (code.offsetHeight < 400) code.style.breakInside = "avoid"; // longer code may go on overleaf
    }
    const images = [...article.querySelectorAll("img")];
    images.forEach(image => { image.loading = "eager"; });
    await Promise.all(images.map(image => image.decode()));
    await document.fonts.ready;
    const heads = [...article.querySelectorAll("section[id] > :is(h1, h2, h3)")].map(head => ({
        level: Number(head.tagName[1]), // a section may begin at the foot of a sheet, its heading overleaf
        id: head.id = head.id || "head-of-" + head.parentElement.id,
        text: [...head.childNodes].filter(n => !n.classList || !n.classList.contains("headerlink"))
            .map(n => n.textContent).join("").trim(),
    }));
    const names = document.createElement("nav");
    names.hidden = true;
    article.querySelectorAll("[id]").forEach(named => {
        names.append(Object.assign(document.createElement("a"), {href: "#" + encodeURIComponent(named.id)}));
    });
    document.body.append(names);
    return heads;
}"""


@dataclass
class Printed:
    """A page of the book on paper: its address in the site, its headings (level, id, text), its sheets."""

    name: str
    heads: list[dict]
    sheets: PdfReader
    first: int = 0

    @property
    def title(self) -> str:
        """What its first heading says."""
        return self.heads[0]["text"]

    @cached_property
    def places(self) -> dict:
        """Return for each name its sheet, counted from 0, and its height on it."""
        found = {}
        for name, place in self.sheets.named_destinations.items():
            number = self.sheets.get_destination_page_number(place)
            found[unquote(name.lstrip("/"))] = (number, float(place.top or 0))
        return found


def still(route):
    """Pass a page on with its live figures left as pictures."""
    answer = route.fetch()
    body = answer.text().replace('class="edgewise-element ', 'class="edgewise-still ')
    route.fulfill(response=answer, body=body)


def print_page(browser, site, name):
    """Print one page of the site."""
    page = browser.new_context(color_scheme="light", reduced_motion="reduce").new_page()
    page.set_default_timeout(PATIENCE)
    page.route("**/*.html", still)
    page.goto(site + name, wait_until="networkidle")
    page.evaluate("window.MathJax && MathJax.startup && MathJax.startup.promise")
    page.emulate_media(media="print")
    page.add_style_tag(content=STYLE)
    heads = page.evaluate(PREPARE)
    sheets = PdfReader(io.BytesIO(page.pdf(**PAPER, margin=MARGIN, scale=0.8)))
    page.context.close()
    return Printed(name, heads, sheets)


def print_text(browser, site, text, margin=None):
    """Print HTML of our own; addresses in it are the site's."""
    page = browser.new_context(color_scheme="light").new_page()
    page.set_default_timeout(PATIENCE)
    page.route(site + "blank", lambda route: route.fulfill(body=text, content_type="text/html"))
    page.goto(site + "blank", wait_until="networkidle")
    sheets = PdfReader(io.BytesIO(page.pdf(**PAPER, margin=margin or MARGIN)))
    page.context.close()
    return sheets


LOOK = """<!doctype html><html lang="en"><meta charset="utf-8"><style>
body { font: 11pt/1.45 system-ui, sans-serif; color: #222; margin: 0; }
a { color: inherit; text-decoration: none; }
.cover { height: 240mm; display: flex; flex-direction: column; justify-content: center; gap: 8mm; }
.cover h1 { font-size: 34pt; line-height: 1.1; margin: 0; }
.cover p { margin: 0; } .cover svg { width: 100%; height: auto; }
.line { display: flex; gap: .5em; margin: 0; } .line span { flex: 1; border-bottom: 1px dotted #999; }
.level1 { font-weight: 600; margin-top: .7em; break-after: avoid; }
.level2 { padding-left: 1.5em; font-size: 10pt; }
.foot { height: 296.9mm; position: relative; font-size: 8.5pt; color: #555;
  break-after: page; overflow: hidden; }
.foot p { position: absolute; bottom: 9mm; left: 18mm; right: 18mm; margin: 0; display: flex; }
.foot b { font-weight: 400; margin-left: auto; }
</style>"""


def cover():
    """Return the cover as HTML: title, what the book is, its picture at rest, authors and licence."""
    told = re.search(r"\*\*(.+?)\*\*", (ROOT / "book" / "index.md").read_text(encoding="utf-8")).group(1)
    picture = (ROOT / "book" / "_static" / "picture.svg").read_text(encoding="utf-8")
    licence = re.sub(r"<[^>]*>", "", CONFIG["html"]["extra_footer"]).partition(". ")[2]
    return (
        f'{LOOK}<title>{CONFIG["title"]}</title><div class="cover"><h1>{CONFIG["title"]}</h1><p>{told}</p>'
        '<div role="img" aria-label="A pair of sentences as three graphs of tokens">'
        f"{picture[picture.index('<svg') :]}</div>"
        f"<p>{CONFIG['author']}, {CONFIG['copyright']}</p><p>{licence}<br>{address()}</p></div>"
    )


def contents_page(site, printed):
    """Return the table of contents as HTML: chapters and their sections with the numbers of their sheets."""
    lines = []
    for part in printed:
        places = part.places
        for head in part.heads:
            if head["level"] <= 2:
                number = part.first + places.get(head["id"], (0, 0))[0] + 1
                lines.append(
                    f'<p class="line level{head["level"]}"><a href="{site}{part.name}#{head["id"]}">'
                    f"{html.escape(head['text'])}</a><span></span><b>{number}</b></p>"
                )
    return f"{LOOK}<h1>Contents</h1>{''.join(lines)}"


def feet(titles):
    """Return a sheet for each of ``titles`` as HTML, with that title and the sheet's number at its foot."""
    sheets = (
        f'<div class="foot"><p>{html.escape(title)}<b>{number}</b></p></div>'
        for number, title in enumerate(titles, 2)
    )
    return LOOK + "".join(sheets)


def link_inside(writer, site, printed, home):
    """Turn links to pages of the book, and to names on the same page, into places of this file.

    ``home`` names for each sheet the page of the site that it shows. Links to what the file lacks go.
    """
    places = {part.name: (part.first, part.places) for part in printed}
    for sheet, name in zip(writer.pages, home, strict=True):
        kept = ArrayObject()
        for reference in sheet.get("/Annots", ()):
            link = reference.get_object()
            target = link.get("/A", {}).get("/URI")
            if target is None and "/Dest" in link:
                target = f"{site}{name}#{str(link['/Dest']).lstrip('/')}"
            if target is not None and target.startswith(site):
                address, fragment = urldefrag(target.removeprefix(site))
                if address not in places:
                    continue
                first, named = places[address]
                number, top = named.get(unquote(fragment), (0, 842.0))
                page = writer.pages[first + number].indirect_reference
                place = [page, NameObject("/XYZ"), NumberObject(0), FloatObject(top), NumberObject(0)]
                link.pop("/A", None)
                link[NameObject("/Dest")] = ArrayObject(place)
            kept.append(reference)
        sheet[NameObject("/Annots")] = kept


def bookmark(writer, printed):
    """Make a bookmark of each heading, nested as the headings are."""
    for part in printed:
        above, places = {}, part.places
        for head in part.heads:
            number, top = places.get(head["id"], (0, 842.0))
            parent = next((above[n] for n in range(head["level"] - 1, 0, -1) if n in above), None)
            fit = Fit.xyz(left=0, top=top)
            place = writer.add_outline_item(
                title=head["text"], page_number=part.first + number, parent=parent, fit=fit, is_open=False
            )
            above = {n: item for n, item in above.items() if n < head["level"]} | {head["level"]: place}


def join(browser, site, printed):
    """Return the whole file: cover, contents and pages, numbered, linked and with bookmarks."""
    front = 0
    while True:  # the contents name the sheets' numbers, which depend on the contents' own length
        first = 1 + front
        for part in printed:
            part.first, first = first, first + len(part.sheets.pages)
        listed = print_text(browser, site, contents_page(site, printed))
        if len(listed.pages) == front:
            break
        front = len(listed.pages)
    writer = PdfWriter()
    home, titles = [""], []
    writer.add_page(print_text(browser, site, cover()).pages[0])
    for name, title, sheets in (
        ("", "Contents", listed),
        *((part.name, part.title, part.sheets) for part in printed),
    ):
        for sheet in sheets.pages:
            writer.add_page(sheet)
            home.append(name)
            titles.append(title)
    nothing = dict.fromkeys(MARGIN, "0")
    for sheet, foot in zip(
        writer.pages[1:], print_text(browser, site, feet(titles), nothing).pages, strict=True
    ):
        sheet.merge_page(foot)
        sheet.compress_content_streams()
    link_inside(writer, site, printed, home)
    writer.add_outline_item(title="Contents", page_number=1)
    bookmark(writer, printed)
    writer.add_metadata({"/Title": CONFIG["title"], "/Author": CONFIG["author"]})
    writer.page_mode = "/UseOutlines"
    writer.compress_identical_objects(remove_duplicates=True, remove_unreferenced=True)
    return writer


def main(names, target=TARGET):
    """Print the pages of the book called ``names``, or all, to ``target``."""
    with chromium() as browser, served() as site:
        printed = [print_page(browser, site, f"{name}.html") for name in names or pages()]
        writer = join(browser, site, printed)
    writer.write(target)
    return target


if __name__ == "__main__":
    path = main(sys.argv[1:])
    print(f"The book as a PDF is {path.relative_to(ROOT)}")
