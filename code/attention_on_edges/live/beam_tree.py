"""Beam search as a tree: what a search keeps, what it drops, and which hypothesis wins (chapter 8)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from attention_on_edges.decoding import Hypothesis, beam_search
from attention_on_edges.decoding.continuation import continuation_of
from attention_on_edges.figures.style import PALETTE
from attention_on_edges.live.element import Element, png
from attention_on_edges.models.transformer import Transformer
from attention_on_edges.runs.translator import Translator


@dataclass(frozen=True)
class Node:
    """A hypothesis with one more piece.

    Attributes
    ----------
    ids : tuple of int
        The target so far, with the end symbol if it has ended.
    score : float
        Its log-probability.
    parent : int or None
        The number, in the column before, of the hypothesis that was extended.
    state : str
        ``"kept"``, ``"dropped"`` or ``"ended"``.
    """

    ids: tuple[int, ...]
    score: float
    parent: int | None
    state: str


class _Watched:
    """A continuation that remembers what the search asks of it: all that the tree needs."""

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]]):
        self.model, self.inner = model, continuation_of(model, sources)
        self.ids: list[list[int]] = []
        self.log_probs: list[Tensor] = []
        self.rows: list[list[int]] = []

    @property
    def steps(self) -> list[int] | None:
        return self.inner.steps

    def step(self, ids: Tensor) -> Tensor:
        states = self.inner.step(ids)
        self.ids.append(ids.tolist())
        self.log_probs.append(self.model.generator(states))
        return states

    def keep(self, rows: Tensor) -> None:
        self.rows.append(rows.tolist())
        self.inner.keep(rows)


def search_tree(
    translator: Translator, text: str, beam: int, length_penalty: float
) -> tuple[list[list[Node]], Hypothesis]:
    """Run ``beam_search`` and watch it; return its candidates, step by step, and the hypothesis that wins.

    A step's candidates are the ``2 * beam`` likeliest, the likeliest first: so many the search looks at. What
    it keeps is what it extends next; what it does not extend has ended or is dropped.
    """
    watched: list[_Watched] = []

    def grow(model: Transformer, sources: Sequence[Sequence[int]]) -> Any:
        watched.append(_Watched(model, sources))
        return watched[0]

    start, end = translator.vocabulary.sos_id, translator.vocabulary.eos_id
    source = translator.encode(text)
    ((best,),) = beam_search(translator.model, [source], start, end, beam, length_penalty, grow=grow)
    return _columns(watched[0], beam, end), best


def _columns(search: _Watched, beam: int, end: int) -> list[list[Node]]:
    columns: list[list[Node]] = []
    scores = search.log_probs[0].new_zeros(1)
    growing: list[tuple[tuple[int, ...], int | None]] = [
        ((), None)
    ]  # targets, and their places in the column
    for n, log_probs in enumerate(search.log_probs):
        total = scores[:, None] + log_probs
        extended = list(zip(search.rows[n], search.ids[n + 1], strict=True)) if search.rows[n:] else []
        values, places = total.flatten().topk(min(2 * beam, total.numel()))
        pairs = [divmod(place, total.shape[1]) for place in places.tolist()]
        columns.append([])
        for rank, ((row, token), score) in enumerate(zip(pairs, values.tolist(), strict=True)):
            ids, place = growing[row]
            ended = token == end and rank < beam
            state = "ended" if ended else "kept" if (row, token) in extended else "dropped"
            columns[-1].append(Node((*ids, token), score, place, state))
        if extended:
            scores = torch.stack([total[row, token] for row, token in extended])
            growing = [((*growing[row][0], token), pairs.index((row, token))) for row, token in extended]
    return columns


def _path(columns: Sequence[Sequence[Node]], ids: tuple[int, ...]) -> list[int | None]:
    """In each column, the number of the node on a hypothesis's path; none where it has ended before."""
    places: list[int | None] = []
    for n, column in enumerate(columns, 1):
        found = [i for i, node in enumerate(column) if node.ids == ids[:n] and n <= len(ids)]
        places.append(found[0] if found else None)
    return places


def beam_tree(translator: Translator, text: str, length_penalty: float, beam: int = 3) -> Element:
    """Beam search as a tree over the growing target, step by step (chapter 8).

    Parameters
    ----------
    translator : Translator
        Translates.
    text : str
        What it translates.
    length_penalty : float
        Exponent of what makes up for length.
    beam : int
        Hypotheses kept.
    """
    columns, best = search_tree(translator, text, beam, length_penalty)
    splitter, vocabulary = translator.splitter, translator.vocabulary
    end = vocabulary.eos_id

    def words(ids: Sequence[int]) -> str:
        return splitter.join(vocabulary.decode([i for i in ids if i != end]))

    def told(node: Node) -> dict[str, Any]:
        last = node.ids[-1]
        rated = node.score / ((5 + len(node.ids)) / 6) ** length_penalty if node.state == "ended" else None
        piece = "<eos>" if last == end else splitter.show(vocabulary.decode([last]))[0]
        return {
            "piece": piece,
            "text": words(node.ids),
            "score": round(node.score, 4),
            "parent": node.parent,
            "state": node.state,
            "rated": rated if rated is None else round(rated, 4),
        }

    won = _path(columns, (*best.ids, end) if best.finished else best.ids)
    drawn = [[told(node) for node in column] for column in columns]
    final = {"text": words(best.ids), "score": round(best.score, 4)}
    data = {"title": f"A beam of {beam}", "text": text, "columns": drawn, "won": won, "final": final}
    said = (
        f"A tree of {len(columns)} steps: at each, up to {beam} hypotheses are kept and others dropped. "
        f"“{text}” becomes “{final['text']}”, whose path is thick."
    )
    return Element("beam", data, _picture(drawn, won), said)


LOOKS = {
    "kept": {"edgecolor": PALETTE["blue"], "linestyle": "-"},
    "dropped": {"edgecolor": PALETTE["pale"], "linestyle": "--"},
    "ended": {"edgecolor": PALETTE["orange"], "linestyle": "-"},
}


def _picture(columns: Sequence[Sequence[dict[str, Any]]], won: Sequence[int | None]) -> bytes:
    figure, ax = plt.subplots(
        figsize=(max(4.0, 1.25 * len(columns)), 0.5 * max(map(len, columns)) + 0.8), layout="constrained"
    )
    for x, column in enumerate(columns, 1):
        for y, node in enumerate(column):
            look, best = LOOKS[node["state"]], won[x - 1] == y
            color, width = (PALETTE["green"], 3) if best else (look["edgecolor"], 1)
            line = look["linestyle"]
            ax.plot([x - 1, x], [node["parent"] or 0, y], line, color=color, linewidth=width, zorder=1)
            box = {"boxstyle": "round", "facecolor": "white", **look, "edgecolor": color, "linewidth": width}
            label = f"{node['piece']}\n{node['score']:.2f}".replace("-", "\u2212").replace("$", r"\$")
            ax.text(x, y, label, ha="center", va="center", fontsize=8, bbox=box, zorder=2)
    ax.plot(0, 0, "o", color=PALETTE["ink"])
    ax.set_xticks(range(1, len(columns) + 1))
    ax.set(
        xlabel="step", xlim=(-0.2, len(columns) + 0.6), ylim=(max(map(len, columns)) - 0.4, -0.7), yticks=[]
    )
    ax.spines[:].set_visible(False)
    return png(figure, dpi=80)
