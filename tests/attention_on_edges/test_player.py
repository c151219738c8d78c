"""The attention player in a browser, on a page of its own: both drawings tell the arrays that made them."""

import re

import numpy as np
import pytest

from attention_on_edges.live import AttentionPlayer, AttentionView
from browser import PHONE, SCREEN, chromium

LAYERS, HEADS = ["layer 1", "layer 2"], ["head 0", "head 1", "head 2"]
SOURCE, TARGET = ["der", "Hut", "."], ["the", "red", "hat", "."]


def softmax(scores):
    return np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)


def weights_of(receivers, senders, mask=1.0):
    scores = np.random.default_rng(0).normal(size=(len(LAYERS), len(HEADS), receivers, senders))
    weights = softmax(2 * scores) * mask
    return weights / weights.sum(-1, keepdims=True)


CAUSAL = weights_of(4, 4, np.tri(4))
CROSS = weights_of(4, 3)
PLAYER = AttentionPlayer(
    [
        AttentionView("target to target", CAUSAL, TARGET, TARGET),
        AttentionView("source to target", CROSS, TARGET, SOURCE),
    ],
    {"layer": LAYERS, "head": HEADS},
    "Attention",
)
WIDE = AttentionPlayer(
    [AttentionView("self", weights_of(12, 12), list("abcdefghijkl"), list("abcdefghijkl"))],
    {"layer": LAYERS, "head": HEADS},
)


@pytest.fixture(scope="module")
def browser():
    with chromium() as program:
        yield program


@pytest.fixture
def page(browser, request):
    """A page with a small and a larger player, by default as on a wide screen."""
    page = browser.new_context(**{"viewport": SCREEN} | getattr(request, "param", {})).new_page()
    page.trouble = []
    page.on("pageerror", lambda error: page.trouble.append(str(error)))
    page.set_content(
        f'<!doctype html><html lang="en"><title>T</title>{PLAYER._repr_html_()}{WIDE._repr_html_()}'
    )
    page.player = page.locator(".edgewise-element").first
    yield page
    assert page.trouble == []
    page.context.close()


def said(page):
    return page.player.locator("p").inner_text()


def told(weights, receiver, sender, senders=TARGET):
    """What is said of an edge."""
    who, whom = f"“{TARGET[receiver]}” ({receiver + 1})", f"“{senders[sender]}” ({sender + 1})"
    return f"{who} gives {whom} {round(weights[receiver, sender] * 1000) / 1000:.3f}"


def chosen(page):
    """The edge marked in the graph as its ends, and the tokens marked in each drawing."""
    line = page.player.locator("line.chosen").evaluate_all(
        "lines => lines.map(l => ['x1', 'x2'].map(n => Number(l.getAttribute(n))))"
    )
    words = [
        page.player.locator(f"{drawing} text.chosen").all_text_contents() for drawing in (".graph", ".matrix")
    ]
    return line, *map(sorted, words)


HEED = """() => {
    window.announced = [];
    const status = document.querySelector(".edgewise-element p");
    new MutationObserver(() => announced.push(status.textContent)).observe(status, {childList: true});
}"""


# Arrow keys that would reach the surrounding page, a notebook say.
LEAK = """() => {
    window.leaked = [];
    const drawn = event => event.key.startsWith("Arrow") && event.target.localName === "svg";
    document.addEventListener("keydown", event => drawn(event) && leaked.push(event.key));
}"""


def test_matrix_is_walked_by_keyboard_and_says_every_weight(page):
    """Down and up over the rows, through all heads of both layers: every value of the array."""

    def press(*keys):
        for key in keys:
            page.keyboard.press(key)

    page.player.get_by_label("View", exact=True).select_option("source to target")
    page.player.locator(".matrix").focus()
    press("ArrowDown")  # the first key chooses the first cell
    page.evaluate(HEED)
    page.evaluate(LEAK)
    for layer in LAYERS:
        page.player.get_by_label("Layer", exact=True).select_option(layer)
        page.player.get_by_role("slider").press("Home")
        for head in range(len(HEADS)):
            press(*["ArrowRight"] * (head > 0), "Tab", "Tab")  # the next head; past the graph to the matrix
            press(*["ArrowRight"] * 2, "ArrowDown", *["ArrowLeft"] * 2, "ArrowDown")
            press(*["ArrowRight"] * 2, "ArrowDown", *["ArrowLeft"] * 2)
            press(*["ArrowUp"] * 4, "Shift+Tab", "Shift+Tab")
    assert not page.evaluate("leaked")
    told_of_all = {
        f"{LAYERS[i]}, {HEADS[j]}: {told(CROSS[i, j], receiver, sender, SOURCE)}"
        for i, j, receiver, sender in np.ndindex(CROSS.shape)
    }
    assert told_of_all <= set(page.evaluate("announced"))


def test_graph_is_walked_by_keyboard_from_edge_to_edge(page):
    graph = page.player.locator(".graph")
    page.player.locator("select").first.focus()
    for _ in range(4):  # layer, play, slider, graph
        page.keyboard.press("Tab")
    assert graph.evaluate("graph => graph === document.activeElement")
    assert "Arrow keys move from edge to edge" in graph.get_attribute("aria-label")
    edges = [(r, s) for r in range(4) for s in range(r + 1)]
    for edge in [*edges, edges[-1]]:
        page.keyboard.press("ArrowRight")
        assert said(page) == "layer 1, head 2: " + told(CAUSAL[0, 2], *edge)
    for edge in [*edges[-2::-1], edges[0]]:
        page.keyboard.press("ArrowLeft")
        assert said(page).endswith(told(CAUSAL[0, 2], *edge))
    for key, edge in [("Down", (1, 0)), ("Right", (1, 1)), ("Down", (2, 1)), ("Up", (1, 1)), ("Up", (0, 0))]:
        page.keyboard.press(f"Arrow{key}")
        assert said(page).endswith(told(CAUSAL[0, 2], *edge)), key


def test_an_edge_chosen_in_one_drawing_is_marked_in_the_other(page):
    graph, matrix, cursor = (page.player.locator(part) for part in (".graph", ".matrix", ".cursor"))
    assert chosen(page) == ([], [], [])
    matrix.press("ArrowDown")
    for key in ("ArrowDown", "ArrowRight"):
        matrix.press(key)
    (line,), *words = chosen(page)
    assert words == [["red", "red"]] * 2
    assert line[0] == line[1]
    graph.press("ArrowDown")
    cell = page.player.locator("rect.weight").nth(1 + 2 + 1)  # edge (2, 1)
    assert [cursor.get_attribute(n) for n in "xy"] == [cell.get_attribute(n) for n in "xy"]
    assert chosen(page)[1:] == (["hat", "red"], ["hat", "red"])
    matrix.press("ArrowRight")
    matrix.press("ArrowRight")  # hat attends to itself, not to what follows
    assert "has no edge from" in said(page)
    assert chosen(page)[0] == []


@pytest.mark.parametrize("touch", [False, True])
@pytest.mark.parametrize("page", [{"has_touch": True}], indirect=True)
def test_pointing_at_a_line_or_a_cell_chooses_its_edge(page, touch):
    """Every line a third of the way from its sender, where no other line passes as near."""
    page.player.get_by_label("View", exact=True).select_option("source to target")
    act = page.touchscreen.tap if touch else page.mouse.move
    middle = (
        "box => { const b = box.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }"
    )
    third = """line => {
        const at = t => new DOMPoint(...["x", "y"].map(n => {
            const [a, b] = [1, 2].map(i => Number(line.getAttribute(n + i)));
            return a + t * (b - a);
        })).matrixTransform(line.getScreenCTM());
        const {x, y} = at(0.29);
        return [x, y];
    }"""
    for number in range(12):
        edge = divmod(number, 3)
        act(*page.player.locator("rect.weight").nth(number).evaluate(middle))
        assert said(page).endswith(told(CROSS[0, 2], *edge, SOURCE))
    places = page.player.locator("line.edge:not(.chosen)").evaluate_all(f"lines => lines.map({third})")
    for number, place in enumerate(places):  # the last is chosen, and stands last
        act(*place)
        assert said(page).endswith(told(CROSS[0, 2], *divmod(number, 3), SOURCE))


@pytest.mark.parametrize("page", [{"viewport": SCREEN}, {"viewport": PHONE}], indirect=True)
def test_drawings_stand_side_by_side_or_beneath_each_other(page):
    larger = page.locator(".edgewise-element").nth(1)
    graph, matrix = (larger.locator(part).bounding_box() for part in (".graph", ".matrix"))
    if page.viewport_size == SCREEN:
        assert graph["x"] + graph["width"] <= matrix["x"]
        assert graph["y"] < matrix["y"] + matrix["height"]
    else:
        assert graph["y"] + graph["height"] <= matrix["y"]
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


@pytest.mark.parametrize("page", [{"color_scheme": "dark"}], indirect=True)
def test_on_paper_it_is_dark_on_white_and_says_what_is_shown(page):
    look = "part => getComputedStyle(part).getPropertyValue('{}')"
    cell, line = page.player.locator("rect.weight").first, page.player.locator(".told")
    on_screen = cell.evaluate(look.format("fill"))
    assert not line.is_visible()
    page.emulate_media(media="print")
    assert line.inner_text() == "Attention, target to target, layer 1, head 2"
    assert not page.player.locator(".bar").is_visible()
    assert not page.player.locator("p").is_visible()
    assert page.player.evaluate(look.format("color")) == "rgb(0, 0, 0)"
    assert page.player.evaluate(look.format("background-color")) == "rgb(255, 255, 255)"
    assert cell.evaluate(look.format("fill")) == "rgb(0, 114, 178)" != on_screen


def test_what_is_chosen_is_announced_but_not_while_it_plays(page):
    status = page.player.locator("p")
    assert status.get_attribute("aria-live") == "polite"
    assert re.search("Point at an edge or a cell, or move with the arrow keys", said(page))
    page.clock.install(time=0)
    page.clock.pause_at(3600)
    page.player.get_by_role("slider").press("Home")
    page.player.get_by_role("button", name="Play").click()
    page.clock.run_for(1000)
    assert page.player.locator("output").inner_text() == "head 1"
    assert status.get_attribute("aria-live") == "off"
    page.clock.run_for(2000)
    assert page.player.locator("output").inner_text() == "head 2"
    assert status.get_attribute("aria-live") == "polite"
