"""A Sphinx extension: the site's files besides its pages.

A zip of the whole book for reading without a network; a page for addresses that do not exist; a description
of each page for those who share its address, and, where ``_config.yml`` sets the site's address
(``html: baseurl``), a picture for them and a sitemap.
"""

import html
import re
import zipfile
from pathlib import Path
from urllib.parse import urljoin

from docutils import nodes

ZIP = "attention-on-edges.zip"
CARD = "_static/card.png"
FONTS = sorted(path.name for path in (Path(__file__).parents[1] / "_static" / "fonts").glob("*.woff2"))
PRELOAD = re.compile(rb'<link rel="preload"[^>]* as="font"[^>]*>\n?')
LONGEST = 200  # characters of a description
LINK = re.compile(r'<a class="offline-copy"[^>]*>(.*?)</a>', re.DOTALL)
"""The link to the zip on the landing page; the copy inside the zip does without."""

LOST = """<section id="no-such-page"><h1>No such page</h1>
<p>There is nothing at this address. The page may have been renamed.</p>
<ul><li><a href="book/index.html">All chapters</a></li><li><a href="search.html">Search the book</a></li>
<li><a href="genindex.html">Index of the package</a></li></ul></section>"""


def lost_page(app):
    """Add ``404.html``, which most servers show for an unknown address."""
    yield "404", {"title": "No such page", "body": LOST}, "page.html"


def describe(doctree):
    """Return the beginning of a page's first real paragraph, cut at a word."""
    texts = (paragraph.astext() for paragraph in doctree.findall(nodes.paragraph)) if doctree else ()
    text = " ".join(next((text for text in texts if len(text) > 60), "").split())
    return text if len(text) <= LONGEST else text[:LONGEST].rsplit(" ", 1)[0] + " …"


def add_metadata(app, pagename, templatename, context, doctree):
    """Describe a page in its head, in words that search engines and messengers show."""
    base = app.config.html_baseurl
    title = re.sub(r"<[^>]*>", "", context.get("title", ""))
    facts = {"og:title": title, "og:type": "website", "og:site_name": app.config.html_title}
    tags = []
    if text := describe(doctree):
        facts["og:description"] = text
        tags.append(f'<meta name="description" content="{html.escape(text)}">')
    if base:
        facts |= {"og:url": urljoin(base, f"{pagename}.html"), "og:image": urljoin(base, CARD)}
        tags.append('<meta name="twitter:card" content="summary_large_image">')
    tags += [f'<meta property="{key}" content="{html.escape(value)}">' for key, value in facts.items()]
    for font in FONTS:  # early enough for the first paint: later they would move what is being read
        place = context["pathto"](f"_static/fonts/{font}", 1)
        tags.append(f'<link rel="preload" href="{place}" as="font" type="font/woff2" crossorigin>')
    if base and pagename == "404":  # shown at any depth: its links start from the site's address
        tags.insert(0, f'<base href="{html.escape(base)}">')
    context["metatags"] = context.get("metatags", "") + "\n".join(tags)


def draw_card(path):
    """Draw the picture that goes with a shared address: the book's name under the arcs of one receiver."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Curve

    from attention_on_edges.figures import PALETTE, use_style

    use_style()
    figure, ax = plt.subplots(figsize=(12, 6.3), layout="none")
    ax.set_position((0, 0, 1, 1))
    ax.set(xlim=(0, 12), ylim=(0, 6.3))
    ax.axis("off")
    for i in range(17):
        if i != 10:
            start, end, top = 1 + i * 0.625, 7.25, 2.4 + abs(i - 10) * 0.42
            curve = Curve([(start, 2.2), (start, top), (end, top), (end, 2.2)], [1, 4, 4, 4])
            weight = 0.2 + 0.8 * 2 ** (-((i - 4) ** 2) / 4)
            ax.add_patch(PathPatch(curve, fc="none", ec=PALETTE["blue"], lw=3, alpha=weight))
        ax.plot(1 + i * 0.625, 2.2, "o", ms=16 if i == 10 else 9, color=PALETTE["blue" if i == 10 else "ink"])
    ax.text(0.95, 1.05, "Attention on Edges", size=54, color=PALETTE["ink"])
    ax.text(
        0.98,
        0.5,
        "The Transformer as a graph neural network: a book that runs",
        size=22,
        color=PALETTE["ink"],
    )
    figure.savefig(path, dpi=100, facecolor="white")
    plt.close(figure)


def sitemap(base, names):
    """Return a sitemap of the pages called ``names``."""
    places = "".join(f"<url><loc>{html.escape(urljoin(base, name))}</loc></url>\n" for name in names)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f'{head}<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{places}</urlset>\n'


def pack(folder, target):
    """Write all files of a folder into a zip, the same bytes for the same files.

    Fonts cannot be preloaded from a disk; there a page waits for them.
    """
    root = Path(ZIP).stem
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != target)
    with zipfile.ZipFile(target, "w") as packed:
        for path in files:
            name = path.relative_to(folder)
            data = path.read_bytes()
            if name.as_posix() == "book/index.html":
                data = LINK.sub(r"\1", data.decode()).encode()
            if name.suffix == ".html":
                data = PRELOAD.sub(b"", data)
            if name.as_posix() == "_static/book.css":
                data = data.replace(b"font-display: optional", b"font-display: block")
            entry = zipfile.ZipInfo(f"{root}/{name.as_posix()}")
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, data, zipfile.ZIP_DEFLATED, 6)


def write_files(app, error):
    """Write the files that need the whole site."""
    if error or app.builder.name != "html":
        return
    folder, base = Path(app.outdir), app.config.html_baseurl
    if base:
        draw_card(folder / CARD)
        pages = sorted(f"{name}.html" for name in app.env.found_docs)
        (folder / "sitemap.xml").write_text(sitemap(base, pages), encoding="utf-8")
    pack(folder, folder / ZIP)


def setup(app):
    """Run while pages are written, and after Jupyter Book has written its own."""
    app.connect("html-collect-pages", lost_page)
    app.connect("html-page-context", add_metadata)
    app.connect("build-finished", write_files, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
