"""A Sphinx extension: what the landing page shows of the book, computed when the book is built.

Directives: ``{results}`` is a table of the artifacts' figures, ``{chapters}`` makes tiles of a table of
chapters, and ``{prerequisites}`` draws which chapter needs which, as their openings say.
"""

import html
import itertools
import json
import re
import textwrap

import networkx as nx
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import contents
import glyphs
import status_page
from contents import ROOT

CHAPTER = re.compile(r"\| \[(.+)\]\(([\w-]+)\.md\) \| (.+) \|$")
WORDS_A_MINUTE = 200
BOX, GAP, LINE = (150, 46), (18, 30), 17  # of the graph of chapters, in its own units


def source(page):
    """Return the text of a page of the table of contents."""
    return (ROOT / f"{page}.md").read_text(encoding="utf-8")


def minutes_to_read(text):
    """Return how long a page's prose takes to read, without its code."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"^(`{3,})\{code-cell\}.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\$\$.*?\$\$|\$[^$\n]+\$", " x ", text, flags=re.DOTALL)
    return max(1, round(len(re.findall(r"\w\S*", text)) / WORDS_A_MINUTE))


def time_to_run(stem):
    """Return the run time of a chapter's notebook in this build; empty if it has none."""
    seconds = status_page.seconds_of(stem)
    if seconds is None:
        return ""
    return f"{max(1, seconds):.0f}\xa0s" if seconds < 90 else f"{seconds / 60:.0f}\xa0min"


def prerequisites():
    """Return the graph of chapters: an edge to a chapter from each that its first "You need" names.

    Raises
    ------
    ValueError
        If chapters need each other in a cycle.
    """
    graph = nx.DiGraph()
    for page in contents.pages():
        text = source(page)
        title = re.search(r"^# (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M), re.M).group(1)
        needs = re.search(r"^You need (.*?)\.(?: |$)", text, re.MULTILINE)
        if needs or "/01-" in page:
            graph.add_node(page, title=title)
        for stem in re.findall(r"\]\(([\w-]+)\.md\)", needs.group(1) if needs else ""):
            graph.add_edge(f"book/{stem}", page)
    if not nx.is_directed_acyclic_graph(graph):
        raise ValueError(f"chapters need each other: {nx.find_cycle(graph)}")
    return graph


def places(graph):
    """Return the place of each chapter in the drawing: a row below all that it needs."""
    rows = [sorted(row) for row in nx.topological_generations(graph)]
    width = max(map(len, rows)) * (BOX[0] + GAP[0])
    found = {}
    for number, row in enumerate(rows):
        above = {page: [found[needed][0] for needed in graph.predecessors(page)] for page in row}
        row.sort(key=lambda page: (sum(above[page]) / max(1, len(above[page])), page))
        for column, page in enumerate(row):
            found[page] = ((column + 0.5) * width / len(row), number * (BOX[1] + GAP[1]) + BOX[1] / 2 + 1)
    return found, (width, len(rows) * (BOX[1] + GAP[1]) - GAP[1] + 2)


def route(start, end, boxes):
    """Return the corners of an arrow that passes between the boxes of each row on its way."""
    (x1, y1), (x2, y2) = start, end
    corners = [(x1, y1 + BOX[1] / 2)]
    for y in sorted({y for _, y in boxes if y1 < y < y2}):
        straight = x1 + (x2 - x1) * (y - y1) / (y2 - y1)
        gaps = [sum(pair) / 2 for pair in itertools.pairwise(sorted(x for x, row in boxes if row == y))]
        x = min(gaps, key=lambda gap: abs(gap - straight), default=straight)
        corners += [(x, y - BOX[1] / 2), (x, y + BOX[1] / 2)]
    return [*corners, (x2, y2 - BOX[1] / 2 - 5)]


def draw(graph):
    """Draw the graph of chapters as SVG; each box leads to its chapter."""
    reduced = nx.transitive_reduction(graph)
    where, (width, height) = places(reduced)
    lines, boxes = [], []
    for start, end in reduced.edges:
        corners = " ".join(f"{x:.0f},{y:.0f}" for x, y in route(where[start], where[end], where.values()))
        lines.append(f'<polyline points="{corners}" marker-end="url(#needs)"/>')
    for page, (x, y) in where.items():
        words = textwrap.wrap(graph.nodes[page]["title"], 19)
        top = y - LINE * (len(words) - 1) / 2
        text = "".join(
            f'<tspan x="{x:.0f}" y="{top + LINE * i:.0f}">{html.escape(word)} </tspan>'
            for i, word in enumerate(words)
        )
        boxes.append(
            f'<a href="{page.removeprefix("book/")}.html"><rect x="{x - BOX[0] / 2:.0f}" '
            f'y="{y - BOX[1] / 2:.0f}" width="{BOX[0]}" height="{BOX[1]}" rx="6"/><text>{text}</text></a>'
        )
    return (
        f'<svg class="chapter-graph" viewBox="0 0 {width} {height}" role="group" '
        'aria-label="Chapters, each below those that it needs">'
        '<defs><marker id="needs" viewBox="0 0 6 6" refX="1" refY="3" markerWidth="6" markerHeight="6" '
        'orient="auto"><path d="M0 0L6 3L0 6z"/></marker></defs>'
        f"{''.join(lines)}{''.join(boxes)}</svg>"
    )


def results(names=()):
    """Return rows from these artifacts, or all: model, task, layers, metric, value.

    Raises
    ------
    ValueError
        If there is none of a name.
    """
    found = {path.parent.name: path for path in sorted((ROOT / "book" / "artifacts").glob("*/metrics.json"))}
    if unknown := set(names) - set(found):
        raise ValueError(f"no artifact {', '.join(sorted(unknown))}; there are {', '.join(found)}")
    rows = []
    for path in [found[name] for name in names or found]:
        metrics = json.loads(path.read_text(encoding="utf-8"))
        config = json.loads(path.with_name("config.json").read_text(encoding="utf-8"))
        for split in config.get("tests", ["test"]):
            figures = metrics.get(split, {})
            if "exact_match" in figures:
                measure, value = f"whole sequences right, {split}", f"{100 * figures['exact_match']:.1f}\xa0%"
            elif "bleu" in figures:
                measure, value = f"BLEU, {split}", f"{figures['bleu']:.1f}"
            else:
                continue
            size = config["model"]
            layers = str(size["N"]) if "N" in size else f"up to {size['max_steps']} steps"
            rows.append([path.parent.name, config["task"], layers, measure, value])
    return rows


def signature():
    """Return sacreBLEU's signature of the artifacts' BLEU, the same for all."""
    found = set()
    for path in (ROOT / "book" / "artifacts").glob("*/metrics.json"):
        said = json.loads(path.read_text(encoding="utf-8")).get("signatures", {}).get("bleu")
        found |= {said} if said else set()
    return ", ".join(sorted(found))


def raw(text):
    """Return HTML as a node."""
    return nodes.raw("", text, format="html")


class Results(SphinxDirective):
    """``{results} NAME NAME ...``: a table of these artifacts' figures, or of all."""

    optional_arguments = 1
    final_argument_whitespace = True

    def run(self):
        """Make the table and the signature of its BLEU."""
        rows = results(" ".join(self.arguments).split())
        table = status_page.table([["model", "task", "layers", "measure", "result"]], rows)
        told = nodes.paragraph(
            "", "BLEU as sacreBLEU signs it: ", nodes.literal(text=signature()), nodes.Text(".")
        )
        return [table, *([told] if signature() else [])]


class Chapters(SphinxDirective):
    """``{chapters}``: tiles of a table whose rows hold a link to a chapter and its question."""

    has_content = True

    def run(self):
        """Draw a tile for each row."""
        rows = [CHAPTER.match(line) for line in self.content[2:]]
        if not all(rows):
            raise self.error("rows must be '| [TITLE](PAGE.md) | QUESTION |'")
        return [raw(f'<ul class="tiles">{"".join(tile(*row.groups()) for row in rows)}</ul>')]


def tile(title, stem, question):
    """Return a chapter's tile: its glyph, its question, and how long it takes to read and to run."""
    times = f"{minutes_to_read(source(f'book/{stem}'))}\xa0min to read"
    if seconds := time_to_run(stem):
        times += f", {seconds} to run"
    words = f"<strong>{html.escape(title)}</strong><span>{html.escape(question)}</span><small>{times}</small>"
    return f'<li><a href="{stem}.html">{glyphs.glyph(stem)}{words}</a></li>'


class Prerequisites(SphinxDirective):
    """``{prerequisites}``: the graph of chapters, with the content as its caption."""

    has_content = True

    def run(self):
        """Make the figure."""
        caption = html.escape(" ".join(self.content))
        return [raw(f"<figure>{draw(prerequisites())}<figcaption><p>{caption}</p></figcaption></figure>")]


def setup(app):
    """Register the directives."""
    for directive in (Results, Chapters, Prerequisites):
        app.add_directive(directive.__name__.lower(), directive)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
