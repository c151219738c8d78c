"""Beam search as a tree, halting and steps over training: as in Python, and usable in Chromium."""

import html
import importlib
import json

import numpy as np
import pytest
import torch

from attention_on_edges import experiments
from attention_on_edges.experiments import artifacts
from attention_on_edges.live.beam import beam_tree, search_tree
from attention_on_edges.live.halting import halting_bars, halting_of, steps_over_training
from attention_on_edges.live.page import model_file, script_file
from browser import PHONE, SCREEN, chromium
from edgewise.decoding import beam_search
from edgewise.graphs import GraphPool
from edgewise.models.universal import make_universal_model

TEXTS = {
    "multi30k": ("The man is old.", "A man rides a bike.", "Two dogs run through the snow."),
    "tatoeba": ("Where is the station?", "I have never seen him before.", "x"),
}
search = importlib.import_module("edgewise.decoding.beam")
LETTERS = "hykwukdwl"
START = "^"


@pytest.fixture(scope="module")
def translators():
    return {name: experiments.load_translator(artifacts.load(name)) for name in TEXTS}


@pytest.fixture(scope="module")
def sorting():
    return experiments.restore(artifacts.load("sort-universal"))


def shares_of(name):
    epochs = artifacts.load(name).metrics["epochs"]
    counts = np.array([[epoch["steps"][side] for side in ("enc", "dec")] for epoch in epochs], float)
    return counts / counts.sum(-1, keepdims=True)


RUNS = {name: shares_of(name) for name in ("sort-universal", "sort-universal-short")}


# The tree.


def ways():
    return [
        (name, text, beam)
        for name, texts in TEXTS.items()
        for text in texts
        for beam in (1, 3)
        if beam > 1 or text == texts[0]
    ]


@pytest.mark.parametrize(("name", "text", "beam"), [*ways(), ("multi30k", "The man is old.", 5)])
def test_the_tree_is_the_librarys_search(translators, monkeypatch, name, text, beam):
    """Step by step, its candidates, those that are kept and those that have ended are the search's own."""
    translator, seen = translators[name], []
    choose = search._Search.choose

    def watched(self, candidates, steps):
        kept = choose(self, candidates, steps)
        open_ones = {(*ids, score) for ids, score, _ in self.open} if kept else set()
        ended = {(*h.ids, 1, h.log_prob) for h in self.ended}
        seen.append(([score for score, *_ in candidates], open_ones, ended))
        return kept

    monkeypatch.setattr(search._Search, "choose", watched)
    columns, best = search_tree(translator, text, beam, translator.length_penalty)
    monkeypatch.undo()
    assert len(columns) == len(seen)
    all_ended = set()
    for column, (scores, kept, ended) in zip(columns, seen, strict=True):
        assert [node.score for node in column] == scores
        assert {(*node.ids, node.score) for node in column if node.state == "kept"} == kept
        all_ended |= {(*node.ids, node.score) for node in column if node.state == "ended"}
        assert all_ended == ended
    source, penalty = translator.encode(text), translator.length_penalty
    ((expected,),) = beam_search(translator.model, [source], 0, 1, beam, penalty)
    assert best == expected
    assert (*best.ids, 1, best.log_prob) in all_ended


def test_candidates_extend_the_hypotheses_of_the_column_before(translators):
    translator = translators["multi30k"]
    columns, _ = search_tree(translator, TEXTS["multi30k"][0], 3, 0.6)
    batch = GraphPool()
    source = translator.encode(TEXTS["multi30k"][0])
    for before, column in zip([[], *columns], columns, strict=False):
        for node in column:
            assert len(node.ids) == 1 or before[node.parent].ids == node.ids[:-1]
            assert len(node.ids) == 1 or before[node.parent].state == "kept"
            one = batch([source], [[0, *node.ids]])
            with torch.no_grad():
                score = translator.model(one).gather(1, one.tgt_y[:, None]).sum().item()
            assert node.score == pytest.approx(score, abs=1e-4)


# Halting.


def test_halting_weights_are_the_models(sorting):
    model, data = sorting
    found = halting_of(model, data, LETTERS)
    assert found["source"]["tokens"] == list(LETTERS)
    assert found["target"]["tokens"] == [START, *sorted(LETTERS)]
    batch = GraphPool()([data.encode(list(LETTERS))], [data.encode(["<sos>", *sorted(LETTERS), "<eos>"])])
    with torch.no_grad():
        pondered = model.run(batch).pondered
    for name, side in (("source", "enc"), ("target", "dec")):
        for row, weights in zip(found[name]["weights"], pondered[side].weights.tolist(), strict=True):
            assert row == pytest.approx(weights[: len(row)], abs=1e-4)
            assert sum(row) == pytest.approx(1, abs=1e-4)
            assert sum(weights[len(row) :]) == 0


def test_only_the_rule_that_the_script_knows_is_drawn(sorting):
    model = make_universal_model(29, 29, dim_model=8, dim_ff=8, h=2, halting="pondernet")
    with pytest.raises(ValueError, match="halt by ACT and copy states, got 'pondernet'"):
        halting_bars(model, sorting[1], "ab")


@pytest.mark.parametrize(
    "shares",
    [{}, {"a": np.ones((3, 2))}, {"a": np.ones((3, 2, 4))}, {n: np.eye(n)[None, :2] for n in (3, 4)}],
    ids=["none", "shape", "sum", "different"],
)
def test_shares_that_are_none_are_refused(shares):
    with pytest.raises(ValueError, match=r"at least one|sum to one|same number"):
        steps_over_training(shares)


# In a browser.


@pytest.fixture(scope="module")
def browser():
    with chromium() as program:
        yield program


@pytest.fixture(scope="module")
def site(tmp_path_factory, translators, sorting):
    """A page with the figures, beside the files that one of them loads."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "live.js").write_text(script_file(), encoding="utf-8")
    (folder / "sort-universal.js").write_text(model_file("sort-universal"), encoding="utf-8")
    figures = [
        beam_tree(translators["multi30k"], "The man is old."),
        halting_bars(*sorting, LETTERS, place="."),
        steps_over_training(RUNS),
    ]
    body = "".join(figure._repr_html_() for figure in figures)
    text = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>T</title><body><main>{body}</main>'
    style = "<style>:root{color-scheme:light dark}body{font-family:sans-serif}</style>"
    viewport = '<meta name="viewport" content="width=device-width">'
    (folder / "index.html").write_text(text.replace("<body>", viewport + style + "<body>"), encoding="utf-8")
    return folder


@pytest.fixture
def page(browser, site, request):
    context = browser.new_context(**{"viewport": SCREEN, **getattr(request, "param", {})})
    page = context.new_page()
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("console", lambda said: said.type == "error" and page.problems.append(said.text))
    page.goto((site / "index.html").as_uri())
    yield page
    assert not page.problems
    context.close()


def figure(page, name):
    return page.locator(f".edgewise-element.{name}")


def said(page, name):
    return figure(page, name).locator("[aria-live]").inner_text()


def test_the_tree_grows_by_steps_and_ends_with_the_winner(page, translators):
    columns, best = search_tree(translators["multi30k"], "The man is old.", 3, 1.8)
    tree = figure(page, "beam")
    assert "“Der Mann ist alt.” wins" in said(page, "beam")
    assert tree.locator(".node.won:not(.key *)").count() == len(best.ids) + 1
    slider = tree.get_by_role("slider")
    slider.focus()
    page.keyboard.press("Home")
    for n, column in enumerate(columns, 1):
        assert said(page, "beam").startswith(f"Step {n}: ")
        shown = tree.locator(".frame .node[visibility=visible]")
        assert shown.count() == sum(len(each) for each in columns[:n])
        states = [node.state for each in columns[:n] for node in each]
        assert [shown.nth(i).get_attribute("class").split()[1] for i in range(len(states))] == states
        kept = [node for node in column if node.state == "kept"]
        if kept:
            score = f"{kept[0].score:.2f}".replace("-", "\u2212")
            assert f"{len(kept)} hypotheses, best “" in said(page, "beam")
            assert f"” {score}; " in said(page, "beam")
        page.keyboard.press("ArrowRight")
    assert tree.locator(".frame .edge.won").count() == len(best.ids) + 1


def test_the_tree_is_walked_by_keyboard(page):
    tree = figure(page, "beam")
    tree.get_by_role("slider").press("Home")
    tree.locator("svg[tabindex]").press("ArrowRight")
    assert said(page, "beam").startswith("Step 2, “")
    assert "log-probability" in said(page, "beam")
    first = said(page, "beam")
    page.keyboard.press("ArrowDown")
    assert said(page, "beam") != first
    assert tree.locator(".frame .chosen").count() == 1
    tree.locator(".node.dropped").first.click()
    assert " is dropped, " in said(page, "beam")


def weights_of(page, side):
    return (
        figure(page, "halting")
        .locator(f"svg >> nth={side}")
        .evaluate(
            """(svg) => [...svg.querySelectorAll(".token")].map((row) =>
            [...row.querySelectorAll(".part")].map((part) => Number(part.dataset.weight)))"""
        )
    )


def test_halting_of_the_example_is_shown_without_loading(page, sorting):
    found = halting_of(*sorting, LETTERS)
    assert weights_of(page, 0) == found["source"]["weights"]
    assert weights_of(page, 1) == found["target"]["weights"]
    assert page.evaluate("globalThis.EdgewiseModels ?? globalThis.EdgewiseEngine") is None
    bars = figure(page, "halting")
    steps = {side: [len(row) for row in each["weights"]] for side, each in found.items()}
    bars.get_by_role("slider").press("Home")
    for n in range(1, max(map(max, steps.values())) + 1):
        source, target = ([i for i, taken in enumerate(each) if taken >= n] for each in steps.values())
        edges = [len(source) * 9, sum(i + 1 for i in target), len(target) * 9]
        cells = bars.locator("tr.now td").all_inner_texts()
        assert cells == [str(len(source)), str(edges[0]), str(len(target)), f"{edges[1]} + {edges[2]}"]
        assert said(page, "halting").startswith(f"Step {n}: {len(source)} of 9 source letters active")
        visible = bars.locator("[data-step][visibility=visible]").count()
        assert visible == sum(min(taken, n) for each in steps.values() for taken in each)
        page.keyboard.press("ArrowRight")
    bars.locator("svg[tabindex]").first.press("ArrowDown")
    assert "“y” (2) halts at step" in said(page, "halting")
    assert "remainder" in said(page, "halting")


def open_model(page):
    figure(page, "halting").locator("button.load").click()
    page.wait_for_selector("input[name=letters]")


def sort(page, letters, until):
    page.locator("input[name=letters]").fill(letters)
    page.keyboard.press("Enter")
    page.wait_for_function(
        "(text) => document.querySelector('.halting [aria-live]').textContent.includes(text)", arg=until
    )


def test_typed_letters_are_sorted_and_halt_as_in_python(page, sorting, site):
    size = sum((site / f"{name}.js").stat().st_size for name in ("live", "sort-universal")) / 1e6
    button = figure(page, "halting").locator("button.load")
    assert button.inner_text() == f"Load the model and type letters ({size:.1f} MB)"
    open_model(page)
    for letters in ("zebra", "a", "thequickbrownfox", "Q q\tp"):
        plain = "".join(letters.lower().split())
        expected = halting_of(*sorting, plain)
        answer = "".join(expected["target"]["tokens"][1:])
        right = "right" if answer == "".join(sorted(plain)) else "wrong"
        sort(page, letters, f"“{plain}” became “{answer}”, which is {right}")
        for side, name in enumerate(("source", "target")):
            for row, weights in zip(weights_of(page, side), expected[name]["weights"], strict=True):
                assert row == pytest.approx(weights, abs=1e-3)
        slider = figure(page, "halting").get_by_role("slider")
        assert int(slider.get_attribute("max")) + 1 == max(
            len(r) for each in (0, 1) for r in weights_of(page, each)
        )


BAD = {
    "ab3": "“3” is not one of them",
    "größe": "“ö” is not one of them",
    "a😀": "“😀” is not one of them",
    "  ": "There are no letters to sort",
    "ab" * 16: "32 letters; 30 are the most",
    "<b>": "“<” is not one of them",
    "^": "“^” is not one of them",
}


def test_what_is_no_letter_is_refused_in_a_sentence(page):
    open_model(page)
    before = weights_of(page, 0)
    for letters, expected in BAD.items():
        sort(page, letters, expected)
        assert weights_of(page, 0) == before


def test_where_the_model_cannot_be_loaded_the_example_stays(browser, site, tmp_path):
    (tmp_path / "index.html").write_bytes((site / "index.html").read_bytes())
    page = browser.new_page()
    page.goto((tmp_path / "index.html").as_uri())
    button = figure(page, "halting").locator("button.load")
    button.click()
    page.wait_for_selector("text=The model cannot be loaded here")
    assert "a notebook does not have" in said(page, "halting")
    assert button.is_enabled()
    figure(page, "halting").get_by_role("slider").press("Home")
    assert said(page, "halting").startswith("Step 1: ")
    page.close()


def test_bars_of_steps_are_the_recorded_ones(page):
    bars = figure(page, "steps")
    for name, shares in RUNS.items():
        bars.get_by_label("Run").select_option(name)
        bars.get_by_role("slider").press("Home")
        metrics = artifacts.load(name).metrics["epochs"]
        for epoch, row in enumerate(shares, 1):
            assert said(page, "steps").startswith(f"Epoch {epoch}: ")
            for side in ("enc", "dec"):
                assert f"{metrics[epoch - 1]['valid'][f'steps_{side}']:.2f} steps" in said(page, "steps")
            heights = bars.locator(".amount").evaluate_all(
                "all => all.map((bar) => parseFloat(bar.style.height))"
            )
            assert heights == pytest.approx((120 * row).ravel().tolist(), abs=0.01)
            page.keyboard.press("ArrowRight")


@pytest.mark.parametrize("name", ["beam", "halting", "steps"])
def test_it_plays_in_silence_and_stops_at_the_end(page, name):
    page.clock.install()
    page.reload()
    each = figure(page, name)
    line = each.locator("[aria-live]")
    each.get_by_role("button", name="Play").click()
    assert line.get_attribute("aria-live") == "off"
    assert each.get_by_role("slider").input_value() == "0"
    page.clock.run_for(1600)
    assert int(each.get_by_role("slider").input_value()) >= 1  # the clock goes on by itself, too
    page.clock.run_for(60_000)
    assert line.get_attribute("aria-live") == "polite"
    assert each.get_by_role("slider").input_value() == each.get_by_role("slider").get_attribute("max")
    assert each.get_by_role("button", name="Play").is_visible()


@pytest.mark.parametrize("page", [{"reduced_motion": "reduce"}], indirect=True)
@pytest.mark.parametrize("name", ["beam", "halting", "steps"])
def test_who_wants_no_motion_goes_step_by_step(page, name):
    each = figure(page, name)
    for expected in ("0", "1"):
        each.get_by_role("button", name="Next").press("Enter")
        assert each.get_by_role("slider").input_value() == expected
        assert each.locator("[aria-live]").get_attribute("aria-live") == "polite"


@pytest.mark.parametrize("page", [{"viewport": PHONE}], indirect=True)
def test_they_fit_a_telephone(page):
    open_model(page)
    sort(page, "thequickbrownfoxjumpsoveralazy", "became")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.parametrize("page", [{"java_script_enabled": False}], indirect=True)
def test_without_scripts_there_are_pictures_with_words(page):
    assert page.locator("img").count() == 3
    for picture in page.locator("img").all():
        assert len(html.unescape(picture.get_attribute("alt"))) > 80


def test_data_are_small(translators, sorting):
    for element in (
        beam_tree(translators["multi30k"], "The man is old.", 5),
        halting_bars(*sorting, LETTERS),
    ):
        assert len(json.dumps(element.data)) < 20_000
