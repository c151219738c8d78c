"""How tokens halt, and how many steps they take over training (chapter 11)."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch

from attention_on_edges.data.tasks import TranslationDataset
from attention_on_edges.figures.style import PALETTE
from attention_on_edges.live.element import Element, png
from attention_on_edges.live.page import model_file, script_file
from edgewise.decoding import greedy
from edgewise.graphs import GraphPool
from edgewise.layers import evaluating
from edgewise.models.universal import UTransformer

START = "^"
"""The start symbol as the figures show it."""

MOST_LETTERS = 30
"""That can be typed: longer strings than any in training, which go wrong."""

SIDES = ("encoder", "decoder")


def halting_of(model: UTransformer, data: TranslationDataset, source: Sequence[str]) -> dict[str, Any]:
    """Sort letters and return, for both sides, the tokens and the halting weight of each of their steps.

    The weights of a token sum to one; the last is its remainder.
    """
    ids = data.encode(list(source))
    target = greedy(model, [ids], data.sos_id, data.eos_id)[0].ids
    with torch.no_grad(), evaluating(model):
        output = model.run(GraphPool()([ids], [[data.sos_id, *target, data.eos_id]]))
    sides = {"source": ("enc", list(source)), "target": ("dec", [START, *data.decode(list(target))])}
    found = {}
    for name, (side, tokens) in sides.items():
        taken = output.pondered[side]
        rows = zip(taken.weights.tolist(), taken.steps.tolist(), strict=True)
        weights = [[round(w, 5) for w in row[:steps]] for row, steps in rows]
        found[name] = {"tokens": tokens, "weights": weights}
    return found


def halting_bars(
    model: UTransformer,
    data: TranslationDataset,
    text: Sequence[str],
    name: str = "sort-universal",
    place: str = "../_static/live",
) -> Element:
    """Bars that fill with halting probabilities; the reader can load the model and type letters (chapter 11).

    Parameters
    ----------
    model : UTransformer
        Halts by ACT, and copies the states of halted tokens forward.
    data : TranslationDataset
        Of a toy task: its symbols.
    text : str or sequence of str
        Letters of the example that is there from the start.
    name : str
        The artifact that the model was read from, whose file the page loads.
    place : str
        The folder of that file and of ``live.js``, as the page reaches it.

    Raises
    ------
    ValueError
        If the model halts by another rule: the script knows no other.
    """
    if (model.halting, model.frozen) != ("act", "state"):
        raise ValueError(
            f"the model must halt by ACT and copy states, got {model.halting!r}, {model.frozen!r}"
        )
    example = halting_of(model, data, text)
    settings = {
        "title": "How tokens halt",
        "name": name,
        "symbols": data.symbols,
        "files": [f"{place}/live.js", f"{place}/{name}.js"],
        "bytes": len(script_file()) + len(model_file(name)),
        "eps": model.eps,
        "most": MOST_LETTERS,
        "start": START,
        "example": example,
    }
    steps = {side: [len(row) for row in found["weights"]] for side, found in example.items()}
    told = (
        f"A bar for each letter of “{''.join(text)}” and for each token that the decoder reads, cut into the "
        f"halting probabilities of its steps; the last part, the remainder, is hatched. Letters take "
        f"{_range(steps['source'])}, decoder tokens {_range(steps['target'])}."
    )
    return Element("halting", settings, _bars(example), told)


def _range(steps: Sequence[int]) -> str:
    few, many = min(steps), max(steps)
    return f"{few} to {many} steps" if few < many else f"{many} step{'s' * (many > 1)} each"


def _bars(example: Mapping[str, Mapping[str, Any]]) -> bytes:
    highest = max(len(found["tokens"]) for found in example.values())
    figure, axes = plt.subplots(1, 2, figsize=(7, 0.28 * highest + 0.8), layout="constrained")
    for ax, side, found in zip(axes, SIDES, example.values(), strict=True):
        for row, weights in enumerate(found["weights"]):
            lefts = np.cumsum([0.0, *weights])
            for n, (left, width) in enumerate(zip(lefts, weights, strict=False)):
                rest = n == len(weights) - 1
                look = {"hatch": "///", "color": "white"} if rest else {"color": PALETTE["blue"]}
                look |= {"edgecolor": PALETTE["orange"] if rest else "white"}
                ax.barh(row, width, left=left, height=0.75, **look)
                if width > 0.1 and not rest:
                    ax.text(left + width / 2, row, n + 1, ha="center", va="center", color="white", fontsize=8)
        ax.set_yticks(range(len(found["tokens"])), found["tokens"])
        ax.invert_yaxis()
        ax.set(title=side, xlim=(0, 1), xlabel="weight of the state after each step")
    return png(figure)


def steps_over_training(shares: Mapping[str, np.ndarray]) -> Element:
    """Bars of how many tokens take one step, two and so on, that move from epoch to epoch (chapter 11).

    Parameters
    ----------
    shares : mapping of str to array
        For each run, the share of tokens that take each number of steps, [epoch, side, steps]; sides are
        encoder and decoder. Rows sum to one.

    Raises
    ------
    ValueError
        If there is no run, or shares are not of this shape or do not sum to one.
    """
    if not shares:
        raise ValueError("shares must hold at least one run")
    for name, values in shares.items():
        if np.ndim(values) != 3 or np.shape(values)[1] != len(SIDES) or not np.allclose(values.sum(-1), 1):
            raise ValueError(f"shares of {name!r} must be [epoch, 2, steps] with rows that sum to one")
    if len({np.shape(values)[2] for values in shares.values()}) > 1:
        raise ValueError("all runs must have the same number of steps")
    name, first = next(iter(shares.items()))
    ends = [(1 + np.arange(first.shape[2])) @ first[epoch].T for epoch in (0, -1)]
    told = (
        f"Bars of the share of tokens by number of steps, of {name} in the last of {len(first)} epochs. "
        f"From the first epoch to the last, the mean of the encoder went from {ends[0][0]:.1f} to "
        f"{ends[1][0]:.1f}, that of the decoder from {ends[0][1]:.1f} to {ends[1][1]:.1f}."
    )
    runs = {run: np.round(values, 5).tolist() for run, values in shares.items()}
    data = {"title": "Steps over training", "sides": list(SIDES), "runs": runs}
    figure, axes = plt.subplots(1, 2, figsize=(6.4, 2.4), sharey=True, layout="constrained")
    for ax, side, row in zip(axes, SIDES, first[-1], strict=True):
        ax.bar(range(1, len(row) + 1), row, color=PALETTE["blue"])
        ax.axvline((1 + np.arange(len(row))) @ row, color=PALETTE["orange"], linestyle="--")
        ax.set(title=side, xlabel="steps")
    axes[0].set_ylabel("share of tokens")
    return Element("steps", data, png(figure), told)
