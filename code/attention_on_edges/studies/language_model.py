"""Chapter 15's study: what a language model that others trained needs its lines between words for."""

import random
from collections.abc import Callable, Iterator
from itertools import permutations, product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attention_on_edges import corpora
from attention_on_edges.corpora.smollm import DIGEST, language_model
from attention_on_edges.models.next_word import START, NextWord
from attention_on_edges.runs.fitting import Part
from edgewise import AttentionGraph, attend_along, causal
from edgewise.graphs import window


class Prompt(NamedTuple):
    """A text that one of two words continues: the right one and the other; ``about``, a word of the text."""

    text: str
    right: str
    other: str
    about: str


ANIMALS = (("cat", "dog"), ("horse", "cow"), ("bird", "fish"), ("king", "queen"))
VERBS = (("sleeping", "eating"), ("singing", "reading"), ("running", "waiting"))
WHO = (
    "The {a} is {v} and the {b} is {w}. Who is {q}? The",
    "There is a {a} that is {v}, and a {b} that is {w}. The one that is {q} is the",
)
NAMES = ("Mary", "John", "Anna", "Tom", "Sarah", "Peter")
NOT_NAMED = (
    "When {a} and {b} went to the store, {s} gave a drink to",
    "After {a} and {b} had dinner, {s} read a story to",
    "{a} and {b} were at school. Then {s} lent a book to",
)


def who_does_it() -> Iterator[Prompt]:
    """Two who do different things, and one of the two deeds: 96 texts, balanced in order and in deed."""
    for template, names, verbs in product(WHO, ANIMALS, VERBS):
        for (a, b), which in product(permutations(names), (0, 1)):
            text = template.format(a=a, b=b, v=verbs[0], w=verbs[1], q=verbs[which])
            yield Prompt(text, *((a, b) if which == 0 else (b, a)), verbs[which])


def who_is_missing() -> Iterator[Prompt]:
    """Two names, and one of them again; next comes the other: 180 texts, balanced in order and role."""
    for template, (a, b) in product(NOT_NAMED, permutations(NAMES, 2)):
        for subject, right in ((a, b), (b, a)):
            yield Prompt(template.format(a=a, b=b, s=subject), right, subject, subject)


FAMILIES: dict[str, Callable[[], Iterator[Prompt]]] = {
    "who does it": who_does_it,
    "who is missing": who_is_missing,
}


def cuts_of(read: NextWord, prompt: Prompt, seed: int) -> dict[str, list[tuple[int, int]]]:
    """Return the lines that each trial cuts.

    The repeated word is ``prompt.about``, a deed or a name, the second time that it comes. The control into a
    word beside it takes one at most two places away; other controls come from any word that is none of these.
    """
    rng = random.Random(seed)
    last = len(read.ids) - 1
    (right,), (other, *_) = read.places(prompt.right)[:1], read.places(prompt.other)
    first, again = (places[0] for places in read.places(prompt.about)[:2])
    named = {*right, *other, first, again}
    near = [i for i in range(max(2, again - 2), min(last, again + 3)) if i not in named]
    beside = rng.choice(near)
    between = [(s, r) for r in range(2, last) for s in range(1, r)]
    before = rng.choice([i for i in range(1, min(again, beside)) if i not in named])
    third = rng.choice([i for i in range(1, last) if i not in named])
    return {
        "nothing": [],
        "the right word silenced": read.silenced(right),
        "the other word silenced": read.silenced(other),
        "a third word silenced": read.silenced([third]),
        "all between words of the text": between,
        "all into the repeated word": [(s, again) for s in range(1, again)],
        "all into a word beside it": [(s, beside) for s in range(1, beside)],
        "first time to second": [(first, again)],
        "another word to the second": [(before, again)],
        "second time to the end": [(again, last)],
        "the right word to the end": [(s, last) for s in right],
        "a third word to the end": [(third, last)],
    }


def measure_prompts(family: str, first: int, count: int) -> dict[str, Any]:
    """Return for each text and cut how far the right word is ahead, in logits, and its probability."""
    tokenizer, model = language_model()
    rows = []
    for number, prompt in enumerate(FAMILIES[family]()):
        if first <= number < first + count:
            read = NextWord(tokenizer, model, prompt.text)
            cuts = cuts_of(read, prompt, number)
            found = read.log_probs(torch.stack([read.without(lines) for lines in cuts.values()]))
            right, other = (found[:, one_token(tokenizer, word)] for word in (prompt.right, prompt.other))
            ahead, likely = (right - other).tolist(), right.exp().tolist()
            rows.append({"text": prompt.text, "right": prompt.right, "cuts": {
                name: [round(x, 4), round(p, 5)] for name, x, p in zip(cuts, ahead, likely, strict=True)
            }})  # fmt: skip
    return {"weights": DIGEST, "prompts": rows}


def one_token(tokenizer: Any, word: str) -> int:
    """Return the id of a word after a space, which has to be one token."""
    (number,) = tokenizer(" " + word).input_ids
    return int(number)


WIDTHS, LONG, LATE = (32, 128, 512), 3000, 600
"""Tokens of a window, of the text, and those whose loss does not count."""


def measure_window(width: int | None, more: str) -> dict[str, Any]:
    """Loss on a text with all lines (no ``width``) or in a window, and with one ``more`` line for each token.

    Returns
    -------
    dict
        ``loss`` in nats per token, after the first ``LATE`` tokens.
    """
    tokenizer, model = language_model()
    ids = _ids_of_text(tokenizer, LONG)
    graph = window([LONG], width - 1, 0) if width else causal([LONG])
    token = torch.arange(LONG)
    senders = {
        "the first token": torch.zeros(LONG, dtype=torch.int64),
        "token 20": torch.full((LONG,), 20),
        "a token at random": (torch.rand(LONG, generator=torch.Generator().manual_seed(0)) * token).long(),
        "the next one back": token - (width or 0),
    }
    if more in senders:
        there = (senders[more] >= 0) & (senders[more] <= token - (width or 0))
        graph = graph | AttentionGraph(senders[more][there], token[there], LONG)
    elif more == "without the first token":
        kept = (graph.src != 0) | (graph.dst == 0)
        graph = AttentionGraph(graph.src[kept], graph.dst[kept], LONG)
    with torch.no_grad(), attend_along(model, graph):
        log_probs = model(ids[None], use_cache=False).logits[0, LATE:-1].log_softmax(-1)
    return {"weights": DIGEST, "loss": -float(log_probs.gather(1, ids[LATE + 1 :, None]).mean())}


CAPITALS = {
    "France": "Paris", "Japan": "Tokyo", "Italy": "Rome",
    "Germany": "Berlin", "Spain": "Madrid", "Russia": "Moscow", "Greece": "Athens", "Egypt": "Cairo",
    "Poland": "Warsaw", "England": "London", "China": "Beijing", "Cuba": "Havana", "Austria": "Vienna",
    "Hungary": "Budapest", "Portugal": "Lisbon", "Ireland": "Dublin", "Norway": "Oslo", "Sweden": "Stockholm",
    "Finland": "Helsinki", "Denmark": "Copenhagen", "Iraq": "Baghdad", "Kenya": "Nairobi",
    "Chile": "Santiago",
}  # fmt: skip
"""Of three countries the edge is looked for; on the others it is tried."""


def measure_capital(country: str, control: str) -> dict[str, Any]:
    """Cut the line from a country to the last place in each of 270 heads alone; then that from ``control``.

    Returns
    -------
    dict
        Whether the capital is the model's ``answer``, its ``probability``, and with each edge cut,
        [layers][heads]: the probability ``left``, and whether another word ``wins``; the same probability
        with each edge of the ``control`` cut; and ``gradient``, what one backward pass says of the country's:
        the derivative of the log-probability by a bias of the edge, over one less the edge's weight.
    """
    tokenizer, model = language_model()
    read = NextWord(tokenizer, model, f"The capital of {country} is")
    layers, heads = shape = model.config.num_hidden_layers, model.config.num_attention_heads
    number, answer = torch.arange(layers * heads), one_token(tokenizer, CAPITALS[country])
    edges = [int(read.numbers[len(read.ids) - 1, read.places(word)[0][-1]]) for word in (country, control)]
    cuts = torch.zeros(2, layers * heads, layers, read.graph.num_edges, heads, dtype=torch.bool)
    for cut, edge in zip(cuts, edges, strict=True):
        cut[number, number // heads, edge, number % heads] = True
    whole = read.log_probs(torch.zeros_like(cuts[0, :1]))[0]
    found, other = (read.log_probs(cut) for cut in cuts)
    bias = torch.zeros(layers, read.graph.num_edges, heads, requires_grad=True)
    with attend_along(model, read.graph, lambda layer: bias[layer], need_weights=True) as weights:
        logits = model(read.ids[None], use_cache=False, logits_to_keep=1).logits[0, -1]
    logits.log_softmax(-1)[answer].backward()
    kept = torch.stack([weights[layer][0, edges[0]] for layer in range(layers)])
    assert bias.grad is not None
    return {
        "weights": DIGEST,
        "answer": bool(whole.argmax() == answer),
        "probability": float(whole[answer].exp()),
        "left": found[:, answer].exp().view(shape).tolist(),
        "wins": (found.argmax(1) != answer).view(shape).tolist(),
        "control": other[:, answer].exp().view(shape).tolist(),
        "gradient": (bias.grad[:, edges[0]] / (1 - kept).clamp(min=1e-3)).tolist(),
    }


HALF, DRAWS, BEFORE = 64, 3, 8
"""Words that come twice; draws of random heads; heads that attend to the previous word."""


class Twice:
    """Texts of random words that come a second time, and which edges show what comes next.

    ``induction`` and ``previous`` say which edges of ``graph`` go to a receiver of the second half from the
    word after its first occurrence, and to any receiver from the word before it.
    """

    def __init__(self, tokenizer: Any, count: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        known = torch.tensor([i for i in range(200, 30_000) if _is_word(tokenizer.decode([i]))])
        start, size = torch.tensor([tokenizer.convert_tokens_to_ids(START)]), 2 * HALF + 1
        drawn = [known[torch.randperm(len(known), generator=generator)[:HALF]] for _ in range(count)]
        self.ids = torch.cat([torch.cat([start, words, words]) for words in drawn])
        self.places, self.graph = torch.arange(size).repeat(count), causal([size] * count)
        sender, receiver = self.places[self.graph.src], self.places[self.graph.dst]
        self.induction = (receiver > HALF) & (receiver - sender == HALF - 1)
        self.previous = (receiver - sender == 1) & (sender > 0)

    @torch.no_grad()
    def losses(
        self, model: Any, heads: Tensor | None = None, edges: Tensor | None = None
    ) -> tuple[float, float]:
        """Nats per word the first and the second time, if edges, bool [E], of heads are cut."""
        cut = None
        if heads is not None and edges is not None:
            none, gone = torch.zeros(len(edges), heads.shape[1]), edges[:, None]
            cut = lambda layer: none.masked_fill(gone & heads[layer], -torch.inf)  # noqa: E731
        with attend_along(model, self.graph, cut):
            logits = model(self.ids[None], position_ids=self.places[None], use_cache=False).logits[0]
        losses = -logits[:-1].log_softmax(-1).gather(1, self.ids[1:, None])[:, 0]
        place = self.places[:-1]
        once, twice = (place > 0) & (place < HALF), (place > HALF) & (place < 2 * HALF)
        return float(losses[once].mean()), float(losses[twice].mean())

    @torch.no_grad()
    def attention(self, model: Any) -> Tensor:
        """Mean weight on induction edges and on those to the previous word, [2, layers, h]."""
        with attend_along(model, self.graph, need_weights=True) as weights:
            model(self.ids[None], position_ids=self.places[None], use_cache=False)
        layers = [
            torch.stack([x[0, e].mean(0) for e in (self.induction, self.previous)]) for x in weights.values()
        ]
        return torch.stack(layers, 1)


def _is_word(piece: str) -> bool:
    return piece.startswith(" ") and piece.strip().isalpha() and piece.isascii()


def measure_copying(counts: tuple[int, ...]) -> dict[str, Any]:
    """Which heads carry the gain of a text that comes twice: chosen on some texts, cut on others.

    Returns
    -------
    dict
        Nats per word ``once`` and ``twice``, the first and the second time; and the second time with
        induction edges cut in ``all heads``, in the ``best`` of each count, and in as many ``random`` ones of
        other heads. Of the ``before`` heads that attend most to the previous word the one whose edges there
        matter most on the first texts is ``chosen``: the loss with those edges cut in each of the heads
        alone, ``by head``.
    """
    tokenizer, model = language_model()
    first, new = Twice(tokenizer, 4, 0), Twice(tokenizer, 4, 1)
    induction, previous = first.attention(model)
    heads = [_top(previous, i + 1) & ~_top(previous, i) for i in range(BEFORE)]
    effect = [first.losses(model, head, first.previous)[1] for head in heads]
    once, twice = new.losses(model)
    generator = torch.Generator().manual_seed(2)
    row: dict[str, Any] = {"weights": DIGEST, "once": once, "twice": twice}
    row |= {"before": _best(previous, BEFORE), "chosen": effect.index(max(effect))}
    row["by head"] = [new.losses(model, head, new.previous)[1] for head in heads]
    row["all heads"] = new.losses(model, torch.ones_like(heads[0]), new.induction)[1]
    row["best"] = {n: new.losses(model, _top(induction, n), new.induction)[1] for n in counts}
    row["random"] = {}
    for n in counts:
        drawn = [torch.rand(induction.shape, generator=generator) for _ in range(DRAWS)]
        others = [_top(x - _top(induction, n).float(), n) for x in drawn]
        row["random"][n] = [new.losses(model, chosen, new.induction)[1] for chosen in others]
    return row


def _top(score: Tensor, count: int) -> Tensor:
    """Which heads score highest, bool [layers, h]."""
    found = torch.zeros(score.numel(), dtype=torch.bool)
    found[score.flatten().topk(count).indices] = True
    return found.view_as(score)


def _best(score: Tensor, count: int) -> list[tuple[int, int, float]]:
    """Layer and head, counted from 1, and score of the highest."""
    found = zip(*score.flatten().topk(count), strict=True)
    return [(int(i) // score.shape[1] + 1, int(i) % score.shape[1] + 1, round(float(x), 3)) for x, i in found]


def measure_first(words: tuple[str, ...], tokens: int) -> dict[str, Any]:
    """What is special about the first token.

    Returns
    -------
    dict
        On the first ``tokens`` of the text: the mean ``share`` of weight on the first token, by layer and
        head, of receivers past the fiftieth, and what it would be if all were alike (``even``). For each
        word, alone after the start
        token and cut off from it: the ``difference`` of its last states from those of a text of this word
        alone, relative to their norm; its norm in the middle layer, usual and cut off; and the cosine of two
        such words' states (``alike``).
    """
    tokenizer, model = language_model()
    ids = _ids_of_text(tokenizer, tokens)
    graph = causal([tokens])
    with torch.no_grad(), attend_along(model, graph, need_weights=True) as weights:
        model(ids[None], use_cache=False)
    late = (graph.src == 0) & (graph.dst >= 50)
    layers, middle = model.config.num_hidden_layers, model.config.num_hidden_layers // 2
    share = torch.stack([weights[layer][0, late].mean(0) for layer in range(layers)])
    row: dict[str, Any] = {"weights": DIGEST, "share": share.tolist(), "words": {}}
    row["even"] = float((1 / (graph.dst[late] + 1)).mean())
    alone = {}
    for word in words:
        pair = torch.tensor([tokenizer.convert_tokens_to_ids(START), one_token(tokenizer, word)])
        cut = AttentionGraph(torch.tensor([0, 1]), torch.tensor([0, 1]), 2)
        usual, off, only = (
            _states(model, ids, seen)
            for ids, seen in ((pair, causal([2])), (pair, cut), (pair[1:], causal([1])))
        )
        alone[word] = only[middle, -1]
        row["words"][word] = {
            "difference": float((off[-1, -1] - only[-1, -1]).norm() / only[-1, -1].norm()),
            "usual": float(usual[middle, -1].norm()), "cut off": float(off[middle, -1].norm()),
        }  # fmt: skip
    stacked = torch.stack([*alone.values()])
    row["alike"] = torch.nn.functional.cosine_similarity(stacked[:1], stacked[1:]).tolist()
    return row


@torch.no_grad()
def _states(model: Any, ids: Tensor, graph: AttentionGraph) -> Tensor:
    """States after each layer, [layers + 1, n, d]."""
    with attend_along(model, graph):
        found = model(ids[None], use_cache=False, output_hidden_states=True).hidden_states
    return torch.stack(found)[:, 0]


def _ids_of_text(tokenizer: Any, count: int) -> Tensor:
    """The first tokens of a report of 1992 on electronic texts, by the Library of Congress: public domain."""
    text = (Path(corpora.__file__).parent / "electronic_texts.txt").read_text(encoding="utf-8")
    return torch.tensor([tokenizer.convert_tokens_to_ids(START), *tokenizer(text).input_ids[: count - 1]])


SHOWN = (
    "The cat is sleeping on my",
    "When Mary and John went to the store, John gave a drink to",
    "The capital of France is",
    "The cat is sleeping on my bed. Who is sleeping? The",
    "The cat is sleeping and the dog is eating. Who is sleeping? The",
    "The cat is sleeping and the dog is eating. Who is eating? The",
)


WRONG = "There is a dog that is sleeping, and a cat that is eating. The one that is sleeping is the"
"""Of the texts about two who do different things, the one on which the model is most wrong."""


def measure_shown(text: str) -> dict[str, Any]:
    """Return what the pages show of a text.

    Returns
    -------
    dict
        ``pieces``; the ``likeliest`` next words with all lines; and with each line cut, from one place to
        another (``lines``), and with each word silenced: the place or places, and the likeliest words then.
    """
    tokenizer, model = language_model()
    read = NextWord(tokenizer, model, text)
    n = len(read.ids)
    lines = [(s, r) for r in range(2, n) for s in range(1, r)]
    cuts = [[], *([line] for line in lines), *(read.silenced([place]) for place in range(1, n - 1))]
    found = read.log_probs(torch.stack([read.without(cut) for cut in cuts]))
    told = [[[word, round(chance, 4)] for word, chance in read.likeliest(row)] for row in found]
    places = [*lines, *((place,) for place in range(1, n - 1))]
    left = found[1:, found[0].argmax()].exp().tolist()
    changed = [[*p, round(x, 4), words] for p, x, words in zip(places, left, told[1:], strict=True)]
    split = len(lines)
    row = {"weights": DIGEST, "pieces": read.pieces[1:], "likeliest": told[0]}
    return row | {"lines": changed[:split], "silenced": changed[split:]}


def language_parts() -> Iterator[Part]:
    """Twenty texts at a time; windows; countries; copying; the first token."""
    for family, prompts in FAMILIES.items():
        for first in range(0, len([*prompts()]), 20):
            yield Part(family, measure_prompts, {"family": family, "first": first, "count": 20})
    controls = ("nothing", "the first token", "token 20", "a token at random", "the next one back")
    for width, extras in ((None, ("nothing", "without the first token")), *((w, controls) for w in WIDTHS)):
        for more in extras:
            yield Part("windows", measure_window, {"width": width, "more": more})
    for text in SHOWN:
        yield Part("shown", measure_shown, {"text": text})
    for country in CAPITALS:
        yield Part("capitals", measure_capital, {"country": country, "control": "capital"})
    yield Part("copying", measure_copying, {"counts": (1, 7, 20)})
    yield Part("first", measure_first, {"words": ("Mary", "John", "bed", "ran"), "tokens": 400})
    yield Part("shown", measure_shown, {"text": WRONG})
