"""Live figures of chapters in Chromium: their numbers are numpy's and the library's, and they are usable."""

import json

import numpy as np
import pytest
import torch

from attention_on_edges import runs
from attention_on_edges.live import att_animation, editable_graph, one_pass, one_receiver
from attention_on_edges.live.chapter_elements import cut_lines
from attention_on_edges.models import dense
from attention_on_edges.pool import GraphPool
from attention_on_edges.runs import artifacts
from attention_on_edges.runs.study_results import load_study
from attention_on_edges.studies.cutting_edges import KINDS, CutTranslation
from browser import PHONE, SCREEN
from edgewise.graphs import causal, complete

WORDS = ["the", "cat", "washes", '<i "it">self']
STATES = np.array([[0, 0, 0, 1], [2, 0, 0, 0], [0, 2, 0, 0], [1, 0, 2, 0]], dtype=float)
QUERIES = STATES @ np.array([[0, 1, 2, 0], [1, 0, 0, 0], [0] * 4, [0] * 4]).T
VALUES = np.array([[0.1, -1.25, 0], [2, 0, 0.5], [0, 2, -0.3333], [1, 0, 2]])
MOMENTS = ["step 0", "step 12", "step 24"]
SOURCE, TARGET = ["der", "</script>", "."], ["the", "red", "hat", "."]
CAT = "The cat is sleeping on my bed."


SHOWN = [
    {
        "pieces": ["Tom", " saw", " <b>Anna"],
        "likeliest": [[" and", 0.8], [" go", 0.1]],
        "lines": [[1, 2, 0.2, [[" go", 0.5]]], [1, 3, 0.1, [[" run", 0.6]]], [2, 3, 0.79, [[" and", 0.79]]]],
        "silenced": [[1, 0.05, [[" eat", 0.9], [" and", 0.05]]], [2, 0.4, [[" and", 0.4]]]],
    },
    {"pieces": ["Again"], "likeliest": [[" !", 0.5]], "lines": [], "silenced": []},
]


def weights_of(receivers, senders, mask=1.0):
    scores = np.random.default_rng(0).normal(size=(len(MOMENTS), 3, receivers, senders))
    weights = np.exp(2 * scores) * mask
    return weights / weights.sum(-1, keepdims=True)


CAUSAL, CROSS = weights_of(4, 4, np.tri(4)), weights_of(4, 3)  # [moments, heads, receivers, senders]
CAUSAL[0, :, 3, 0] = 0


@pytest.fixture(scope="module")
def french():
    return runs.load_translator(artifacts.load("tatoeba"))


@pytest.fixture(scope="module")
def elements(french):
    maps = list(zip(weights_of(3, 3), CROSS, CAUSAL, strict=True))
    return {
        "receiver": one_receiver(WORDS, torch.tensor(QUERIES), STATES, VALUES),
        "mask": editable_graph(WORDS, {"causal": causal(4), "complete": complete(4)}),
        "player": att_animation(maps, "d2d", SOURCE, TARGET, 1, MOMENTS),
        "one_pass": one_pass(french, CAT, ("cat", "chat")),
        "lines": cut_lines(SHOWN, {0: "He did."}),
    }


@pytest.fixture
def opened(browser, elements):
    """Opens an element in a page of a given look; no script may fail."""
    pages, trouble = [], []

    def open_element(name, **look):
        page = browser.new_context(**{"viewport": SCREEN} | look).new_page()
        pages.append(page)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("console", lambda message: trouble.append(message.text))
        page.set_content(f'<!doctype html><html lang="en"><title>T</title>{elements[name]._repr_html_()}')
        return page

    yield open_element
    for page in pages:
        page.context.close()
    assert trouble == []


def said(page):
    return page.locator("p[aria-live]").inner_text()


def number(text):
    return float(text.replace("\N{MINUS SIGN}", "-"))


def assert_shown(page, receiver, temperature):
    scores = STATES @ QUERIES[receiver] / 2
    weights = np.exp((scores - scores.max()) / temperature)
    weights /= weights.sum()
    texts = [number(text) for text in page.locator(".work .score").all_text_contents()]
    assert texts == pytest.approx(scores, abs=0.005)
    _, numbers = page.locator(".work").get_attribute("aria-label").split(" receives ")
    assert [number(text) for text in numbers.split(", ")] == pytest.approx(weights @ VALUES, abs=6e-5)
    cells = page.locator(".matrix .cell").evaluate_all(
        "cells => cells.map((cell) => Number(cell.getAttribute('fill-opacity')))"
    )
    assert cells[4 * receiver : 4 * receiver + 4] == pytest.approx(weights, abs=1e-6)


def test_one_receivers_numbers_are_numpys_at_every_temperature(opened):
    page = opened("receiver")
    assert '“<i "it">self”: the largest weight, 0.83, on “cat”' in said(page)
    for receiver in range(4):
        page.locator("select").select_option(str(receiver))
        for exponent, temperature in (("0", 1), ("-1", 0.1), ("1", 10)):
            page.get_by_label("Temperature").fill(exponent)
            assert_shown(page, receiver, temperature)
    page.get_by_role("button", name="T = 1").click()
    page.locator(".matrix").focus()
    page.keyboard.press("ArrowUp")  # from the receiver that is shown
    assert_shown(page, 2, 1)
    page.locator(".cell").nth(6).click()
    assert_shown(page, 1, 1)


def test_a_cell_of_the_mask_is_an_edge_of_the_graph(opened):
    page = opened("mask")
    assert page.locator(".graph .edge:visible").count() == 10
    page.locator(".cell").nth(4).click()  # the second token's edge from the first
    assert page.locator(".graph .edge:visible").count() == 9
    page.keyboard.press("Enter")
    assert page.locator(".graph .edge:visible").count() == 10


def test_the_player_has_an_edge_wherever_there_is_ever_weight(elements):
    data = json.loads(elements["player"].packed)
    assert data["shown"] == 2
    _, cross, own = (np.array(view["weights"], dtype=float) for view in data["views"])
    np.testing.assert_allclose(cross, CROSS[:, 1], atol=5e-4)
    np.testing.assert_array_equal(np.isnan(own), np.broadcast_to(np.tri(4) == 0, own.shape))


def told(weights, receiver, sender, senders):
    who, whom = f"“{TARGET[receiver]}” ({receiver + 1})", f"“{senders[sender]}” ({sender + 1})"
    return f"{who} gives {whom} {round(weights[receiver, sender] * 1000) / 1000:.3f}"


def test_the_player_tells_every_weight_by_keyboard(opened):
    page = opened("player")
    page.locator(".matrix").focus()
    page.keyboard.press("ArrowLeft")
    for receiver in range(4):
        for sender in range(receiver + 1):
            assert said(page) == "Attention of head 2, step 0: " + told(
                CAUSAL[0, 1], receiver, sender, TARGET
            )
            page.keyboard.press("ArrowRight")
        for key in ("ArrowDown", *["ArrowLeft"] * 4):
            page.keyboard.press(key)
    page.get_by_role("combobox", name="View").select_option("source to target")
    for i, moment in enumerate(MOMENTS):
        page.get_by_role("slider").fill(str(i))
        page.locator(".cell").nth(4).hover()
        assert said(page).endswith(f"{moment}: " + told(CROSS[i, 1], 1, 1, SOURCE))


@pytest.fixture(scope="module")
def passes(french):
    """Log-probabilities [2, n, vocabulary], whole and with the edge cut, and attention by its row."""
    sentence = CutTranslation(french.model, french.encode(CAT))
    kind, _, _, receiver, sender = sentence.edges.T
    cut = (kind == KINDS.index("e2d")) & (receiver == 1) & (sender == 1)
    batch = GraphPool()([sentence.source.tolist()], [[*sentence.read.tolist(), int(sentence.next[-1])]])
    maps = [french.model.attention_of(batch, 0, layer) for layer in range(french.model.decoder.N)]
    weights = {1 + 3 * i + j: found[2 - j] for i, found in enumerate(maps) for j in (0, 1)}
    return sentence.log_probs(torch.stack([torch.ones_like(cut), ~cut])).detach(), weights


def test_a_pass_is_read_as_the_model_would_write(elements, french):
    data = json.loads(elements["one_pass"].packed)
    whole, cut = data["runs"]
    written = [place[0][0] for place in whole["tops"][-1]]
    assert written == data["next"] == ["Le", "chat", "dort", "sur", "mon", "lit", ".", "<eos>"]
    assert [place[0][0] for place in whole["tops"][0]] == [word for word, _ in data["read"]]
    source, layer = torch.tensor([french.encode(CAT)]), french.model.decoder.layers[1]
    values = layer.src_attn.get(dense.encode(french.model, source)[0], "kv")["v"][..., :3].transpose(0, 1)
    np.testing.assert_allclose(whole["values"]["5"], values.detach(), atol=0.006)
    found = {row["key"]: row["text"] for row in load_study("first-cuts").rows}
    assert cut["said"] == found["e2d.-1.-1.1.1"] == "Le lit dort sur mon lit."
    assert data["lens"][-1] == whole["said"] == "Le chat dort sur mon lit."


def cell(page, row, place):
    return page.get_by_role("gridcell", include_hidden=True).nth(8 * row + place)


def shares_of(page, panel):
    bars = page.locator(".panels > div").nth(panel).locator(".bars")
    widths = "spans => spans.map((span) => parseFloat(span.style.width) / 100)"
    return bars.locator("span > span").evaluate_all(widths)


def test_a_pass_is_stepped_through_and_its_numbers_are_the_models(opened, passes):
    page, (log_probs, weights) = opened("one_pass"), passes
    cells, step = page.locator("[role=gridcell]:visible"), page.get_by_role("slider", name="Step")
    for row in range(7):
        step.fill(str(row))
        assert said(page).startswith(f"Step {row + 1} of 7")
        assert cells.count() == 8 * (row + 1)
        told = [page.locator(f"[role=row]:nth-child({row + 2}) .{kind}").count() for kind in ("read", "next")]
        assert f"Now {told[0]} of 8 places" in said(page)
        assert f"{told[1]} the word to be written" in said(page)
    expected = log_probs[0, 1].exp().topk(5).values  # of the last row
    assert shares_of(page, 0) == pytest.approx([*expected.tolist(), 1 - float(expected.sum())], abs=1e-3)

    for row, found in weights.items():  # of each head, and their mean
        cell(page, row, 3).click()
        for head in range(4):
            page.get_by_label("Head").select_option(label=str(head + 1))
            texts = page.locator("table tr:not(:first-child) td:nth-child(4)").all_text_contents()
            numbers = [number(text) for text in texts]
            assert numbers == pytest.approx(found[head, 3, : len(numbers)].tolist(), abs=0.006)
        mean = sorted((w for w in found.mean(0)[3].tolist() if w >= 0.03), reverse=True)
        assert shares_of(page, 1) == pytest.approx(mean, abs=1e-3)


def test_a_cut_changes_the_pass_before_the_readers_eyes(opened, passes):
    page = opened("one_pass")
    assert (cell(page, 5, 1).inner_text(), cell(page, 6, 1).inner_text()) == ("chat", "chat")
    page.get_by_role("button", name="Cut cat → chat").click()
    assert page.locator(".changed").all_text_contents() == ["lit", "lit"]
    assert "2 cells change" in said(page)
    assert "“Le lit dort sur mon lit.”" in said(page)
    page.locator("[aria-selected=true]").focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.ariaLabel").startswith("lit, ")
    expected = passes[0][1, 1].exp().topk(5).values
    assert shares_of(page, 0)[:5] == pytest.approx(expected.tolist(), abs=1e-3)


def test_a_silenced_word_and_a_cut_line_change_the_next_word(opened):
    page = opened("lines")
    told = lambda: page.locator("[aria-live] > *").all_inner_texts()  # noqa: E731
    hint = "Choose a word or a line; the next choice replaces it. The dot is a start token and stays."
    before = "Outlined bars: before."
    assert told() == ["Next word: and", f"He did. {hint}"]
    page.get_by_role("button", name="silence Tom").click()
    assert told() == ["Next word: eat (was and)", f"“Tom” is silenced: no later word attends to it. {before}"]
    rows = page.locator(".chance").all_inner_texts()
    assert [row.split("\n") for row in rows] == [["eat", "< 10 % → 90 %"], ["and", "80 % → 5 %"]]
    assert page.locator("path.gone").count() == 2  # both lines from Tom
    page.get_by_role("button", name="line from Tom to saw").focus()
    page.keyboard.press("Enter")
    assert told() == ["Next word: go (was and)", f"The line from “Tom” to “saw” is cut. {before}"]
    assert page.locator(".chance").all_inner_texts()[1].split("\n") == ["and", "80 % → 20 %"]
    page.get_by_role("button", name="Undo").click()
    assert told()[1] == f"He did. {hint}"
    assert page.get_by_role("button", name="line from saw").count() == 0  # it changes next to nothing
    page.get_by_role("button", name="Again …").click()
    assert told() == ["Next word: !", hint]


def test_the_player_plays_in_silence_and_stops_at_the_end(opened):
    page = opened("player")
    page.clock.install()
    page.get_by_role("button", name="Play").click()
    assert page.locator("p[aria-live]").get_attribute("aria-live") == "off"
    page.clock.run_for(60_000)
    assert page.locator("p[aria-live]").get_attribute("aria-live") == "polite"
    slider = page.get_by_role("slider")
    assert slider.input_value() == slider.get_attribute("max")


@pytest.mark.parametrize("name", ["receiver", "mask", "player", "one_pass", "lines"])
def test_it_fits_a_telephone_and_has_a_picture_without_scripts(opened, elements, name):
    page = opened(name, viewport=PHONE, color_scheme="dark", reduced_motion="reduce")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.get_by_role("group").count() >= 1
    assert page.get_by_role("button", name="Play").count() == 0
    still = opened(name, java_script_enabled=False)
    assert still.get_by_role("img").get_attribute("alt") == elements[name].told
