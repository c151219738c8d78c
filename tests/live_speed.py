"""How fast the live translator of the built landing page is, in Chromium, opened from the disk.

``make live-speed`` runs this file and writes ``book/studies/live-speed.json``, which the status page shows.
"""

import statistics
import time
from pathlib import Path

from attention_on_edges.runs import artifacts
from attention_on_edges.studies import digest_of_weights
from attention_on_edges.studies.circuits_and_golf import HOLES
from attention_on_edges.studies.results import Results
from browser import HTML, ROOT, SCREEN, chromium

TRIES, BEAM = 5, 5
CLICKED = """async (name) => {
    const root = document.querySelector(".edgewise-live"), choice = root.querySelector("[name=model]");
    choice.value = name;
    choice.dispatchEvent(new Event("change"));
    const until = (happened) => new Promise((done) => {
        const watch = new MutationObserver(() => happened() && (watch.disconnect(), done(performance.now())));
        watch.observe(root, {childList: true, subtree: true, characterData: true, attributes: true});
    });
    const ready = until(() => root.querySelector("form"));
    const result = () => root.querySelector("[data-name=result]")?.textContent;
    const translated = until(() => result()?.includes("nothing is cut"));
    const clicked = performance.now();
    root.querySelector("button.load").click();
    return [await ready - clicked, await translated - clicked];
}"""
DECODED = """([name, texts, beam]) => {
    const {model, tokenizer} = EdgewiseEngine.load(EdgewiseModels[name]), figures = [];
    const timed = (act) => {
        const start = performance.now(), found = act();
        return [performance.now() - start, found];
    };
    for (const text of [texts[0], ...texts]) {  // the first warms the compiler up
        const ids = tokenizer.encode(text);
        const [greedy, out] = timed(() => Array.from(EdgewiseEngine.greedy(model, ids)));
        const [searched] = timed(() => EdgewiseEngine.last(EdgewiseEngine.beamSearch(model, ids, {beam})));
        figures.push([greedy / out.length, searched]);  // a step for each token, and one for the end
    }
    return figures.slice(1);
}"""


def measure(browser, name: str) -> dict[str, float]:
    """Median milliseconds of a model, each page opened anew."""
    opened, clicked = [], []
    for _ in range(TRIES):
        page = browser.new_context(viewport=SCREEN).new_page()
        page.goto((HTML / "book" / "index.html").as_uri())
        opened.append(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
        clicked.append(page.evaluate(CLICKED, name))
        page.add_script_tag(path=HTML / "_static" / "live" / f"{name}.js")
        figures = page.evaluate(DECODED, [name, list(HOLES[name]), BEAM])
        page.context.close()
    ready, first = (statistics.median(times) for times in zip(*clicked, strict=True))
    token, beam = zip(*figures, strict=True)
    return {
        "model": name,
        "page": statistics.median(opened),
        "ready": ready,
        "first": first,
        "token": statistics.median(token),
        "beam": statistics.median(beam),
        "beam_longest": max(beam),
    }


def main(folder: Path = ROOT / "book" / "studies") -> None:
    """Measure the committed translators and write the figures."""
    began, facts = time.monotonic(), artifacts.facts("cpu")
    with chromium() as browser:
        rows = [measure(browser, name) for name in HOLES]
        facts["browser"] = f"Chromium {browser.version}"
    config = {
        "name": "live-speed",
        "about": "How fast is the live translator, in milliseconds?",
        "tries": TRIES,
        "weights": {name: digest_of_weights(artifacts.load(name)) for name in HOLES},
    }
    path = Results(config, rows, facts | {"seconds": time.monotonic() - began}).write(folder)
    for row in rows:
        print(*(f"{key} {value:.1f}" if isinstance(value, float) else value for key, value in row.items()))
    print(f"written to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
