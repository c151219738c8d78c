"""Live figures of chapters in Chromium: their numbers are numpy's and the engines', and they are usable."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from attention_on_edges.live.elements import engines_step_by_step, one_receiver
from attention_on_edges.live.engine_steps import engine_steps
from browser import PHONE, SCREEN, chromium
from edgewise.graphs import AttentionGraph, causal, complete, window
from edgewise.message_passing import propagate_attention

WORDS = ["the", "cat", "washes", "<i>itself"]
STATES = np.array([[0, 0, 0, 1], [2, 0, 0, 0], [0, 2, 0, 0], [1, 0, 2, 0]], dtype=float)
QUERIES = STATES @ np.array([[0, 1, 2, 0], [1, 0, 0, 0], [0] * 4, [0] * 4]).T
VALUES = np.array([[0.1, -1.25, 0], [2, 0, 0.5], [0, 2, -0.3333], [1, 0, 2]])
TINY = AttentionGraph(torch.tensor([0, 0, 1, 1, 2, 0, 1, 2]), torch.tensor([0, 1, 1, 2, 2, 3, 3, 3]), 4)
ODD = AttentionGraph(torch.tensor([3, 0, 2, 4, 1]), torch.tensor([0, 0, 4, 4, 2]), 5)  # none reach 1 and 3
GRAPHS = {"tiny": TINY, "complete": complete(4), "sentences": complete([2, 4, 2]), "odd": ODD}
GRAPHS |= {"causal": causal(6), "window": window(40, 0, 0)}


@pytest.fixture(scope="module")
def browser():
    with chromium() as program:
        yield program


@pytest.fixture
def opened(browser):
    """Opens an element in a page of a given look; no script may fail."""
    pages, trouble = [], []

    def open_element(element, **look):
        page = browser.new_context(**{"viewport": SCREEN} | look).new_page()
        pages.append(page)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("console", lambda message: trouble.append(message.text))
        page.set_content(f'<!doctype html><html lang="en"><title>T</title>{element._repr_html_()}')
        return page

    yield open_element
    for page in pages:
        page.context.close()
    assert trouble == []


def named(n):
    return [f"t{i}" for i in range(n)]


def number(text):
    return float(text.replace("\N{MINUS SIGN}", "-"))


def said(page):
    return page.locator("[aria-live]").inner_text()


# One receiver.


def expected(receiver, temperature):
    scores = STATES @ QUERIES[receiver] / 2
    exps = np.exp((scores - scores.max()) / temperature)
    return scores, exps / exps.sum(), exps / exps.sum() @ VALUES


def assert_shown(page, receiver, temperature):
    scores, weights, received = expected(receiver, temperature)
    texts = [number(text) for text in page.locator(".work .score").all_text_contents()]
    assert texts == pytest.approx(scores, abs=0.005)
    texts = [number(text) for text in page.locator(".work .share-number").all_text_contents()]
    assert texts == pytest.approx(weights, abs=0.00501)
    label = page.locator(".work").get_attribute("aria-label")
    name, numbers = label.split(" receives ")
    assert name == f"“{WORDS[receiver]}”"
    assert [number(text) for text in numbers.split(", ")] == pytest.approx(received, abs=6e-5)
    title = page.locator(".work .strip title").last.text_content()
    assert title == numbers
    bars, lines, cells = page.evaluate(
        """(row) => {
            const all = (selector, number) => [...document.querySelectorAll(selector)].map(number);
            return [
                all(".share", (bar) => Number(bar.getAttribute("width")) / 44),
                all(".work .edge", (line) => parseFloat(getComputedStyle(line).strokeWidth)),
                all(".matrix .weight", (cell) => Number(cell.getAttribute("fill-opacity")))
                    .slice(4 * row, 4 * row + 4),
            ];
        }""",
        receiver,
    )
    assert bars == pytest.approx(weights, abs=1e-6)
    assert lines == pytest.approx(0.5 + 11 * weights, abs=1e-2)
    assert cells == pytest.approx(weights, abs=1e-6)


def test_numbers_of_a_receiver_are_numpys(opened):
    page = opened(one_receiver(WORDS, torch.tensor(QUERIES), STATES, VALUES))
    assert_shown(page, 3, 1)
    assert "“<i>itself”: the largest weight, 0.83, on “cat”" in said(page)
    for receiver in range(4):
        page.locator("select").select_option(str(receiver))
        for exponent, temperature in (("0", 1), ("-1", 0.1), ("1", 10)):
            page.get_by_label("Temperature").fill(exponent)
            assert_shown(page, receiver, temperature)
            assert said(page).startswith(f"T = {temperature}, receiver “{WORDS[receiver]}”")
            _, weights, _ = expected(receiver, temperature)
            entropy = abs(np.sum(weights * np.log(np.maximum(weights, 1e-300))))
            assert f"entropy {entropy:.2f}; 1.39 if even" in said(page)


def test_temperature_says_what_happens_and_goes_back_to_one(opened):
    page = opened(one_receiver(WORDS, QUERIES, STATES, VALUES))
    slider = page.get_by_label("Temperature")
    slider.fill("-1")
    assert "nearly all weight on “cat”, 1.00" in said(page)
    assert slider.get_attribute("aria-valuetext") == "T = 0.1"
    slider.fill("1")
    assert "nearly even weights, the largest 0.31 on “cat”" in said(page)
    page.get_by_role("button", name="T = 1").click()
    assert_shown(page, 3, 1)
    page.locator("select").select_option("0")  # its query is zero
    assert "all senders get the same weight, 0.25" in said(page)


def test_rows_of_the_matrix_fill_as_receivers_are_visited(opened):
    page = opened(one_receiver(WORDS, QUERIES, STATES, VALUES))
    assert page.locator(".visited").count() == 4
    page.locator(".cell").nth(6).click()
    assert page.locator(".visited").count() == 8
    assert_shown(page, 1, 1)
    assert page.locator("select").input_value() == "1"
    page.get_by_label("Temperature").fill("-1")  # of all rows that are filled
    for receiver in (1, 3):
        page.locator("select").select_option(str(receiver))
        assert_shown(page, receiver, 0.1)


def test_a_receiver_is_chosen_and_read_by_keyboard(opened):
    page = opened(one_receiver(WORDS, QUERIES, STATES, VALUES))
    page.locator(".matrix").focus()
    page.keyboard.press("ArrowUp")  # from the receiver that is shown
    assert_shown(page, 2, 1)
    page.keyboard.press("ArrowRight")
    _, weights, _ = expected(2, 1)
    assert said(page) == f"“washes” attends to “cat” with weight {weights[1]:.2f}."
    page.get_by_label("Temperature").focus()
    page.keyboard.press("Home")
    assert_shown(page, 2, 0.1)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert_shown(page, 2, 1)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((QUERIES[:3], STATES, VALUES), r"query must be \[n, d\] with n = 4 and d at least 1, got \[3, 4\]"),
        ((QUERIES, STATES[0], VALUES), r"key must be .* got \[4\]"),
        ((QUERIES, STATES, VALUES[:, :0]), r"value must be .* got \[4, 0\]"),
        ((QUERIES, STATES[:, :3], VALUES), "query and key must be equally wide, got 4 and 3"),
        ((QUERIES, STATES * np.nan, VALUES), "key must be finite"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arrays, message):
    with pytest.raises(ValueError, match=message):
        one_receiver(WORDS, *arrays)


def test_no_token_is_refused():
    with pytest.raises(ValueError, match="at least one token"):
        one_receiver([], *np.zeros((3, 0, 2)))


# Engines.


class Watch(TorchDispatchMode):
    """Notes the size of every new tensor that is as wide as a head, views and sums' zeros left out."""

    def __init__(self, d_k):
        super().__init__()
        self.d_k, self.sizes = d_k, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        first = out[0] if isinstance(out, tuple) else out
        if (
            isinstance(first, torch.Tensor)
            and first.is_floating_point()
            and first.shape[-1:] == (self.d_k,)
            and not func.is_view
            and "zeros" not in str(func)
        ):
            self.sizes.append(first.numel())
        return out


def written_wide(engine, h):
    """Numbers that an engine's steps count, scores and weights left out."""
    columns = [table["columns"] for table in engine["tables"]]
    cells = [cell for step in engine["steps"] for cell in step["writes"]]
    widths = [(columns[table][column], len(rows)) for table, column, rows in cells]
    return sum(count * width for (name, width), count in widths if width > h)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("engine", ["scatter", "tiles", "mailbox"])
def test_steps_count_what_the_engines_write(name, engine):
    graph, d_k, h = GRAPHS[name], 8, 2
    n, edges, wide = graph.num_dst, graph.num_edges, d_k * h
    made = engine_steps(graph, named(n), d_k, h)[engine]
    q, k, v = torch.randn(3, n, h, d_k)
    propagate_attention(graph, q, k, v, engine)  # makes plans, which later calls share
    with Watch(d_k) as watch:
        propagate_attention(graph, q, k, v, engine)
    sizes = watch.sizes
    if engine == "mailbox":  # DGL sums in each bucket and puts the outputs together: counted once
        calls = len(torch.bincount(graph.dst).unique()) - int((torch.bincount(graph.dst) == 0).any())
        sizes = sizes[: 4 + 3 * calls]
        reached = int((torch.bincount(graph.dst, minlength=n) > 0).sum())
        assert sum(sizes) + (n - reached) * wide == written_wide(made, h) == (6 * edges + n) * wide
    else:
        assert sum(sizes) == written_wide(made, h)
    total = made["steps"][-1]["total"]
    assert total == sum(step["written"] for step in made["steps"])
    closed = {
        "mailbox": edges * (6 * wide + 3 * h) + n * wide,
        "scatter": edges * (5 * wide + 2 * h) + n * wide,
    }
    assert total == closed.get(engine, written_wide(made, h))


def test_tiles_write_outputs_alone_where_nothing_has_to_move():
    made = engine_steps(complete(5), named(5), 8, 2)["tiles"]
    assert made["steps"][-1]["total"] == 5 * 8 * 2
    assert made["steps"][2]["edges"] == list(range(25))
    tiny = engine_steps(TINY, named(4), 8, 1)["tiles"]
    assert tiny["steps"][-1]["total"] == (4 + 2 * 3 + 4 + 4) * 8  # queries, keys and values, answers, outputs


@pytest.mark.parametrize("name", GRAPHS)
def test_every_edge_is_in_one_cell_of_one_tile(name):
    graph = GRAPHS[name]
    blocks = engine_steps(graph, named(graph.num_dst), 8, 1)["tiles"]["blocks"]
    assert sorted(edge for block in blocks for edge in block["edges"]) == list(range(graph.num_edges))
    found = {
        (block["receivers"][row], block["senders"][column])
        for block in blocks
        for row, column in block["cells"]
    }
    assert found == {(f"t{j}", f"t{i}") for i, j in zip(graph.src.tolist(), graph.dst.tolist(), strict=True)}


@pytest.mark.parametrize("name", GRAPHS)
def test_steps_say_and_draw_their_counts(opened, name):
    graph = GRAPHS[name]
    element = engines_step_by_step(graph, named(graph.num_dst), h=2)
    page = opened(element)
    for engine, made in element.data["engines"].items():
        page.get_by_label("Engine").select_option(engine)
        steps = made["steps"]
        for at, step in enumerate(steps):
            if at:
                page.get_by_role("button", name="Next").click()
            assert said(page).startswith(f"Step {at} of {len(steps) - 1}. {step['told']}")
            if not step.get("compare"):
                count = f"{step['written']:,} numbers written now, {step['total']:,} in all."
                assert said(page).endswith(count)
                assert page.locator(".new").count() == sum(len(rows) for _, _, rows in step["writes"])
            faint = graph.num_edges - len(step.get("edges", range(graph.num_edges)))
            assert page.locator(".faint").count() == faint
        totals = [f"{other['steps'][-1]['total']:,}" for other in element.data["engines"].values()]
        assert page.locator(".store .number").all_text_contents() == totals


def test_engines_work_by_keyboard_and_stop_at_the_ends(opened):
    page = opened(engines_step_by_step(TINY, WORDS), reduced_motion="reduce")
    assert page.get_by_role("button", name="Play").count() == 0
    page.get_by_role("button", name="Back").focus()
    page.keyboard.press("Enter")
    assert said(page).startswith("Step 0 of 7.")
    page.keyboard.press("Tab")
    for _ in range(9):
        page.keyboard.press("Enter")
    assert said(page).startswith("Step 7 of 7. The outputs are the same")
    assert page.get_by_role("button", name="Next").get_attribute("aria-disabled") == "true"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press(" ")
    assert said(page).startswith("Step 6 of 7. In-degree 3, of “<i>itself”")


def test_play_steps_on_its_own_until_it_is_stopped(opened):
    page = opened(engines_step_by_step(TINY, WORDS), reduced_motion="no-preference")
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("document.querySelector('[aria-live]').textContent.startsWith('Step 1 ')")
    page.get_by_role("button", name="Stop").click()
    at = said(page)
    page.wait_for_timeout(2700)  # longer than a step
    assert said(page) == at
    assert page.get_by_role("button", name="Play").count() == 1


def test_graphs_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="graph must be of 3 tokens, got 4 senders and 4 receivers"):
        engines_step_by_step(TINY, WORDS[:3])
    with pytest.raises(ValueError, match="graph must have 1 to 48 edges, got 49"):
        engines_step_by_step(complete(7), named(7))
    none = torch.zeros(0, dtype=torch.int64)
    edgeless = AttentionGraph(none, none, 4)
    with pytest.raises(ValueError, match="graph must have 1 to 48 edges, got 0"):
        engines_step_by_step(edgeless, WORDS)
    for name in ("d_k", "h"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            engines_step_by_step(TINY, WORDS, **{name: 0})
        with pytest.raises(TypeError, match=f"{name} must be an integer"):
            engines_step_by_step(TINY, WORDS, **{name: 1.5})


# Both.


BOTH = {
    "receiver": lambda: one_receiver(named(12), *np.random.default_rng(0).normal(size=(3, 12, 16))),
    "engines": lambda: engines_step_by_step(causal(8), [f"token{i}" for i in range(8)], d_k=64, h=8),
}


@pytest.mark.parametrize("name", BOTH)
def test_it_fits_a_telephone(opened, name):
    page = opened(BOTH[name](), viewport=PHONE)
    for label in page.locator("select option").all_inner_texts():
        page.locator("select").select_option(label=label)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    right = "[...document.querySelectorAll('svg')].map((svg) => svg.getBoundingClientRect().right)"
    assert max(page.evaluate(right)) <= PHONE["width"]


@pytest.mark.parametrize("name", BOTH)
def test_without_scripts_the_picture_is_there_and_is_told(opened, name):
    element = BOTH[name]()
    page = opened(element, java_script_enabled=False)
    assert page.get_by_role("img").get_attribute("alt") == element.told
    assert page.get_by_role("img").bounding_box()["width"] > 400
    assert page.locator("select").count() == 0


@pytest.mark.parametrize("name", BOTH)
def test_its_name_is_its_title_and_one_line_is_live(opened, name):
    element = BOTH[name]()
    page = opened(element, color_scheme="dark")
    assert page.get_by_role("group", name=element.data["title"]).count() == 1
    assert page.locator("[aria-live=polite]").count() == 1
    assert page.locator("img").count() == 0
