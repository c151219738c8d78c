import json
import re

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pytest
from edgewise.attention import dot_product_attention
from edgewise.dense import greedy
from edgewise.figures import (
    PALETTE,
    AttentionPlayer,
    att_animation,
    attention_maps,
    bars,
    curves,
    draw_architecture,
    draw_batch,
    draw_forward_pass,
    draw_graph,
    draw_packing,
    show_source,
    use_style,
)
from edgewise.figures.style import EDGE_KINDS
from edgewise.graphs import bipartite, causal, complete
from edgewise.message_passing import propagate_attention
from edgewise.transformer import Decoder
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyArrowPatch


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def arrows(fig):
    return [p for p in fig.axes[0].patches if isinstance(p, FancyArrowPatch)]


@pytest.mark.parametrize(
    ("graph", "layout"), [(causal(4), "line"), (complete(5), "circle"), (bipartite(2, 3), "sides")]
)
def test_a_graph_is_drawn_with_all_its_edges_and_labels(graph, layout):
    drawn = graph.to_networkx()
    labels = [f"t{i}" for i in range(len(drawn))]
    fig = draw_graph(drawn, labels, layout)
    assert len(arrows(fig)) == graph.num_edges
    assert {t.get_text() for t in fig.axes[0].texts} >= set(labels)


def test_the_in_edges_of_the_highlighted_receiver_stand_out():
    fig = draw_graph(causal(4).to_networkx(), list("abcd"), highlight=2)
    assert sum(p.get_linewidth() == 2.0 for p in arrows(fig)) == 3


def test_the_full_picture_shows_every_edge_but_loops():
    graphs = [g.to_networkx() for g in (complete(3), bipartite(3, 4), causal(4))]
    fig = draw_batch(*graphs, list("abc"), list("defg"))
    assert len(arrows(fig)) == sum(g.number_of_edges() - nx.number_of_selfloops(g) for g in graphs)


def test_packing_counts_slots():
    titles = [ax.get_title(loc="left") for ax in draw_packing([4, 7, 2]).axes]
    assert titles == ["padded: 21 slots", "packed: 13 tokens"]


def test_forward_pass_has_three_rounds_a_layer():
    texts = [t.get_text() for t in draw_forward_pass(3).axes[0].texts]
    assert sum("layer" in t for t in texts) == 9


@pytest.mark.parametrize("norm_first", [True, False])
def test_the_architecture_has_a_norm_a_sublayer_and_one_a_side(norm_first):
    ax = draw_architecture(norm_first).axes[0]
    places = {}
    for text in ax.texts:
        places.setdefault(text.get_text(), []).append(text.get_position())
    assert len(places["norm"]) == 5 + 2
    assert len(places["+"]) == 5 + 2, "a sum a sub-layer, and one for the position on each side"
    trunks = {x for x, _ in places["+"]}
    assert sum(x in trunks for x, _ in places["norm"]) == (2 if norm_first else 7)
    assert kinds(ax) == {"enc", "dec", "cross"}


def kinds(ax):
    """Which kinds of edges have a box of their colour."""
    colors = {p.get_edgecolor() for p in ax.patches}
    return {kind for kind, (color, _) in EDGE_KINDS.items() if to_rgba(color) in colors}


def test_maps_share_a_scale_from_zero_to_one():
    fig = attention_maps([np.eye(2), np.full((2, 2), 0.5)], ["x", "y"], ["a", "b"], ["one", "two"])
    assert [ax.images[0].get_clim() for ax in fig.axes[:2]] == [(0, 1)] * 2


def test_curves_and_bars_differ_in_more_than_colour():
    lines = curves({"a": ([1, 2], [3, 4]), "b": ([1, 2], [4, 3])}, "x", "y").axes[0].lines
    assert lines[0].get_linestyle() != lines[1].get_linestyle()
    patches = bars({"g": {"a": 1.0, "b": 2.0}}, "ms").axes[0].patches
    assert patches[0].get_hatch() != patches[1].get_hatch()
    assert [p.get_height() for p in patches] == [1.0, 2.0]


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("name", ["blue", "orange", "green", "purple", "ink"])
def test_line_colours_stand_out_from_paper(name):
    assert 1.05 / (luminance(PALETTE[name]) + 0.05) >= 3, "WCAG 2.1, 1.4.11"


def test_style_draws_vectors_and_leaves_no_random_ids():
    use_style()
    assert plt.rcParams["svg.hashsalt"] == "edgewise"


class TestPlayer:
    weights = np.array([[[0.5, 0.5], [0.25, 0.75]], [[1.0, 0.0], [0.0, 1.0]]])

    def player(self):
        return AttentionPlayer(self.weights, ["x", "<y>"], ["a", "b"], title='"T"')

    def test_the_page_holds_the_weights_to_a_thousandth(self):
        text = self.player()._repr_html_()
        data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', text, re.S).group(1))
        assert np.allclose(np.array(data["weights"]) / 1000, self.weights, atol=5e-4)
        assert data["receivers"] == ["x", "<y>"]

    def test_without_a_script_there_is_a_described_picture(self):
        text = self.player()._repr_html_()
        assert 'src="data:image/png;base64,iVBOR' in text
        assert 'alt="&quot;T&quot;, step 2: 2 tokens listen to 2; the token heard most gets 1.00' in text

    def test_it_asks_for_nothing_from_outside(self):
        text = re.sub(r"base64,[^\"]*", "", self.player()._repr_html_())
        assert re.findall(r"https?://[^\s\"']+", text) == ["http://www.w3.org/2000/svg"]

    def test_tokens_cannot_end_the_script(self):
        text = AttentionPlayer(self.weights, ["</script>", "b"], ["a", "b"])._repr_html_()
        assert text.count("</script>") == 2

    def test_animation_picks_mode_and_head(self):
        heads = np.array([0.0, 0.3])[:, None, None]
        maps = [[np.full((2, r, s), m) + heads for r, s in ((3, 3), (2, 3), (2, 2))] for m in (0.1, 0.2)]
        shown = att_animation(maps, "e2d", list("abc"), list("xy"), 1)
        assert np.array_equal(shown.weights, [np.full((2, 3), m) for m in (0.4, 0.5)])
        assert (shown.senders, shown.receivers) == (list("abc"), list("xy"))
        assert att_animation(maps, "d2d", list("abc"), list("xy"), 0).senders == list("xy")
        assert att_animation(maps, "e2e", list("abc"), list("xy"), 0).receivers == list("abc")


def test_source_is_the_packages_own_without_its_docstring():
    text = str(show_source(dot_product_attention))
    assert text.startswith("# edgewise/attention.py: dot_product_attention\ndef dot_product_attention(")
    assert str(show_source(propagate_attention)).startswith("# edgewise/message_passing/__init__.py: ")
    assert "noqa" not in str(show_source(Decoder))
    assert str(show_source(greedy)).startswith("# edgewise/dense.py: greedy\n@torch.no_grad()")
    assert '"""' not in text
    assert '"""' in str(show_source(dot_product_attention, docstrings=True))
    assert "<script" not in show_source(dot_product_attention)._repr_html_()


maps = [[np.zeros((1, 2, 2))] * 3]
many = {"g": dict.fromkeys("abcdef", 1.0)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: draw_graph(causal(2).to_networkx(), ["a"]), "labels must name each of the 2 nodes, got 1"),
        (
            lambda: draw_graph(causal(1).to_networkx(), ["a"], "tree"),
            "layout must be one of line, circle, sides",
        ),
        (
            lambda: draw_graph(causal(2).to_networkx(), list("ab"), highlight=9),
            "highlight must be a node .*, got 9",
        ),
        (lambda: draw_graph(causal(2).to_networkx(), list("ab"), "sides"), "layout 'sides' is for two sets"),
        (lambda: attention_maps([], ["a"], ["b"]), "at least one; got 0"),
        (lambda: attention_maps([np.zeros((2, 3))], ["a"], ["b"]), r"= \[1, 1\], got \[2, 3\]"),
        (lambda: AttentionPlayer(np.zeros((2, 2)), ["a"] * 2, ["b"] * 2), r"got \[2, 2\]"),
        (lambda: AttentionPlayer(np.zeros((0, 1, 1)), ["a"], ["b"]), r"\[1 or more, 1, 1\], got \[0, 1, 1\]"),
        (lambda: AttentionPlayer(np.zeros((2, 1, 1)), ["a"], ["b"], ["one"]), "each of 2, got 1"),
        (
            lambda: att_animation(maps, "e3d", ["a"] * 2, ["b"] * 2, 0),
            "mode must be one of e2e, e2d, d2d; got 'e3d'",
        ),
        (lambda: att_animation(maps, "e2d", ["a"] * 2, ["b"] * 2, 1), r"head_id must lie in 0\.\.0, got 1"),
        (lambda: bars(many, "ms"), "1 to 5 series can be told apart, got 6"),
        (lambda: att_animation([], "e2d", ["a"], ["b"], 0), "at least one"),
        (lambda: att_animation([None], "e2d", ["a"], ["b"], 0), "none of them None"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
