import re

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.patches import FancyArrowPatch

from attention_on_edges.attention import attention_scores, dot_product_attention
from attention_on_edges.figures import PALETTE, draw_graph, show_source, table
from attention_on_edges.models.dense import greedy
from attention_on_edges.models.transformer import Decoder
from edgewise.graphs import bipartite, causal, complete
from paths import BOOK


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def arrows(fig):
    return [p for p in fig.axes[0].patches if isinstance(p, FancyArrowPatch)]


@pytest.mark.parametrize(("graph", "layout"), [(causal(4), "line"), (complete(5), "circle")])
def test_a_graph_is_drawn_with_all_its_edges_and_labels(graph, layout):
    drawn = graph.to_networkx()
    labels = [f"t{i}" for i in range(len(drawn))]
    fig = draw_graph(drawn, labels, layout)
    assert len(arrows(fig)) == graph.num_edges
    assert {t.get_text() for t in fig.axes[0].texts} >= set(labels)


def test_the_full_picture_shows_every_edge_but_loops():
    drawn = (BOOK / "_static" / "drawings" / "pair.svg").read_text(encoding="utf-8")
    arrows = re.findall(r'id="(enc|cross|dec)-(\d+)-(\d+)"', drawn)
    graphs = {"enc": complete(8), "cross": bipartite(8, 8), "dec": causal(8)}
    for kind, graph in graphs.items():
        edges = zip(graph.src.tolist(), graph.dst.tolist(), strict=True)
        found = {(int(i), int(j)) for name, i, j in arrows if name == kind}
        assert found == {(i, j) for i, j in edges if i != j or kind == "cross"}


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("name", ["blue", "orange", "green", "purple", "ink"])
def test_line_colours_stand_out_from_paper(name):
    assert 1.05 / (luminance(PALETTE[name]) + 0.05) >= 3, "WCAG 2.1, 1.4.11"


def test_source_is_the_packages_own_without_its_docstring():
    shown = show_source(attention_scores, dot_product_attention)
    text = str(shown)
    assert text.startswith("# attention_on_edges/attention.py: attention_scores\ndef attention_scores(")
    assert '"""' not in text
    assert "return query @ key" in text.split("\n\n")[0]
    assert "noqa" not in str(show_source(Decoder))
    assert str(show_source(greedy)).startswith(
        "# attention_on_edges/models/dense.py: greedy\n@torch.no_grad()"
    )
    page = shown._repr_html_()
    lines = re.findall(r'<span class="line" style="--hang: (\d+)ch">', page)
    assert [int(hang) for hang in lines[:2]] == [4, 8]
    assert len(lines) == len(text.splitlines()) - 3, "without the two places and the gap"


def test_table_formats_by_column_and_aligns_numbers_to_the_right():
    rows = [["a<b", 1234, torch.tensor(0.126)], ["c", 5, "none"]]
    shown = table(["name", "count", "share"], rows, ["", "", ".0%"], {"name": "fr"})
    assert str(shown).splitlines()[2:] == ["a<b       1,234      13%", "c             5     none"]
    assert '<span lang="fr" translate="no">a&lt;b</span>' in shown._repr_html_()
    assert 'right;">  1,234<' in shown._repr_html_()
    assert [row[1] for row in table(["a", "b"], [["x", 0.00012345], ["y", True]]).rows] == [
        "0.000123",
        "True",
    ]
