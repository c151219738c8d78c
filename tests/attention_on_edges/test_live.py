"""The live translator in Chromium, opened from the disk without a network: equal to Python, and usable."""

import base64
import json
import os
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_on_edges import corpora, runs
from attention_on_edges.decoding import beam_search, greedy
from attention_on_edges.live import page as live
from attention_on_edges.live.element import read
from attention_on_edges.runs import artifacts
from attention_on_edges.runs.study_results import load_study
from attention_on_edges.studies.cutting_edges import CutTranslation, prune
from book_support import PLAIN, noisy
from browser import PHONE, SCREEN

SENTENCES = {
    "tatoeba": ["The cat is sleeping on my bed.", "Can you help me tomorrow?", "She is reading a book."],
    "multi30k": ["Two dogs run through the snow.", "A girl in a yellow dress is eating ice cream."],
}
MODELS = tuple(SENTENCES)

START, END = 0, 1


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with a page that holds the translator, and the files of two models."""
    folder = tmp_path_factory.mktemp("site")
    for file, text in (live.page_files() | live.model_files("multi30k")).items():
        (folder / file).write_text(text, encoding="utf-8")
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>T</title>'
    page = f"{head}<body><main><h1>T</h1>{live.front_page('.')}</main>"
    (folder / "index.html").write_text(page, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def engine(browser, site):
    """A page with the engine and all models loaded; evaluates expressions in which ``models`` has them."""
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    page.add_script_tag(path=site / "live.js")
    for path in sorted(site.glob("*-*.js")):
        page.add_script_tag(path=path)
    page.evaluate(
        """() => {
            globalThis.models = {};
            for (const name in EdgewiseModels) models[name] = EdgewiseEngine.load(EdgewiseModels[name]);
            globalThis.gone = ({layers, heads, n, m}, numbers) => {
                const set = new EdgewiseCuts.EdgeSet([layers, heads], n, m);
                set.keep(numbers, m);
                return set;
            };
            globalThis.packed = (numbers) => {  // long lists would take the driver long
                const bytes = new Uint8Array(Float32Array.from(numbers).buffer);
                return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
            };
            globalThis.run = (name, ids, options = {}) => {
                const weights = [], logProbs = [];
                const attention = (kind, layer, receiver, found) =>
                    weights.push([kind, layer, receiver, found.map((row) => [...row])]);
                const steps = EdgewiseEngine.greedy(models[name].model, ids, {attention, ...options});
                let last;
                for (last of steps) logProbs.push([...last.logProbs]);
                return {ids: last.ids, logProbs, weights};
            };
        }"""
    )
    yield page
    page.close()


@pytest.fixture(scope="module")
def translators():
    return {name: runs.load_translator(artifacts.load(name)) for name in MODELS}


TYPED = st.builds(noisy, st.sampled_from(PLAIN), st.randoms(use_true_random=False))
LISTS = st.lists(st.text(max_size=40) | TYPED, min_size=1, max_size=20)


@settings(max_examples=150 if os.environ.get("EDGEWISE_NIGHTLY") else 25)
@given(texts=LISTS)
def test_texts_are_split_as_in_python(engine, translators, texts):
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    for name in MODELS:
        splitter, vocabulary = translators[name].splitter, translators[name].vocabulary
        expected = [list(vocabulary.encode(translators[name].split(text))) for text in texts]
        found = engine.evaluate(
            "([name, texts]) => texts.map((text) => models[name].tokenizer.encode(text))", [name, texts]
        )
        assert found == expected
        there_and_back = engine.evaluate(
            "([name, ids]) => ids.map((one) => models[name].tokenizer.decode(one))", [name, found]
        )
        assert there_and_back == [splitter.join(vocabulary.decode(ids)) for ids in expected]


LOOPING = "WHERE IS THE STATION?", "12345 67890 12345", "zzzzzzzz", "Yes yes yes yes yes."


def test_its_guard_against_loops_is_pythons(engine, translators):
    translator = translators["tatoeba"]
    ids = [translator.encode(text) for text in LOOPING]
    free = greedy(translator.model, ids, START, END)
    expected = [h.ids for h in beam_search(translator.model, ids, START, END, 1, max_repeats=1)]
    found = engine.evaluate("(all) => all.map((ids) => run('tatoeba', ids, {repeats: 1}).ids)", ids)
    assert found == [list(one) for one in expected] != [list(h.ids) for h in free]


def farthest(packed, expected):
    found = np.frombuffer(base64.b64decode(packed), np.float32)
    return np.abs(found - expected.detach().numpy().reshape(-1)).max()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sets", [8, pytest.param(40, marks=pytest.mark.nightly)])
def test_attention_is_pythons_and_so_are_probabilities_whole_and_under_cuts(engine, translators, name, sets):
    """The whole graph, and random sets of cuts, of which some leave receivers without an edge."""
    translator, chance = translators[name], random.Random(0)
    cases = [(text, None) for text in SENTENCES[name][:2]]
    cases += [(chance.choice(SENTENCES[name]), [0.02, 0.2, 0.5, 0.9][i % 4]) for i in range(sets)]
    for number, (text, share) in enumerate(cases):
        sentence = CutTranslation(translator.model, translator.encode(text))
        generator = torch.Generator().manual_seed(number)
        kept = torch.rand(len(sentence.edges), generator=generator) > (share or -1)
        layers, heads = (sentence.edges[:, 1:3].amax(0) + 1).tolist()
        sizes = {"layers": layers, "heads": heads, "n": len(sentence.source), "m": len(sentence.read)}
        found = engine.evaluate(
            """([name, ids, forced, sizes, kept]) => {
                const set = gone(sizes, kept), numbers = set.left(sizes.m);
                const {logProbs, weights} = run(name, ids, {edge: set.has, forced});
                const of = new Map(weights.map(([...key]) => [key.slice(0, 3).join(), key[3]]));
                const weight = ([kind, layer, head, receiver, sender]) =>
                    of.get([kind, layer, receiver].join())[head][sender];
                const all = [...set.edges(undefined, sizes.m)].map(weight);
                return {logProbs: packed(logProbs.flat()), weights: packed(all), numbers};
            }""",
            [name, sentence.source.tolist(), list(sentence.ids), sizes, kept.nonzero()[:, 0].tolist()],
        )  # fmt: skip
        assert found["numbers"] == kept.nonzero()[:, 0].tolist()
        assert farthest(found["logProbs"], sentence.log_probs(kept[None])) < 1e-4
        assert share or farthest(found["weights"], sentence.weights) < 1e-5


# The page.


@pytest.fixture
def page(browser, site, request):
    context = browser.new_context(**{"viewport": SCREEN} | getattr(request, "param", {}))
    page = context.new_page()
    page.trouble = []
    page.on("pageerror", lambda error: page.trouble.append(str(error)))
    page.goto((site / "index.html").as_uri())
    yield page
    assert page.trouble == []
    context.close()


def part(page, name):
    return page.locator(f"[data-name={name}]")


def settle(page):
    page.wait_for_function("document.querySelector('.edgewise-front').ariaBusy !== 'true'")


def said(page):
    settle(page)
    return part(page, "now").inner_text()


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()
    settle(page)


def translate(page, text):
    page.locator("input[name=text]").fill(text)
    page.keyboard.press("Enter")
    settle(page)
    return part(page, "whole").inner_text()


def change(page, **state):
    """Set a part of the page's state and return the outcome."""
    return page.evaluate(
        """async (state) => {
            const {front} = document.querySelector(".edgewise-front");
            await front.change({cuts: [], reach: null, ...state});
            const {text, at, bars} = front.outcome ?? {text: front.sentence.said};
            return {text, at, bars};
        }""",
        state,
    )


def line(page, sender, receiver):
    """The place on the screen of the middle of a line from the source to the target."""
    return page.evaluate(
        """([sender, receiver]) => {
            const {picture} = document.querySelector(".edgewise-front").front;
            const wanted = ["e2d", sender, receiver].join();
            const at = picture.lines.findIndex(({line}) => line.slice(0, 3).join() === wanted);
            const hit = document.querySelector(`[data-line="${at}"]`);
            const half = hit.getPointAtLength(hit.getTotalLength() / 2);
            const {x, y} = half.matrixTransform(hit.getScreenCTM());
            return [x, y];
        }""",
        [sender, receiver],
    )


PREPARED = json.loads(read("home_page_texts.json"))
FIRST = SENTENCES["tatoeba"][0]


def test_a_cut_of_the_first_sentence_is_answered_before_any_model_is_there(browser, site, tmp_path):
    (tmp_path / "index.html").write_bytes((site / "index.html").read_bytes())
    page = browser.new_page()
    page.goto((tmp_path / "index.html").as_uri())
    press(page, "Cut cat → chat")
    assert said(page) == "Le lit dort sur mon lit."
    assert page.locator(".line.gone").count() == 1
    assert page.locator(".lost").text_content() == "chat"
    translate(page, "It is raining today.")
    assert part(page, "note").inner_text().startswith("The translator cannot be loaded: ")
    assert said(page) == "Le lit dort sur mon lit."
    page.close()


@pytest.mark.parametrize("step", [50, pytest.param(1, marks=pytest.mark.nightly)])
def test_what_is_known_beforehand_is_what_the_model_says(page, step):
    """Each single line, each word, and all lines across; three of these in every run."""
    known = page.evaluate(
        """() => {
            const {front} = document.querySelector(".edgewise-front");
            const known = [...front.ready].map(([key, outcome]) => [key, outcome]);
            front.ready.clear();  // so that the model has to answer
            return known;
        }"""
    )
    assert len(known) == 140 + 8 + 1
    for key, expected in known[::step]:
        cuts = [[kind, *map(int, numbers)] for kind, *numbers in (cut.split(".") for cut in key.split("_"))]
        found = change(page, cuts=cuts)
        assert (found["text"], found["at"]) == (expected["text"], expected["at"]), key
        ours, theirs = ({word: both for word, *both in one["bars"]} for one in (found, expected))
        for word in ours.keys() & theirs.keys():
            assert ours[word] == pytest.approx(theirs[word], abs=2e-3), key
        alone = [max((ours | theirs)[word]) for word in ours.keys() ^ theirs.keys()]
        assert max(alone, default=0) < 0.03, key
    for outcome in {expected["text"] for _, expected in known}:
        assert outcome in PREPARED["glosses"]


def test_ten_edges_are_enough_and_their_probabilities_are_pythons(page, translators):
    translator = translators["tatoeba"]
    sentence = CutTranslation(translator.model, translator.encode(FIRST))
    kept = prune(sentence, sentence.weights.argsort())
    assert kept.nonzero()[:, 0].tolist() == load_study("first-cuts").config["sentence"]["kept"]
    press(page, "Keep 10 of 1,312 edges: they are enough")
    assert said(page) == "Le chat dort sur mon lit."
    lines = {(kind, *ends) for kind, _, _, *ends in sentence.edges[kept].tolist()}
    assert page.locator(".line").count() == len(lines) == 8
    before, after = sentence.chosen(torch.stack([torch.ones_like(kept), kept])).exp().tolist()
    words = ["Le", "chat", "dort", "sur", "mon", "lit", "."]  # each is a piece
    expected = sorted(zip(words, before, after, strict=False), key=lambda row: row[2] - row[1])[:4]
    bars = page.evaluate("document.querySelector('.edgewise-front').front.outcome.bars")
    for (word, *found), (other, *wanted) in zip(bars, expected, strict=True):
        assert word == other
        assert found == pytest.approx(wanted, abs=1e-4)


def test_a_words_lines_are_all_of_its_attention_in_one_head_too(page):
    """Also of one that is written in several pieces: its weights are means over these."""
    change(page, text="The firefighters love their skateboards.")
    page.locator("summary").click()
    for head in ("all", "3"):
        page.get_by_role("combobox", name="Head").select_option(label=head)
        settle(page)
        target, rows, lines = page.evaluate(
            """() => {
                const {target, rows, lines} = document.querySelector(".edgewise-front").front.drawn;
                return [target, rows, lines];
            }"""
        )
        assert max(map(len, rows)) > 1
        for word in range(len(target)):
            shares = [w for kind, _, receiver, w in lines if (kind, receiver) == ("e2d", word)]
            assert sum(shares) == pytest.approx(1, abs=1e-4)
    press(page, "Reset")
    assert page.get_by_role("combobox", name="Head").input_value() == "-1"


def test_a_line_is_cut_by_a_click_and_a_word_silenced_by_another(page):
    x, y = line(page, 1, 1)
    page.mouse.move(x, y)
    assert part(page, "pointed").inner_text().startswith("To write “chat”, the model gives “cat” 6")
    page.mouse.click(x, y)
    assert said(page) == "Le lit dort sur mon lit."
    page.mouse.click(x, y)
    assert said(page) == ""
    page.locator(".word[data-side=source]", has_text="bed").click()
    assert said(page) == "Le chat dort sur moi."
    press(page, "Undo")
    press(page, "Cut all lines across")
    page.mouse.click(x, y)
    assert part(page, "note").inner_text().startswith("That is gone already")


@pytest.mark.parametrize("page", [{"viewport": PHONE, "has_touch": True}], indirect=True)
def test_a_finger_names_a_line_before_it_cuts(page):
    x, y = line(page, 1, 1)
    page.touchscreen.tap(x, y)
    assert part(page, "pointed").inner_text().endswith("Tap again to cut it.")
    assert said(page) == ""
    page.touchscreen.tap(x, y)
    assert said(page) == "Le lit dort sur mon lit."


def test_all_of_it_works_by_keyboard(page):
    page.locator("svg").first.focus()
    for key in ("ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    for cut in (1, 0):
        page.keyboard.press("Enter")
        settle(page)
        assert page.locator(".line.gone").count() == cut
    page.keyboard.press("s")
    settle(page)
    assert page.locator(".silent").count() == 1


@pytest.mark.corpus
def test_ninety_five_in_a_hundred_held_out_sentences_are_not_doubted(translators):
    translator, pairs = translators["tatoeba"], corpora.load("tatoeba").splits["test"]
    ids = [translator.encode(source) for source, _ in pairs[:600]]
    found = [
        h.log_prob / (len(h.ids) + h.finished)
        for start in range(0, len(ids), 100)
        for h in greedy(translator.model, ids[start : start + 100], START, END)
    ]
    assert np.quantile(np.exp(found), 0.05) == pytest.approx(PREPARED["typical"], abs=0.01)


def test_the_address_holds_the_state_and_brings_it_back(page, site):
    translate(page, "They live near the river.")
    change(page, cuts=[["e2d", 0, -1, -1, 2]], reach=1)
    page.wait_for_url("**cut=e2d.1.-1.-1.2&window=1")
    found, address = said(page), page.url
    other = page.context.new_page()
    other.goto(address)
    assert said(other) == found
    assert other.locator("input[name=text]").input_value() == "They live near the river."
    other.close()
    press(page, "Undo")
    press(page, "Undo")
    page.wait_for_url((site / "index.html").as_uri())


def test_share_tells_the_state_where_the_address_may_not_change(page):
    """As after a hundred changes in half a minute; and what is foreign says its language."""
    translate(page, "They live near the river.")
    page.evaluate("""() => {
        window.calls = 0;
        history.replaceState = () => { window.calls++; throw new DOMException("", "SecurityError"); };
        navigator.clipboard.writeText = async (text) => { window.copied = text; };
    }""")
    for reach in (3, 0, 1):
        change(page, reach=reach)
    press(page, "Share")
    assert page.evaluate("window.copied").endswith("#live?text=They+live+near+the+river.&window=1")
    assert page.evaluate("window.calls") <= 3
    assert page.locator("[data-name=now]").get_attribute("lang") == "fr"
    bar, colours = page.locator(".bars i.is").first, []
    for forced in ("none", "active"):
        page.emulate_media(forced_colors=forced)
        colours.append(bar.evaluate("(bar) => getComputedStyle(bar).backgroundColor"))
    assert colours[0] == colours[1] != "rgba(0, 0, 0, 0)"


@given(
    st.builds(
        "{}?text={}&cut={}&keep={}&window={}".format,
        st.sampled_from(["#live", "#dead"]),
        *[st.text("aZ0159.-_e2d%+ ", max_size=12)] * 4,
    )
)
@settings(max_examples=30)
def test_a_link_is_a_state_or_none(engine, link):
    state = engine.evaluate("(link) => EdgewiseWords.fromLink(link)", link)
    assert (state is None) == ("dead" in link)
    if state:
        assert engine.evaluate("(s) => EdgewiseWords.fromLink(EdgewiseWords.toLink(s))", state) == state


def test_what_cannot_be_read_is_said_at_the_field_and_the_picture_stays(page):
    translate(page, "It is raining today.")
    for text, note in (
        ("你好", "There is nothing here that this translator can read. Try “"),
        ("It is raining today. 🌧", "Translated without “🌧”, which it cannot read."),
        ("It is raining today. " * 20, "Translated without the end, “"),
    ):
        assert translate(page, text).startswith("Il pleut aujourd'hui.")
        assert part(page, "note").inner_text().startswith(note)
    translate(page, "xq zzkw vrr")
    assert "The model is unsure of this one" in part(page, "note").inner_text()


def test_what_comes_too_late_changes_nothing(page):
    """A cut in a picture whose sentence is being replaced, and Stop."""
    field, send = page.locator("input[name=text]"), "document.querySelector('form button').click();"
    field.fill("They live near the river.")
    page.evaluate(send + "document.querySelector('.word').dispatchEvent(new Event('click', {bubbles: true}))")
    settle(page)
    there = part(page, "whole").inner_text()
    assert there.startswith("Ils ")
    assert said(page) == ""
    field.fill("We have been waiting for two hours.")
    page.evaluate(send + send)
    assert part(page, "note").inner_text() == "Stopped."
    assert part(page, "whole").inner_text() == there


def test_words_that_differ_are_marked_by_alignment(engine):
    sentences = ["steht auf einer Leiter .", "steht auf einem Leiter ."]
    assert engine.evaluate("([a, b]) => EdgewiseWords.compareWords(a, b)", sentences) == [
        ["steht", "both"], ["auf", "both"], ["einer", "old"], ["einem", "new"],
        ["Leiter", "both"], [".", "both"],
    ]  # fmt: skip
