"""What each single cut of the front page's sentence does, and which edges are enough for it.

Outcomes are computed by the page's own engine, in Chromium. ``make first-cuts`` runs this file and writes
``book/studies/first-cuts.json``, which the page shows before its model is loaded, and
``book/_static/card.png``, the picture that other sites show of it. ``test_live.py`` computes them again.
"""

import json
import time

from attention_on_edges.live import page as live
from attention_on_edges.live.element import read
from attention_on_edges.runs import artifacts
from attention_on_edges.runs.running import load_translator
from attention_on_edges.runs.study_results import Results
from attention_on_edges.studies.cutting_edges import CutTranslation, prune
from attention_on_edges.studies.measurements import digest_of_weights
from browser import chromium
from paths import ROOT

CARD = """body{margin:0;padding:24px 40px;font:20px/1.5 sans-serif;zoom:1.12}
form,.chips,.on,.tools,.pointed,.lead{display:none !important}.claim{margin-bottom:18px !important}"""
COMPUTED = """async ([name, text]) => {
    const {WHOLE, cutLine, keyOf, silence} = EdgewiseWords, options = {alive: () => true};
    const round = (numbers) => numbers.map((n) => (typeof n === "number" ? Number(n.toFixed(4)) : n));
    const answers = new EdgewiseAnswers.Answers(EdgewiseEngine.load(EdgewiseModels[name]));
    const sentence = await answers.translate(text, options), outcomes = [];
    const {ids, run, certainty, ...told} = sentence;
    told.lines = told.lines.map(round);
    const lines = told.lines.map((line) => cutLine(told, line));
    const words = told.source.map((_, word) => silence(told, "source", word));
    for (const cuts of [...lines, ...words, [["e2d", -1, -1, -1, -1]]]) {
        const {text, at, bars} = await answers.outcome(sentence, {...WHOLE, cuts}, options);
        outcomes.push({key: keyOf(cuts), text, at, bars: bars.map(round)});
    }
    return [told, outcomes];
}"""


def enough(text: str) -> list[int]:
    """The numbers of the edges that pruning leaves, as in chapter 9."""
    translator = load_translator(artifacts.load(live.MODEL))
    sentence = CutTranslation(translator.model, translator.encode(text))
    return prune(sentence, sentence.weights.argsort()).nonzero()[:, 0].tolist()


def main() -> None:
    """Compute all outcomes of the committed model and write them."""
    began, facts = time.monotonic(), artifacts.facts("cpu")
    text = json.loads(read("home_page_texts.json"))["text"]
    with chromium() as browser:
        page = browser.new_page()
        for script in (
            live.joined(("base.js", "words_and_links.js")),
            live.joined(live.LOADED),
            *live.model_files(live.MODEL).values(),
        ):
            page.add_script_tag(content=script)
        sentence, outcomes = page.evaluate(COMPUTED, [live.MODEL, text])
        config = {
            "name": "first-cuts",
            "about": "What does each single cut of a sentence do to its translation?",
            "weights": digest_of_weights(artifacts.load(live.MODEL)),
            "sentence": sentence | {"kept": enough(text)},
        }
        Results(config, outcomes, facts | {"seconds": time.monotonic() - began}).write(
            ROOT / "book" / "studies"
        )
        page = browser.new_page(viewport={"width": 1200, "height": 630})
        page.set_content(f"<style>{CARD}</style><main>{live.front_page('.')}</main>")
        page.evaluate("document.querySelector('.chips button').click()")
        page.screenshot(path=ROOT / "book" / "_static" / "card.png")


if __name__ == "__main__":
    main()
