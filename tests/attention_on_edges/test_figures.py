import re

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyArrowPatch

from attention_on_edges.attention import attention_scores, dot_product_attention
from attention_on_edges.figures import (
    PALETTE,
    attention_maps,
    curves,
    draw_architecture,
    draw_batch,
    draw_forward_pass,
    draw_graph,
    draw_layers,
    draw_molecule,
    draw_shares,
    draw_social,
    draw_with_mask,
    show_source,
    table,
    use_style,
)
from attention_on_edges.figures.source import _computation
from attention_on_edges.figures.style import EDGE_KINDS, MATRIX, SIGNED
from attention_on_edges.models.dense import greedy
from attention_on_edges.models.transformer import Decoder
from edgewise.graphs import bipartite, causal, complete


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


def test_the_in_edges_of_the_highlighted_receiver_stand_out():
    fig = draw_graph(causal(4).to_networkx(), list("abcd"), highlight=2)
    assert sum(p.get_linewidth() == 2.0 for p in arrows(fig)) == 3


def test_nodes_are_where_the_caller_places_them():
    places = {0: (0, 0), 1: (3, 1), 2: (5, -2)}
    ax = draw_graph(causal(3).to_networkx(), list("abc"), places).axes[0]
    assert {t.get_text(): t.get_position() for t in ax.texts} == {"a": (0, 0), "b": (3, 1), "c": (5, -2)}


@pytest.mark.parametrize(("graph", "row"), [(causal(4), 2), (complete(3), None)])
def test_a_graph_stands_beside_its_mask_with_one_row_framed(graph, row):
    labels = [f"t{i}" for i in range(len(graph.to_networkx()))]
    fig = draw_with_mask(graph, labels, row)
    _, right = fig.axes
    assert len(arrows(fig)) == graph.num_edges
    assert np.array_equal(right.images[0].get_array(), graph.to_mask().numpy())
    assert [t.get_text() for t in right.get_xticklabels()] == labels
    assert [t.get_text() for t in right.get_yticklabels()] == labels
    frames = [(p.get_y() + 0.5, p.get_width()) for p in right.patches]
    assert frames == ([] if row is None else [(row, graph.num_src)])


def test_a_molecule_has_a_line_for_each_bond_letters_and_discs_of_the_weights():
    places = [(0.0, 0.0), (1.0, 0.0), (2.0, 0.0), (2.0, 1.0)]
    ax = draw_molecule(places, "CCOC", [(0, 1, 2), (1, 2, 4), (2, 3, 4), (3, 1, 4)], {0: 0.25, 3: 0.75}).axes[
        0
    ]
    assert [line.get_linestyle() for line in ax.lines] == ["-", "-", *["-", "--"] * 3]
    double, other = (line.get_xydata() for line in ax.lines[:2])
    assert np.allclose(double + other, 2 * np.array(places[:2]))
    assert [text.get_text() for text in ax.texts] == ["O"]
    assert min(ax.lines[3].get_ydata()) > 0  # inside of the ring
    assert max(ax.lines[5].get_xdata()) < 2
    areas = {tuple(c.get_offsets()[0]): c.get_sizes()[0] for c in ax.collections}
    assert areas[3 - 1, 1] == 3 * areas[0, 0]


def test_the_full_picture_shows_every_edge_but_loops():
    graphs = [g.to_networkx() for g in (complete(3), bipartite(3, 4), causal(4))]
    fig = draw_batch(*graphs, list("abc"), list("defg"))
    assert len(arrows(fig)) == sum(g.number_of_edges() - nx.number_of_selfloops(g) for g in graphs)


def test_every_sentence_of_a_batch_is_drawn_twice_in_its_processes_look():
    """Above in the batch, below with its process; its edges are those of a complete graph."""
    ax = draw_shares([3, 5, 2], [[1], [0, 2]]).axes[0]
    rings = [line for line in ax.lines if line.get_marker() in "os"]
    assert sorted((len(ring.get_xdata()), ring.get_marker()) for ring in rings) == [
        (2, "s"), (2, "s"), (3, "s"), (3, "s"), (5, "o"), (5, "o")
    ]  # fmt: skip
    edges = [len(c.get_segments()) for c in ax.collections if isinstance(c, LineCollection)]
    assert sorted(edges) == [1, 1, 3, 3, 10, 10]
    assert {"process 0: 5 tokens", "process 1: 5 tokens"} <= {t.get_text() for t in ax.texts}


def test_forward_pass_has_three_rounds_a_layer():
    texts = [t.get_text() for t in draw_forward_pass(3).axes[0].texts]
    assert sum("layer" in t for t in texts) == 9


def test_layers_are_drawn_step_by_step_with_gaps_where_one_is_missing():
    fig = draw_layers({"A": ["in", "sum", "out"], "B": ["in", "", "out"]}, between_nodes=[1])
    assert [t.get_text() for t in fig.axes[0].texts] == ["A", "in", "sum", "out", "B", "in", "out"]
    boxes = [p for p in fig.axes[0].patches if not isinstance(p, FancyArrowPatch)]
    assert [p.get_edgecolor() == to_rgba(PALETTE["orange"]) for p in boxes] == [False, True] + 3 * [False]
    assert len(arrows(fig)) == 3


def test_a_persons_neighbours_point_to_her():
    friends = nx.Graph([(0, 1), (1, 2), (1, 3), (3, 4)])
    fig = draw_social(friends, ["x", "y", "x", "y", "x"], highlight=1)
    place = {t.get_text(): t.get_position() for t in fig.axes[0].texts}
    tips = [tuple(p._posA_posB[1]) for p in arrows(fig)]
    assert tips == [place["1"]] * 3, "from 0, 2 and 3"
    [weak] = (c for c in fig.axes[0].collections if isinstance(c, LineCollection))
    assert len(weak.get_segments()) == 1
    assert [t.get_text() for t in fig.axes[0].get_legend().get_texts()] == ["x", "y"]


def test_the_architecture_has_a_norm_a_sublayer_and_one_a_side():
    ax = draw_architecture().axes[0]
    places = {}
    for text in ax.texts:
        places.setdefault(text.get_text(), []).append(text.get_position())
    assert len(places["norm"]) == 5 + 2
    assert len(places["+"]) == 5 + 2, "a sum per sub-layer, and one for the position on each side"
    trunks = {x for x, _ in places["+"]}
    assert sum(x in trunks for x, _ in places["norm"]) == 2, "the others are on the branches"
    colors = {p.get_edgecolor() for p in ax.patches}
    assert colors >= {to_rgba(color) for color, _ in EDGE_KINDS.values()}


def test_maps_share_a_scale_from_zero_to_one():
    maps = [np.eye(2), np.full((2, 2), 0.5)]
    fig = attention_maps(maps, ["x", "y"], ["a", "b"], ["one", "two"])
    for ax, weights in zip(fig.axes, maps, strict=False):
        assert ax.images[0].get_clim() == (0, 1)
        assert np.array_equal(ax.images[0].get_array(), weights)


def test_curves_differ_in_more_than_colour():
    lines = curves({"a": ([1, 2], [3, 4]), "b": ([1, 2], [4, 3])}, "x", "y").axes[0].lines
    assert lines[0].get_linestyle() != lines[1].get_linestyle()


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("name", ["blue", "orange", "green", "purple", "ink"])
def test_line_colours_stand_out_from_paper(name):
    assert 1.05 / (luminance(PALETTE[name]) + 0.05) >= 3, "WCAG 2.1, 1.4.11"


def test_matrices_let_the_page_show_through_where_they_are_zero():
    use_style()
    assert plt.rcParams["image.cmap"] == MATRIX
    matrix, signed = (plt.get_cmap(name) for name in (MATRIX, SIGNED))
    assert matrix(0.0)[3] == 0
    assert signed(0.5)[3] < 0.01
    assert matrix(1.0) == signed(1.0) == to_rgba(PALETTE["blue"])
    assert signed(0.0) == to_rgba(PALETTE["orange"])


def test_source_is_the_packages_own_without_its_docstring():
    shown = show_source(attention_scores, dot_product_attention)
    text = str(shown)
    assert text.startswith("# attention_on_edges/attention.py: attention_scores\ndef attention_scores(")
    assert '"""' not in text
    assert "raise" not in text
    assert "return query @ key" in text.split("\n\n")[0]
    assert "noqa" not in str(show_source(Decoder))
    assert str(show_source(greedy)).startswith(
        "# attention_on_edges/models/dense.py: greedy\n@torch.no_grad()"
    )
    page = shown._repr_html_()
    lines = re.findall(r'<span class="line" style="--hang: (\d+)ch">', page)
    assert [int(hang) for hang in lines[:2]] == [4, 8]
    assert len(lines) == len(text.splitlines()) - 3, "without the two places and the gap"


def test_of_a_function_what_it_computes_is_shown():
    code = [
        "def f(x):",
        "    check_count('x', x)",
        "    _check_mask(x)",
        "    if x < 0:",
        "        raise ValueError(x)",
        "    if x:",
        "        raise KeyError",
        "    else:",
        "        y = 1",
        "    if y:",
        "        raise Diverged(y)",
        "    checked(x)",
    ]
    assert _computation("\n".join(code)).split("\n") == [code[0], *code[5:]]


def test_table_formats_by_column_and_aligns_numbers_to_the_right():
    shown = table(
        ["name", "count", "share"], [["a<b", 1234, torch.tensor(0.126)], ["c", 5, "none"]], ["", "", ".0%"]
    )
    assert str(shown).splitlines()[2:] == ["a<b       1,234      13%", "c             5     none"]
    assert "a&lt;b" in shown._repr_html_()
    assert 'right;">  1,234<' in shown._repr_html_()
    assert [row[1] for row in table(["a", "b"], [["x", 0.00012345], ["y", True]]).rows] == [
        "0.000123",
        "True",
    ]


def test_signs_of_numbers_are_minus_signs_in_pages_and_hyphens_in_a_terminal():
    cells = {
        "-3.7 (-3.7 to -.6)": "~3.7 (~3.7 to ~.6)",
        "8 x 200-300, 1e-05": "8 x 200-300, 1e-05",
        "2026-11-24 d-1 -x": "2026-11-24 d-1 -x",
    }
    made = table(["a", "b"], [[cell, -2] for cell in cells])
    page = made._repr_html_().replace("\N{MINUS SIGN}", "~")
    for cell, shown in cells.items():
        assert shown in page
        assert cell in repr(made)
    assert "~2</td>" in page
    assert "-2" in repr(made)
