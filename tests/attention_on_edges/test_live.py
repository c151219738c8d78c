"""The live translator in Chromium, opened from the disk without a network: equal to Python, and usable."""

import base64
import json
import random
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_on_edges import corpora, runs
from attention_on_edges.live import page as live
from attention_on_edges.live.element import read
from attention_on_edges.runs import artifacts
from attention_on_edges.studies import load_study
from attention_on_edges.studies.circuits_and_golf import HOLES
from attention_on_edges.studies.cut_translation import KINDS, CutTranslation
from browser import PHONE, SCREEN, chromium
from edgewise.attention import MultiHeadAttention
from edgewise.decoding import beam_search, greedy
from workshop import PLAIN, noisy

MODELS = ("tatoeba", "multi30k")

START, END = 0, 1


@pytest.fixture(scope="module")
def browser():
    with chromium() as program:
        yield program


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with a page that holds the translator, and its files."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "live.js").write_text(live.script_file(), encoding="utf-8")
    for name in MODELS:
        (folder / f"{name}.js").write_text(live.model_file(name), encoding="utf-8")
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>T</title>'
    page = f"{head}<body><main><h1>T</h1>{live.translator_page(MODELS, '.')}</main>"
    (folder / "index.html").write_text(page, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def engine(browser, site):
    """A page with the engine and all models loaded; evaluates expressions in which ``models`` has them."""
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    page.add_script_tag(path=site / "live.js")
    for name in MODELS:
        page.add_script_tag(path=site / f"{name}.js")
    page.evaluate(
        """() => {
            globalThis.models = {};
            for (const name in EdgewiseModels) models[name] = EdgewiseEngine.load(EdgewiseModels[name]);
            globalThis.gone = ({layers, heads, n, m}, numbers) => {
                const set = new EdgewiseCuts.EdgeSet({layers, heads}, n, m);
                set.keep(numbers, m);
                return set;
            };
            globalThis.packed = (numbers) => {  // long lists would take the driver long
                const bytes = new Uint8Array(Float32Array.from(numbers).buffer);
                return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
            };
            globalThis.run = (name, ids, {edge, forced} = {}) => {
                const weights = [], logProbs = [];
                const attention = (kind, layer, receiver, found) =>
                    weights.push([kind, layer, receiver, found.map((row) => [...row])]);
                const steps = EdgewiseEngine.greedy(models[name].model, ids, {attention, edge, forced});
                let last;
                for (last of steps) logProbs.push([...last.logProbs]);
                return {ids: last.ids, logProb: last.logProb, logProbs, weights};
            };
        }"""
    )
    yield page
    page.close()


@pytest.fixture(scope="module")
def translators():
    return {name: runs.load_translator(artifacts.load(name)) for name in MODELS}


def sentences(name, count):
    """Sentences of the project's own: those of edge golf, then captions of the grammar."""
    own = list(HOLES[name])
    captions = corpora.load("captions", train=count, valid=1, test=1).splits["train"]
    return (own + [source for source, _ in captions])[:count]


TYPED = st.builds(noisy, st.sampled_from(PLAIN), st.randoms(use_true_random=False))


@settings(max_examples=150)
@given(texts=st.lists(st.text(max_size=40) | TYPED, min_size=1, max_size=20))
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


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.nightly)])
def test_it_translates_as_python_does(engine, translators, name, count):
    translator = translators[name]
    ids = [translator.encode(text) for text in sentences(name, count)]
    expected = greedy(translator.model, ids, START, END)
    translate = "([name, all]) => all.map((ids) => (({ids, logProb}) => [ids, logProb])(run(name, ids)))"
    found = engine.evaluate(translate, [name, ids])
    assert [out for out, _ in found] == [list(h.ids) for h in expected]
    assert [value for _, value in found] == pytest.approx([h.log_prob for h in expected], abs=1e-3)
    penalty = translator.length_penalty
    best = beam_search(translator.model, ids, START, END, 5, penalty)
    found = engine.evaluate(
        """([name, all, penalty]) => all.map((ids) => {
            const search = EdgewiseEngine.beamSearch(models[name].model, ids, {beam: 5, penalty});
            return EdgewiseEngine.last(search)[0].ids;
        })""",
        [name, ids, penalty],
    )
    assert found == [list(hypotheses[0].ids) for hypotheses in best]


LOOPING = "WHERE IS THE STATION?", "12345 67890 12345", "zzzzzzzz", "Yes yes yes yes yes."


def test_its_guard_against_loops_is_pythons(engine, translators):
    translator = translators["tatoeba"]
    ids = [translator.encode(text) for text in LOOPING]
    free = greedy(translator.model, ids, START, END)
    for beam in (1, 3):
        expected = [h.ids for (h,) in beam_search(translator.model, ids, START, END, beam, max_repeats=1)]
        found = engine.evaluate(
            """([all, beam]) => all.map((ids) => {
                const {model} = models.tatoeba, {beamSearch, last} = EdgewiseEngine;
                return last(beamSearch(model, ids, {beam, repeats: 1}))[0].ids;
            })""",
            [ids, beam],
        )
        assert found == [list(one) for one in expected] != [list(h.ids) for h in free]


def test_what_is_one_loop_from_its_first_token_is_seen(engine):
    """The model always prefers 4 to 5 to 3; no run of tokens may stand twice in a row."""
    found = engine.evaluate(
        """() => {
            const logProbs = Float32Array.from([-9, -8, -9, -3, -1, -2]);
            const model = {encode: () => [], begin: () => [[]], step: (_, cache) => ({cache, logProbs})};
            return [...EdgewiseEngine.greedy(model, [1], {limit: 4, repeats: 1})].at(-1).ids;
        }"""
    )
    assert found == [4, 5, 4, 3]


def weights_under(sentence, kept):
    """Attention on every edge of a sentence whose edges are cut, by watching the dense layers: [E]."""
    seen = {kind: [] for kind in KINDS}
    model, hooks = sentence.model, []
    places = [
        ("e2e", "encoder", "self_attn"),
        ("e2d", "decoder", "src_attn"),
        ("d2d", "decoder", "self_attn"),
    ]
    for kind, side, part in places:
        for layer in getattr(model, side).layers:
            attention = getattr(layer, part)
            assert isinstance(attention, MultiHeadAttention)
            hook = lambda _, __, found, kind=kind: seen[kind].append(found[1][0])  # noqa: E731
            hooks.append(attention.register_forward_hook(hook))
    log_probs = sentence.log_probs(kept[None])[0]
    for hook in hooks:
        hook.remove()
    stacked = {kind: torch.stack(found) for kind, found in seen.items()}
    kinds, layers, heads, receivers, senders = sentence.edges.T
    weights = torch.zeros(len(kept))
    for number, kind in enumerate(KINDS):
        rows = kinds == number
        weights[rows] = stacked[kind][layers[rows], heads[rows], receivers[rows], senders[rows]]
    return log_probs, weights


def farthest(packed, expected):
    found = np.frombuffer(base64.b64decode(packed), np.float32)
    return np.abs(found - expected.detach().numpy().reshape(-1)).max()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sets", [8, pytest.param(40, marks=pytest.mark.nightly)])
def test_probabilities_and_attention_are_pythons_whole_and_under_cuts(engine, translators, name, sets):
    """The whole graph, and random sets of cuts, of which some leave receivers without an edge."""
    translator, chance = translators[name], random.Random(0)
    cases = [(text, None) for text in HOLES[name][:2]]
    cases += [(chance.choice(HOLES[name]), [0.02, 0.2, 0.5, 0.9][i % 4]) for i in range(sets)]
    for number, (text, share) in enumerate(cases):
        sentence = CutTranslation(translator.model, translator.encode(text))
        generator = torch.Generator().manual_seed(number)
        kept = torch.rand(len(sentence.edges), generator=generator) > (share or -1)
        log_probs, weights = weights_under(sentence, kept)
        n, m = len(sentence.source), len(sentence.read)
        layers, heads = int(sentence.edges[:, 1].max()) + 1, int(sentence.edges[:, 2].max()) + 1
        sizes = {"layers": layers, "heads": heads, "n": n, "m": m}
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
        assert farthest(found["logProbs"], log_probs) < 1e-4
        assert farthest(found["weights"], weights) < 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_par_keeps_the_translation(engine, translators, name):
    rows = load_study(f"golf-{name}").rows
    assert [row["text"] for row in rows] == list(HOLES[name])
    translator = translators[name]
    for row in rows:
        ids = translator.encode(row["text"])
        whole = CutTranslation(translator.model, ids)
        assert translator.splitter.join(translator.vocabulary.decode(list(whole.ids))) == row["translation"]
        assert len(whole.edges) == row["edges"]
        left, out, expected = engine.evaluate(
            """([name, ids, kept]) => {
                const {ids: whole} = run(name, ids), {N: layers, h: heads} = models[name].model.config;
                const set = gone({layers, heads, n: ids.length, m: whole.length + 1}, kept);
                return [set.left(whole.length + 1).length, run(name, ids, {edge: set.has}).ids, whole];
            }""",
            [name, ids, row["kept"]],
        )
        assert out == expected == list(whole.ids)
        assert left == len(row["kept"]) < 0.03 * row["edges"]


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


def settled(page, text=""):
    page.wait_for_function(
        """(text) => document.querySelector(".edgewise-live").ariaBusy !== "true"
            && document.querySelector("[data-name=result]")?.textContent.includes(text)""",
        arg=text,
    )
    return part(page, "result").inner_text()


def begin(page):
    page.locator("button.load").click()
    return settled(page, "nothing is cut")


def test_before_it_is_loaded_a_picture_shows_it_at_work_and_the_button_says_the_size(page, site):
    assert page.locator(".still svg path").count() > 50
    assert "“Where is the station?” became “Où est la gare ?”" in page.locator("figcaption").inner_text()
    size = sum((site / name).stat().st_size for name in ("tatoeba.js", "live.js")) / 1e6
    assert page.locator("button.load").inner_text() == f"Load the translator ({size:.1f} MB)"
    assert page.evaluate("[globalThis.EdgewiseModels, globalThis.EdgewiseEngine]") == [None, None]
    begin(page)
    assert page.locator(".still").count() == 0
    assert part(page, "whole").inner_text() == "Où est la gare ?"


def test_every_experiment_does_what_is_said_of_it(page):
    begin(page)
    for name, settings_ in json.loads(read("models.json")).items():
        page.select_option("[name=model]", name)
        settled(page)
        for experiment in settings_["tries"]:
            page.get_by_role("button", name=experiment["label"], exact=True).click()
            settled(page, " cut: ")
            assert (
                page.locator("[data-name=free] :not(del)").all_inner_texts() == experiment["becomes"].split()
            )
            assert part(page, "note").inner_text() == experiment["says"]


def test_an_edge_is_cut_by_a_click_and_mended_by_another(page):
    begin(page)
    edge = page.locator(".hit").last  # the heaviest, above the others
    edge.hover(force=True)
    assert part(page, "pointed").inner_text().endswith("Click to cut.")
    edge.click(force=True)
    assert settled(page, "8 edges of 608 cut")  # in 2 layers and 4 heads
    assert page.locator(".edge.cut").count() == 1
    page.get_by_role("button", name="Undo").click()
    settled(page, "nothing is cut")
    assert page.locator(".edge.cut").count() == 0


def test_all_of_it_works_by_keyboard(page):
    begin(page)
    graph = page.locator("svg.graphs")
    graph.focus()
    page.keyboard.press("ArrowRight")
    said = part(page, "pointed").inner_text()
    page.keyboard.press("ArrowRight")
    assert part(page, "pointed").inner_text() != said
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    settled(page, "8 edges of 608 cut")
    assert part(page, "pointed").inner_text()
    page.keyboard.press("Enter")
    settled(page, "nothing is cut")


def test_a_silenced_word_says_what_that_did_to_which_probability(page, translators):
    begin(page)
    word = part(page, "words").get_by_role("button", name="station")
    word.click()
    said = settled(page, "88 edges of 608 cut: ")  # 5 + 6 receivers, 2 layers, 4 heads
    assert word.get_attribute("aria-pressed") == "true"
    translator = translators["tatoeba"]
    sentence = CutTranslation(translator.model, translator.encode("Where is the station?"))
    number = translator.splitter.show(translator.split("Where is the station?")).index("_station")
    kinds, senders = sentence.edges[:, 0], sentence.edges[:, 4]
    kept = (senders != number) | (kinds == KINDS.index("d2d"))
    of = [
        sentence.log_probs(kept)[0].detach().exp()[range(len(sentence.read)), [*sentence.ids, END]]
        for kept in (torch.ones(1, len(kept), dtype=torch.bool), kept[None])
    ]
    place = int((of[0] - of[1]).abs().argmax())
    [piece] = translator.splitter.show([translator.vocabulary.decode(list(sentence.ids))[place]])
    before, after = (f"{100 * float(p[place]):.1f}\u00a0%" for p in of)
    assert said.endswith(f"Most changed is “{piece[1:]}”: its probability goes from {before} to {after}.")
    word.click()
    settled(page, "nothing is cut")


@pytest.mark.corpus
@pytest.mark.parametrize("name", MODELS)
def test_ninety_five_in_a_hundred_held_out_sentences_are_not_doubted(name):
    typical = json.loads(read("models.json"))[name]["typical"]
    artifact = artifacts.load(name)
    translator = runs.load_translator(artifact)
    ids = [translator.encode(source) for source in runs.test_sources(artifact)[:600]]
    found = [
        h.log_prob / (len(h.ids) + h.finished)
        for start in range(0, len(ids), 100)
        for h in greedy(translator.model, ids[start : start + 100], START, END)
    ]
    assert np.quantile(np.exp(found), 0.05) == pytest.approx(typical, abs=0.01)


def test_a_link_restores_what_was_cut(page, site):
    begin(page)
    page.locator("input[name=text]").fill("They live near the river.")
    page.keyboard.press("Enter")
    settled(page, "nothing is cut")
    page.select_option("[name=reach]", "1")
    settled(page, "cut: ")
    page.locator(".hit").last.click(force=True)
    said = settled(page, "cut: ")
    page.get_by_role("button", name="Copy a link").click()
    link = page.evaluate("location.href")
    other = page.context.new_page()
    other.goto(link)
    assert other.locator("button.load").inner_text().startswith("Open what the link shows (")
    other.locator("button.load").click()
    assert settled(other, "cut: ") == said
    assert other.locator("input[name=text]").input_value() == "They live near the river."
    other.close()


def test_what_cannot_be_translated_is_refused_in_a_sentence(page):
    begin(page)
    for text, said in (("   ", "There is no text"), ("a " * 100, "100 pieces")):
        page.locator("input[name=text]").fill(text)
        page.keyboard.press("Enter")
        settled(page, said)
    page.locator("input[name=text]").fill("It is raining today.")
    page.keyboard.press("Enter")
    settled(page, "nothing is cut")
    assert part(page, "whole").inner_text() == "Il pleut aujourd'hui."


def test_a_file_that_cannot_be_read_leaves_the_picture_and_says_so(browser, site, tmp_path):
    for name in ("index.html", "live.js", "multi30k.js"):
        (tmp_path / name).write_bytes((site / name).read_bytes())
    page = browser.new_page()
    page.goto((tmp_path / "index.html").as_uri())
    page.locator("button.load").click()
    page.wait_for_selector("[role=alert]:not(:empty)")
    assert page.locator("[role=alert]").inner_text().startswith("The translator cannot be loaded (")
    assert page.locator(".still svg").is_visible()
    page.select_option("[name=model]", "multi30k")
    page.locator("button.load").click()
    settled(page, "nothing is cut")
    page.close()


def test_golf_scores_what_is_left_and_knows_par(page, translators):
    begin(page)
    page.locator(".golf summary").click()
    settled(page)
    page.select_option("[name=hole]", "0")
    settled(page, "nothing is cut")
    score, kept = page.locator(".score"), load_study("golf-tatoeba").rows[0]["kept"]
    page.wait_for_function(f"document.querySelector('.score').textContent.endsWith('par is {len(kept)}.')")
    assert score.inner_text().startswith("608 of 608 edges are left")
    whole = CutTranslation(translators["tatoeba"].model, translators["tatoeba"].encode(HOLES["tatoeba"][0]))
    needed = set(map(tuple, whole.edges[kept, :3].tolist()))
    groups = Counter(tuple(edge[:3]) for edge in whole.edges.tolist())
    page.get_by_role("button", name="Cut what par does not need").click()
    settled(page, " cut: ")
    assert score.inner_text().startswith(f"{608 - max(groups[g] for g in groups.keys() - needed)} ")
    page.locator("[name=lighter]").fill("0.99")
    settled(page, " cut: ")
    page.wait_for_function("document.querySelector('.score').textContent.includes('The translation is lost')")
    page.get_by_role("button", name="Show par").click()
    page.wait_for_function("document.querySelector('.score').textContent.endsWith('This is par.')")


def test_links_come_back_and_what_is_no_link_is_none(page, site):
    page.add_script_tag(path=site / "live.js")
    state = {
        "name": "tatoeba", "text": "a&b=c #%_.", "cuts": [["e2d", -1, 2, -1, 3], [-1, -1, -1, -1, -1]],
        "reach": 0, "lighter": 0.25, "kept": [1, 5],
    }  # fmt: skip
    there = "(state) => EdgewiseTranslator.fromLink(EdgewiseTranslator.toLink(state))"
    assert page.evaluate(there, state) == state
    assert page.evaluate("EdgewiseTranslator.fromLink", "#x") is None


def test_words_that_differ_are_marked_by_alignment(page, site):
    page.add_script_tag(path=site / "live.js")
    sentences = ["steht auf einer Leiter .", "steht auf einem Leiter ."]
    assert page.evaluate("([a, b]) => EdgewiseTranslator.compareWords(a, b)", sentences) == [
        ["steht", "both"], ["auf", "both"], ["einer", "old"], ["einem", "new"],
        ["Leiter", "both"], [".", "both"],
    ]  # fmt: skip


@pytest.mark.parametrize("page", [{"viewport": PHONE}], indirect=True)
def test_it_fits_a_telephone(page):
    begin(page)
    page.locator(".golf summary").click()
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
