"""A Sphinx extension: figures are part of the page, in its own colours, light and dark, and its own type.

Pictures that matplotlib has written as SVG are put into the page in place of a link to a file: the palette's
colours become the page's, ink that of the text, and what is white that of the page. White and black text
stays, since it stands on a colour of its own. On a narrow screen a picture is as wide as its smallest
letters need to be 11 pixels high.
"""

import re
from pathlib import Path

from attention_on_edges.figures.style import PALETTE

PICTURE = re.compile(r'<img\b[^>]*?\bsrc="(?:\.\./)*_images/([^"]+\.svg)"[^>]*>')
ALT = re.compile(r'\balt="([^"]*)"')
TAG = re.compile(r"<(\w+)\b[^>]*>")
COLORS = {color: f"var(--edge-{name})" for name, color in PALETTE.items()} | {PALETTE["ink"]: "currentColor"}
SHAPES = COLORS | {"#000000": "currentColor", "#ffffff": "var(--pst-color-background)"}
SIZE = re.compile(r"font-size: ([\d.]+)px")
FACE = re.compile(r"'Source Sans 3[^']*'")


def page_colors(tag):
    """Replace the palette of a tag, and of shapes black and white too, by the page's colours."""
    text = tag.group()
    for drawn, shown in (COLORS if tag.group(1) in ("text", "tspan") else SHAPES).items():
        text = text.replace(drawn, shown)
    return text


def inlined(svg, alt, prefix):
    """Return a picture as an element of a page; its ids begin with ``prefix``."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.S)
    used = set(re.findall(r"url\(#([^)]+)\)", svg)) | set(re.findall(r'href="#([^"]+)"', svg))
    svg = re.sub(r' id="([^"]+)"', lambda m: f' id="{prefix}{m[1]}"' if m[1] in used else "", svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\1{prefix}", svg)
    svg = FACE.sub("var(--figure-face)", TAG.sub(page_colors, svg))
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups()
    legible = 11 / min(map(float, SIZE.findall(svg)), default=11) * float(width)
    head = (
        f'<svg class="figure" role="img" aria-label="{alt}" viewBox="0 0 {width} {height}" '
        f'style="--legible: {legible:.0f}px; width: {float(width) / 12:.2f}em" xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return head + svg[svg.index(">") + 1 :]


def put_in(app, pagename, templatename, context, doctree):
    """Replace links to vector pictures by the pictures."""
    sources = {name: uri for uri, name in app.builder.images.items()}
    count = 0

    def replace(found):
        nonlocal count
        if found.group(1) not in sources:
            return found.group()
        count += 1
        svg = (Path(app.srcdir) / sources[found.group(1)]).read_text(encoding="utf-8")
        return inlined(svg, ALT.search(found.group()).group(1), f"f{count}-")

    if "body" in context:
        context["body"] = PICTURE.sub(replace, context["body"])


def setup(app):
    """Run when a page's body is written."""
    app.connect("html-page-context", put_in)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
