"""Draws the picture of the README and the landing page: the graphs of one sentence pair."""

from io import StringIO
from pathlib import Path

from attention_on_edges.figures import draw_batch, use_style
from edgewise.graphs import bipartite, causal, complete

SOURCE = ["a", "man", "rides", "a", "bike"]
TARGET = ["<sos>", "ein", "Mann", "fährt", "Rad"]

SECONDS = 2.0
"""How long a step is seen."""


def draw():
    """Draw the three graphs of the sentence pair; return the figure."""
    use_style()
    n, m = len(SOURCE), len(TARGET)
    graphs = (graph.to_networkx() for graph in (complete(n), bipartite(n, m), causal(m)))
    return draw_batch(*graphs, SOURCE, TARGET)


def motion():
    """Return a style sheet that shows the source's edges first, then the in-edges of each target token.

    It moves a picture that is a document of its own, as in the README, and none that is part of a page.
    """
    steps = ['[id^="enc-"]', *(f':is([id^="cross-"], [id^="dec-"])[id$="-{j}"]' for j in range(len(TARGET)))]
    seen = 100 / len(steps)
    whole = SECONDS * len(steps)
    rules = (
        f"svg:root {edges} {{ animation: step {whole}s {SECONDS * i - whole}s infinite }}"
        for i, edges in enumerate(steps)
    )
    frames = f"0%, {seen - 3:.0f}%, 100% {{ opacity: 1 }} {seen + 2:.0f}%, 95% {{ opacity: 0.12 }}"
    return (
        f"<style>@keyframes step {{ {frames} }}\n"
        f"@media screen and (prefers-reduced-motion: no-preference) {{ {' '.join(rules)} }}</style>"
    )


def main():
    """Write ``book/_static/picture.svg``, on white: in the README it stands on any ground."""
    drawn = StringIO()
    draw().savefig(drawn, format="svg", metadata={"Date": None}, facecolor="white", transparent=False)
    lines = [line.rstrip() for line in drawn.getvalue().replace("</svg>", f"{motion()}\n</svg>").splitlines()]
    path = Path(__file__).resolve().parents[1] / "_static" / "picture.svg"
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
