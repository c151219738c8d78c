"""Chapter 10's question: can a reader on a sparse graph copy over a gap, and recall."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from attention_on_edges.models.reader import Questions, Reader
from attention_on_edges.runs.fitting import FitConfig, fit
from attention_on_edges.sparse_graphs import binary_partition
from edgewise.graphs import AttentionGraph, batch, bigbird, complete, global_tokens, window

HUB, SPAN, GAP, FIRST = range(1, 5)
"""Ids: the first tokens of a text, additional tokens of a graph, filler, and the first id for tasks."""


NUM_HUBS = 8
"""Tokens before the text proper, which serve as global tokens in graphs that have them."""


PERIOD = 64
"""Positions of the filler repeat, so that longer texts have no positions unseen in training."""


NUM_QUESTIONS = 8
"""Questions per text."""


NUM_LETTERS = NUM_KEYS = NUM_VALUES = 16


GraphOf = Callable[[int], AttentionGraph]
"""Length of a text to its graph; the graph's tokens past that length are additional ones."""


LONG_GRAPHS: dict[str, GraphOf] = {
    "complete": complete,
    "window": lambda n: window(n, 24, 24),
    "global tokens": lambda n: window(n, 16, 16) | global_tokens(n, 8),
    "BigBird": lambda n: bigbird(n, 12, 8, 8),
    "binary partition": lambda n: binary_partition(n, 3),
}
"""By length; all but the first have forty to fifty edges per token at 512 tokens."""


HUB_GRAPHS: dict[str, GraphOf] = {
    "1 hub": lambda n: window(n, 4, 4) | global_tokens(n, 1),
    "8 hubs": lambda n: window(n, 4, 4) | global_tokens(n, 8),
}
"""In which all that goes farther than eight places in two layers passes through so many states."""


LENGTHS = (128, 256, 512)
"""Tokens of the texts in training, in turn."""


TEST_SEED, VALID_SEED = 1_000_000, 2_000_000


@dataclass(frozen=True)
class LongTask:
    """A kind of text.

    Attributes
    ----------
    vocab_size : int
        Symbols, the special ones included.
    draw : callable
        ``(length, count, generator, num_questions)`` to ids and positions [count, length] and answers
        [count, num_questions]; the last tokens of a text are its questions, in the answers' order.
    """

    vocab_size: int
    draw: Callable[..., tuple[Tensor, Tensor, Tensor]]


def _blank(length: int, count: int) -> tuple[Tensor, Tensor]:
    """Texts of hubs and filler."""
    positions = (torch.arange(length) % PERIOD).expand(count, length).clone()
    ids = torch.full((count, length), GAP)
    ids[:, :NUM_HUBS] = HUB
    return ids, positions


def _draw_copy(
    length: int, count: int, generator: torch.Generator, num_questions: int = NUM_QUESTIONS
) -> tuple[Tensor, Tensor, Tensor]:
    """Letters, a gap, and as many marks: at mark ``i``, letter ``i`` is asked for.

    Letters and marks are numbered by their positions; the gap fills the rest of the length.
    """
    ids, positions = _blank(length, count)
    letters = torch.randint(FIRST, FIRST + NUM_LETTERS, (count, num_questions), generator=generator)
    first = slice(NUM_HUBS, NUM_HUBS + num_questions)
    ids[:, first], ids[:, -num_questions:] = letters, FIRST + NUM_LETTERS
    positions[:, first] = positions[:, -num_questions:] = torch.arange(num_questions)
    return ids, positions, letters


def _draw_recall(
    length: int, count: int, generator: torch.Generator, num_questions: int = NUM_QUESTIONS
) -> tuple[Tensor, Tensor, Tensor]:
    """Key-value pairs anywhere in the filler, then the keys in another order, whose values are asked for.

    A pair is one symbol, so that adjacency does not matter.
    """
    ids, positions = _blank(length, count)

    def some(total: int) -> Tensor:
        return torch.rand(count, total, generator=generator).argsort(1)[:, :num_questions]

    keys, places = some(NUM_KEYS), NUM_HUBS + some(length - NUM_HUBS - num_questions)
    values = torch.randint(NUM_VALUES, keys.shape, generator=generator)
    ids.scatter_(1, places, FIRST + keys * NUM_VALUES + values)
    order = some(NUM_QUESTIONS)
    questions = FIRST + NUM_KEYS * NUM_VALUES
    ids[:, -num_questions:] = questions + keys.gather(1, order)
    positions[:, -num_questions:] = 0
    return ids, positions, questions + NUM_KEYS + values.gather(1, order)


TASKS = {
    "copy": LongTask(FIRST + NUM_LETTERS + 1, _draw_copy),
    "recall": LongTask(FIRST + NUM_KEYS * NUM_VALUES + NUM_KEYS + NUM_VALUES, _draw_recall),
}
"""``copy``: letters to be repeated at the other end of the text. ``recall``: keys whose values are
anywhere in it."""


@cache
def _side_by_side(graph: str, length: int, count: int) -> AttentionGraph:
    """The graph of so many texts, kept with its tile plan."""
    return batch([(LONG_GRAPHS | HUB_GRAPHS)[graph](length)] * count)


@dataclass(frozen=True)
class Trial:
    """What is learned, on which graph and by how large a model; lengths are those of the training's texts."""

    task: str
    graph: str
    lengths: Sequence[int] = LENGTHS
    letters: int = NUM_QUESTIONS
    width: int = 64
    layers: int = 2

    def draw(self, length: int, count: int, generator: torch.Generator) -> Questions:
        """Draw new texts of one length, side by side; the graph's additional tokens follow each."""
        graph = _side_by_side(self.graph, length, count)
        ids, positions, answers = TASKS[self.task].draw(length, count, generator, self.letters)
        every = graph.num_src // count
        extra = torch.arange(every - length).expand(count, -1)
        ids = torch.cat([ids, torch.full_like(extra, SPAN)], 1)
        positions = torch.cat([positions, extra % PERIOD], 1)
        places = torch.arange(count)[:, None] * every + torch.arange(length - self.letters, length)
        return Questions(graph, (ids.flatten(), positions.flatten()), places.flatten(), answers.flatten())

    def batches(self, tokens: int, generator: torch.Generator) -> Iterator[Questions]:
        """Draw batches of about equally many tokens without end, cycling through the lengths."""
        for length in cycle(self.lengths):
            yield self.draw(length, max(tokens // length, 1), generator)

    def train(self, training: FitConfig) -> tuple[Reader, list[float]]:
        """Train on about so many tokens at a time; also return each update's loss in nats per question."""
        symbols = TASKS[self.task].vocab_size
        make = partial(Reader, symbols, symbols, self.width, 2 * self.width, self.layers)
        return fit(make, partial(self.batches, training.size), training)

    def accuracy(self, model: Reader, length: int, texts: int, seed: int = TEST_SEED) -> float:
        """Return the share of questions answered correctly on so many new texts of one length."""
        generator = torch.Generator().manual_seed(seed)
        right = sum(model.right(self.draw(length, 1, generator)) for _ in range(texts))
        return right / (texts * self.letters)


def measure_reader(
    training: FitConfig, task: str, graph: str, tested: Sequence[int], texts: int
) -> dict[str, Any]:
    """Train and test: the loss of the last 100 updates; edges per token and accuracy by length."""
    trial = Trial(task, graph, LENGTHS)
    model, losses = trial.train(training)
    last = losses[-100:]
    row: dict[str, Any] = {"loss": sum(last) / len(last)}
    for n in tested:
        row[f"edges {n}"] = LONG_GRAPHS[graph](n).num_edges / n
        row[f"right {n}"] = trial.accuracy(model, n, texts)
    return row


def measure_tuned(
    training: FitConfig, rates: Sequence[float], seeds: int, tested: Sequence[int], texts: int, **trial: Any
) -> dict[str, Any]:
    """Choose the learning rate by the accuracy on new texts of the training's longest length; test.

    Returns
    -------
    dict
        ``valid``, the accuracy of each rate with the first seed; the chosen ``rate``; and with it, for each
        seed, the mean ``loss`` of each tenth of the training and the accuracy by length (``right 512``).
    """
    one = Trial(**trial)
    found = {rate: one.train(replace(training, rate=rate)) for rate in rates}
    longest = max(one.lengths)
    valid = [one.accuracy(model, longest, texts, VALID_SEED) for model, _ in found.values()]
    rate = rates[valid.index(max(valid))]
    runs = [found[rate]]
    runs += [one.train(replace(training, rate=rate, seed=training.seed + i)) for i in range(1, seeds)]
    tenths = [torch.tensor(losses).view(10, -1).mean(1).tolist() for _, losses in runs]
    row: dict[str, Any] = {"valid": valid, "rate": rate, "loss": tenths}
    for n in tested:
        row[f"right {n}"] = [one.accuracy(model, n, texts) for model, _ in runs]
    return row
