"""The live translator of the landing page: its markup, its still picture, and the files that it loads."""

import base64
import html
import json
import math
from collections.abc import Sequence
from typing import Any

import torch

from attention_on_edges.live.element import compact, read
from attention_on_edges.runs import artifacts, load_translator
from attention_on_edges.studies import load_study
from attention_on_edges.studies.cut_translation import KINDS
from edgewise.decoding import greedy
from edgewise.graphs import GraphPool

IN_PAGE = ("base.js", "loader.js")
LOADED = ("engine.js", "cuts.js", "drawing.js", "golf.js", "translator.js")
"""In the order in which they need each other."""


def script_file() -> str:
    """What the page loads when the reader asks for it, ``live.js``."""
    return joined(LOADED)


def joined(names: Sequence[str]) -> str:
    """Several scripts as one."""
    return "\n".join(compact(read(name)) for name in names)


def model_file(name: str) -> str:
    """A committed translator as a script: its configuration, merges and weights, unchanged."""
    artifact = artifacts.load(name)
    weights = (artifact.folder / "model.safetensors").read_bytes()
    merges = json.loads((artifact.folder / "tokenizer.json").read_text("utf-8"))["model"]["merges"]
    data = {"config": artifact.config["model"], "weights": base64.b64encode(weights).decode()}
    data["merges"] = "\n".join(" ".join(pair) for pair in merges)
    return f"(globalThis.EdgewiseModels ??= {{}})[{json.dumps(name)}] = {json.dumps(data)};\n"


def settings(names: Sequence[str], place: str) -> dict[str, Any]:
    """What the page needs to know before a model is loaded; ``place`` is the folder of the models' files.

    Sentences to try are those of edge golf, each with the edges that par keeps.
    """
    known = json.loads(read("models.json"))
    files = {name: {"file": f"{place}/{name}.js", "bytes": len(model_file(name))} for name in names}
    holes = [
        {"model": name, "text": row["text"], "par": row["kept"]}
        for name in names
        for row in load_study(f"golf-{name}").rows
    ]
    script = {"script": f"{place}/live.js", "bytes": len(script_file())}
    models = {name: known[name] | files[name] for name in names}
    return {"models": models, "holes": holes, "style": read("live.css")} | script


def translator_page(names: Sequence[str], place: str) -> str:
    """The live translator as HTML: a picture of the first model at work, and what replaces it when asked."""
    known = settings(names, place)
    picture, told = still(names[0], known["holes"][0]["text"])
    data = json.dumps(known).replace("<", "\\u003c")
    return (
        f"<style>{known['style']}</style>"
        f'<div class="edgewise-live"><figure class="still">{picture}<figcaption><p>{html.escape(told)}</p>'
        f'</figcaption></figure><script type="application/json">{data}</script></div>'
        f"<script>{joined(IN_PAGE)}</script>"
    )


def still(name: str, text: str) -> tuple[str, str]:
    """Draw a translation's three graphs as ``drawing.js`` does; return the SVG and what it shows in words."""
    translator = load_translator(artifacts.load(name))
    model, source = translator.model, translator.encode(text)
    start, end = translator.vocabulary.sos_id, translator.vocabulary.eos_id
    ids = greedy(model, [source], start, end)[0].ids
    pieces = translator.vocabulary.decode(list(ids))
    said = translator.splitter.join(pieces)
    sides = translator.splitter.show(translator.split(text)), ["<sos>", *translator.splitter.show(pieces)]
    batch = GraphPool()([source], [[start, *ids, end]])
    layers = [model.attention_of(batch, 0, i) for i in range(model.decoder.N)]
    maps = [torch.stack([layer[kind] for layer in layers]).mean((0, 1)) for kind in range(3)]
    told = (
        f"“{text}” became “{said}” Arcs above run from source to source, lines from source to target, arcs "
        "below from target to target; each is as strong as its weight, on average over layers and heads."
    )
    return _svg(*sides, maps), told


def _svg(sources: Sequence[str], targets: Sequence[str], maps: Sequence[Any]) -> str:
    longest = max(map(len, [*sources, *targets]))
    whole = max(len(sources), len(targets)) * max(44.0, 7.4 * longest + 14)
    top = _arch(whole) + 26
    bottom = top + 150
    places = [[(i + 0.5) * whole / len(side) for i in range(len(side))] for side in (sources, targets)]
    ends = {"e2e": (places[0], places[0]), "e2d": (places[1], places[0]), "d2d": (places[1], places[1])}
    drawn = []
    for kind, weights in zip(KINDS, maps, strict=True):
        receivers, senders = ends[kind]
        for r, row in enumerate(weights.tolist()):
            for s, weight in enumerate(row):
                if weight >= 0.03:
                    path = _path(kind, senders[s], receivers[r], top, bottom)
                    width, opacity = 0.75 + 5 * weight, 0.2 + 0.8 * min(1, 1.5 * weight)
                    style = f'stroke-width="{width:.2f}" stroke-opacity="{opacity:.2f}"'
                    drawn.append((weight, f'<path class="edge {kind}" d="{path}" {style}/>'))
    words = [
        f'<text x="{x:.0f}" y="{y:.0f}">{html.escape(token)}</text>'
        for tokens, xs, y in ((sources, places[0], top), (targets, places[1], bottom))
        for token, x in zip(tokens, xs, strict=True)
    ]
    lines = "".join(line for _, line in sorted(drawn))
    box = f"0 0 {whole:.0f} {bottom + _arch(whole) + 30:.0f}"
    return (
        f'<svg class="graphs" role="img" aria-label="Attention as three graphs" viewBox="{box}" '
        f'style="max-width:{1.25 * whole:.0f}px">{lines}{"".join(words)}</svg>'
    )


def _arch(distance: float) -> float:
    return 16 + 84 * (1 - math.exp(-distance / 260))


def _path(kind: str, x1: float, x2: float, top: float, bottom: float) -> str:
    if kind == "e2d":
        return f"M{x1:.0f} {top + 12:.0f}L{x2:.0f} {bottom - 14:.0f}"
    up, y = (-1, top - 12) if kind == "e2e" else (1, bottom + 14)
    if x1 == x2:
        loop = f"{x1 - 15:.0f} {y + up * 22:.0f} {x1 + 15:.0f} {y + up * 22:.0f}"
        return f"M{x1 - 5:.0f} {y:.0f}C{loop} {x1 + 5:.0f} {y:.0f}"
    height = _arch(abs(x1 - x2)) * (1 if x1 < x2 else 0.75)
    return f"M{x1:.0f} {y:.0f}Q{(x1 + x2) / 2:.0f} {y + up * 2 * height:.0f} {x2:.0f} {y:.0f}"
