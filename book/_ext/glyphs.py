"""A Sphinx extension: at the head of each page its glyph, a drawing of the graph that the page is about.

A glyph is a row of tokens with arcs between them, wide and low. Each page of the table of contents has one;
a page without does not build.
"""

import math
import random
from itertools import pairwise

from sphinx.util import logging

import contents

LOG = logging.getLogger(__name__)
WIDTH, HEIGHT, BASE = 720, 84, 72
"""Of a glyph, and the height at which its tokens are, in its own units."""


def row(count, first=24, last=WIDTH - 24):
    """Return places of tokens at equal distances."""
    return [first + (last - first) * i / (count - 1) for i in range(count)]


def arc(x1, x2, kind="", weight=1.0, base=BASE):
    """Draw an arc over two places; ``kind`` is a class of the style sheet."""
    top = base - min(abs(x2 - x1) * 0.42, base - 10)
    pull = top - (base - top) / 3
    path = f"M{x1:.1f} {base}C{x1:.1f} {pull:.1f} {x2:.1f} {pull:.1f} {x2:.1f} {base}"
    return f'<path class="{kind}" d="{path}" opacity="{weight:.2f}"/>'


def token(x, kind="", base=BASE, radius=4):
    """Draw a token."""
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{base:.1f}" r="{radius}"/>'


def tokens(places, kind=""):
    """Draw tokens on the base line."""
    return "".join(token(x, kind) for x in places)


def one_receiver():
    """Chapter 1: all tokens send to one, with different weights."""
    xs = row(17)
    arcs = (
        arc(x, xs[10], "b", 0.15 + 0.85 * math.exp(-((i - 4) ** 2) / 6)) for i, x in enumerate(xs) if i != 10
    )
    return "".join(arcs) + tokens(xs) + token(xs[10], "b", radius=6)


def encoder_and_decoder():
    """Chapter 2: a source on the left, a target on the right, and what leads across."""
    left, right = row(7, 24, 300), row(7, 420, WIDTH - 24)
    arcs = [arc(a, b, "b", 0.5) for a in left for b in left if a < b]
    arcs += [arc(a, b, "g", 0.6) for a in right for b in right if a < b]
    arcs += [arc(a, right[0], "o dashed", 0.7) for a in left]
    return "".join(arcs) + tokens(left, "b") + tokens(right, "g")


def neighbourhood():
    """Chapter 3: from a neighbourhood to a complete graph."""
    xs = row(19)
    arcs = [
        arc(xs[i], xs[i + step], "b", 0.8)
        for i, step in ((0, 1), (1, 2), (2, 1), (3, 3), (4, 1), (5, 2), (6, 1))
    ]
    arcs += [arc(xs[7], xs[9], "b", 0.8), arc(xs[8], xs[9], "b", 0.8)]
    arcs += [arc(xs[i], xs[j], "o", 0.45) for i in range(11, 19) for j in range(i + 1, 19)]
    return "".join(arcs) + tokens(xs[:10], "b") + tokens(xs[11:], "o") + token(xs[10], "pale")


def three_graphs():
    """Chapter 4: complete, bipartite and causal."""
    parts = [row(5, first, first + 176) for first in (24, 272, 520)]
    arcs = [arc(a, b, "b", 0.7) for a in parts[0] for b in parts[0] if a < b]
    arcs += [arc(a, b, "o dashed", 0.8) for a in parts[1][:3] for b in parts[1][3:]]
    arcs += [arc(a, b, "g", 0.3 + 0.14 * i) for i, a in enumerate(parts[2]) for b in parts[2] if a < b]
    kinds = ("b", "o", "g")
    return "".join(arcs) + "".join(tokens(part, kind) for part, kind in zip(parts, kinds, strict=True))


def six_ways():
    """Chapter 5: the same sum, six times."""
    kinds, drawn = ("b", "o", "g", "p", "s", "b"), []
    for i, kind in enumerate(kinds):
        xs = row(4, 24 + 116 * i, 24 + 116 * i + 84)
        drawn += [arc(x, xs[-1], f"{kind} {'dashed' if i < 2 else ''}", 1 - 0.1 * i) for x in xs[:-1]]
        drawn.append(tokens(xs[:-1]) + token(xs[-1], kind, radius=4 + i / 3))
    return "".join(drawn)


def layers():
    """Chapter 6: the same tokens, layer over layer."""
    xs, bases = row(15), (72, 46, 20)
    lines = [
        f'<path class="b" opacity="0.5" d="M{xs[i]:.1f} {low}L{xs[j]:.1f} {high}"/>'
        for low, high in pairwise(bases)
        for i in range(15)
        for j in range(max(i - 1, 0), min(i + 2, 15))
    ]
    return "".join(lines) + "".join(
        token(x, ("", "b", "o")[n], base) for n, base in enumerate(bases) for x in xs
    )


def learning():
    """Chapter 7: attention everywhere becomes attention to one place."""
    drawn = []
    for i in range(5):
        xs = row(6, 24 + 142 * i, 24 + 142 * i + 104)
        sharp = i / 4
        for j, x in enumerate(xs[:3]):
            drawn += [
                arc(x, y, "b" if k == j else "pale", 0.5 + 0.5 * sharp if k == j else 0.8 * (1 - sharp))
                for k, y in enumerate(xs[3:])
            ]
        drawn.append(tokens(xs[:3]) + tokens(xs[3:], "b"))
    return "".join(drawn)


def translation():
    """Chapter 8: words of two languages, in different orders."""
    top, order = row(12), (0, 1, 4, 2, 3, 5, 8, 6, 7, 11, 9, 10)
    lines = (
        f'<path class="o" d="M{top[i]:.1f} 14C{top[i]:.1f} 44 {top[j]:.1f} 40 {top[j]:.1f} {BASE}"/>'
        for j, i in enumerate(order)
    )
    return "".join(lines) + "".join(token(x, "b", 14) for x in top) + tokens(top, "g")


def heads():
    """Chapter 9: four heads, each with a habit of its own."""
    xs = row(21)
    habits = (("b", range(20), 1), ("o", range(0, 18, 3), 3), ("g", (2, 9), 8), ("p", (5, 12), 6))
    arcs = [
        arc(xs[i], xs[i + step], kind, 0.85) for kind, starts, step in habits for i in starts if i + step < 21
    ]
    return "".join(arcs) + tokens(xs)


def sparse():
    """Chapter 10: windows, and two tokens that attend to all."""
    xs = row(27)
    arcs = [arc(xs[i], xs[i + step], "b", 0.8) for i in range(27) for step in (1, 2) if i + step < 27]
    arcs += [arc(xs[0], x, "o", 0.35) for x in xs[3:]]
    draw = random.Random(4)
    arcs += [arc(*(xs[i] for i in draw.sample(range(27), 2)), "g dashed", 0.7) for _ in range(6)]
    return "".join(arcs) + tokens(xs) + token(xs[0], "o", radius=6)


def adaptive():
    """Chapter 11: each token takes steps of its own number."""
    heights = (2, 1, 3, 5, 2, 1, 4, 2, 3, 1, 2, 5, 3, 1, 2, 4, 2, 1, 3)
    columns = zip(row(len(heights)), heights, strict=True)
    return "".join(
        token(x, "o" if step == height - 1 else "b", BASE - 13 * step, 4)
        for x, height in columns
        for step in range(height)
    )


def machines():
    """Chapter 12: two machines, one model."""
    left, right = row(9, 24, 320), row(9, 400, WIDTH - 24)
    arcs = [arc(a, b, "b", 0.45) for side in (left, right) for a in side for b in side if 0 < b - a < 120]
    arcs += [arc(a, b, "o dashed", 0.8) for a, b in zip(left[::2], right[::2], strict=True)]
    return "".join(arcs) + tokens(left, "b") + tokens(right, "b")


def growing():
    """Chapter 13: a causal graph that grows by a token."""
    xs = row(16)
    arcs = [arc(xs[j], xs[i], "g", 0.3) for i in range(12) for j in range(max(i - 4, 0), i)]
    arcs += [arc(x, xs[12], "o", 0.9) for x in xs[8:12]] + [arc(xs[0], xs[12], "o", 0.9)]
    return "".join(arcs) + tokens(xs[:12], "g") + token(xs[12], "o", radius=6) + tokens(xs[13:], "pale")


def exercises():
    """The lab: edges to be found."""
    xs = row(13)
    arcs = [arc(xs[i], xs[i + 2], "b" if i % 3 else "pale dashed", 0.9) for i in range(11)]
    return "".join(arcs) + tokens(xs)


def plain():
    """The back matter: the mark, three tokens and their arcs, at the left."""
    xs = row(4, 24, 120)
    return "".join(arc(a, b, "b", 0.8) for a in xs for b in xs if a < b) + tokens(xs)


CHAPTERS = (
    one_receiver, encoder_and_decoder, neighbourhood, three_graphs, six_ways, layers, learning, translation,
    heads, sparse, adaptive, machines, growing,
)  # fmt: skip
GLYPHS = {f"{number:02}": glyph for number, glyph in enumerate(CHAPTERS, 1)} | {"lab": exercises}
BACK = (
    "using", "running", "benchmarks", "contributing", "changelog", "errata", "notation", "api",
    "api-workshop", "verification", "status", "references",
)  # fmt: skip
GLYPHS |= dict.fromkeys(BACK, plain) | {"half-hour": heads}


def glyph(page):
    """Return a page's glyph as an element; None if it has none."""
    stem = page.rsplit("/", 1)[-1]
    draw = GLYPHS.get(stem) or GLYPHS.get(stem[:2])
    if draw is None:
        return None
    return f'<svg class="glyph" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">{draw()}</svg>'


def check_pages(app):
    """Name the pages without a glyph; the landing page has the translator in its place."""
    for page in contents.pages():
        if page != "book/index" and glyph(page) is None:
            LOG.warning("%s.md has no glyph: add it to book/_ext/glyphs.py", page)


def put_in(app, pagename, templatename, context, doctree):
    """Put a page's glyph above its heading."""
    if "body" in context and pagename in contents.pages() and (drawn := glyph(pagename)):
        context["body"] = context["body"].replace("<h1>", f"{drawn}\n<h1>", 1)


def setup(app):
    """Check pages before, draw when a page's body is written."""
    app.connect("builder-inited", check_pages)
    app.connect("html-page-context", put_in)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
