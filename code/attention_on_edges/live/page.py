"""The front page: its markup, what it knows before a model is loaded, and the files that it loads."""

import base64
import html
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from attention_on_edges.live.chapter_elements import lines_of
from attention_on_edges.live.element import compact, read
from attention_on_edges.runs import artifacts
from attention_on_edges.runs.study_results import load_study

IN_PAGE = ("base.js", "words_and_links.js", "front_picture.js", "front.js")
LOADED = ("engine.js", "front_cuts.js", "front_answers.js")
"""In the order in which they need each other: ``live.js``, which the page loads at the first cut."""

MODEL, LANGUAGE = "tatoeba", "fr"
"""The translator, and what it writes, for who reads it aloud."""

PARTS = 8
"""Files of a model, so that a page can tell how far it is."""


def joined(names: Sequence[str]) -> str:
    """Several scripts as one."""
    return "\n".join(compact(read(name)) for name in names)


@cache
def model_files(name: str) -> dict[str, str]:
    """A committed translator as scripts: its configuration, merges and weights, unchanged."""
    artifact = artifacts.load(name)
    weights = base64.b64encode((artifact.folder / "model.safetensors").read_bytes()).decode()
    merges = json.loads((artifact.folder / "tokenizer.json").read_text("utf-8"))["model"]["merges"]
    data: list[dict[str, Any]] = [{"weights": ""} for _ in range(PARTS)]
    data[0] |= {"config": artifact.config["model"], "merges": "\n".join(" ".join(pair) for pair in merges)}
    step = -(-len(weights) // PARTS)
    for number, part in enumerate(data):
        part["weights"] = weights[number * step : (number + 1) * step]
    models = f"((globalThis.EdgewiseModels ??= {{}})[{json.dumps(name)}] ??= [])"
    return {f"{name}-{i}.js": f"{models}[{i}] = {json.dumps(part)};\n" for i, part in enumerate(data)}


TEXTS = (1, 2, 0, 6)
"""Which texts of the study of a language model the front page shows, the last one a failure."""

WRONG = "It is wrong: the one that is sleeping is the dog."


def shown_texts() -> dict[str, Any]:
    """Texts of the study of a language model, with each cut's outcome, for ``lines.js``."""
    rows = [row for row in load_study("language-model").rows if row["variant"] == "shown"]
    return lines_of([rows[i] for i in TEXTS], {len(TEXTS) - 1: WRONG})


def lines_file() -> str:
    """What the page loads when the reader comes to the language model, ``lines.js``; base.js is there."""
    data = json.dumps(shown_texts(), ensure_ascii=False, separators=(",", ":"))
    style = json.dumps(read("element.css") + read("lines.css"))
    return (
        f"for (const root of document.querySelectorAll('.edgewise-element.lines')) {{\n"
        f"root.replaceChildren();\n"
        f"EdgewiseBase.make(root, 'script', {{ type: 'application/json' }}, JSON.stringify({data}));\n"
        f"EdgewiseBase.make(document.head, 'style', {{}}, {style});\n}}\n" + joined(("lines.js",))
    )


def lines_section(place: str) -> str:
    """The language model of the front page as HTML: loaded when it comes near the window."""
    first = shown_texts()["texts"][0]
    told = f"“{''.join(first['pieces'])}” → {first['likeliest'][0][0].strip()}"
    return (
        "<style>.edgewise-element.lines{min-height:23rem}"
        "@media(max-width:600px){.edgewise-element.lines{min-height:62rem}}</style>"
        f'<div class="edgewise-element lines"><p>{html.escape(told)}</p></div>'
        "<script>(() => { const root = document.querySelector('.edgewise-element.lines');\n"
        "const watch = new IntersectionObserver(([seen]) => { if (!seen.isIntersecting) return;\n"
        f"watch.disconnect(); EdgewiseBase.loadScript('{place}/lines.js')"
        ".catch((error) => root.append(error.message)); }, { rootMargin: '300px' });\n"
        "watch.observe(root); })();</script>"
    )


def front_page(place: str) -> str:
    """The translator of the front page as HTML; ``place`` is the folder of :func:`page_files`.

    Its first sentence comes with the outcome of each single cut, and with the edges that are enough for it.
    """
    cuts, model = load_study("first-cuts"), artifacts.load(MODEL).config["model"]
    first = cuts.config["sentence"] | {"outcomes": cuts.rows}
    files = [f"{place}/{file}" for file in ("live.js", *model_files(MODEL))]
    facts = json.loads(read("home_page_texts.json")) | {"model": MODEL, "language": LANGUAGE, "first": first}
    facts |= {"counts": [model["N"], model["h"]], "files": files}
    data = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    told = f"“{first['text']}” becomes “{first['said']}”. With scripts, a line between words can be cut here."
    return (
        f'<style>{read("front.css")}</style><div class="edgewise-front">'
        '<p class="claim">Cut a line. Watch the translation break.</p>'
        '<p class="lead">A book that runs, about the Transformer as a graph<span>: each line is one word '
        "that attends to another. This one translates in your browser</span>.</p>"
        f'<noscript>{html.escape(told)}</noscript><script type="application/json">{data}</script></div>'
        f"<script>{joined(IN_PAGE)}</script>"
    )


def page_files() -> dict[str, str]:
    """What the front page loads, by name."""
    return {"live.js": joined(LOADED), "lines.js": lines_file(), **model_files(MODEL)}
