"""Draws the picture of the README and the landing page: the graphs of one sentence pair."""

from pathlib import Path

from attention_on_edges.figures import draw_batch, use_style
from edgewise.graphs import bipartite, causal, complete

SOURCE = ["a", "man", "rides", "a", "bike"]
TARGET = ["<sos>", "ein", "Mann", "fährt", "Rad"]


def draw():
    """Draw the three graphs of the sentence pair; return the figure."""
    use_style()
    n, m = len(SOURCE), len(TARGET)
    graphs = (graph.to_networkx() for graph in (complete(n), bipartite(n, m), causal(m)))
    return draw_batch(*graphs, SOURCE, TARGET)


def main():
    """Write ``book/_static/picture.svg``."""
    path = Path(__file__).resolve().parents[1] / "_static" / "picture.svg"
    draw().savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
