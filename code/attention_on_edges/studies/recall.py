"""Chapter 10's question: can a reader on a sparse graph copy over a gap, and recall."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from attention_on_edges.models.reader import Questions, Reader
from attention_on_edges.studies.fitting import FitConfig, fit
from edgewise.graphs import (
    AttentionGraph,
    batch,
    bigbird,
    binary_partition,
    complete,
    global_tokens,
    window,
)

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


LENGTHS = (128, 256, 512)
"""Tokens of the texts in training, in turn."""


TEST_SEED = 1_000_000


@dataclass(frozen=True)
class LongTask:
    """A kind of text.

    Attributes
    ----------
    vocab_size : int
        Symbols, the special ones included.
    draw : callable
        ``(length, count, generator)`` to ids and positions [count, length] and answers
        [count, NUM_QUESTIONS]; the last tokens of a text are its questions, in the answers' order.
    """

    vocab_size: int
    draw: Callable[[int, int, torch.Generator], tuple[Tensor, Tensor, Tensor]]


def _blank(length: int, count: int) -> tuple[Tensor, Tensor]:
    """Texts of hubs and filler."""
    positions = (torch.arange(length) % PERIOD).expand(count, length).clone()
    ids = torch.full((count, length), GAP)
    ids[:, :NUM_HUBS] = HUB
    return ids, positions


def _draw_copy(length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Letters, a gap, and as many marks: at mark ``i``, letter ``i`` is asked for.

    Letters and marks are numbered by their positions; the gap fills the rest of the length.
    """
    ids, positions = _blank(length, count)
    letters = torch.randint(FIRST, FIRST + NUM_LETTERS, (count, NUM_QUESTIONS), generator=generator)
    first = slice(NUM_HUBS, NUM_HUBS + NUM_QUESTIONS)
    ids[:, first], ids[:, -NUM_QUESTIONS:] = letters, FIRST + NUM_LETTERS
    positions[:, first] = positions[:, -NUM_QUESTIONS:] = torch.arange(NUM_QUESTIONS)
    return ids, positions, letters


def _draw_recall(length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Key-value pairs anywhere in the filler, then the keys in another order, whose values are asked for.

    A pair is one symbol, so that adjacency does not matter.
    """
    ids, positions = _blank(length, count)

    def some(total: int) -> Tensor:
        return torch.rand(count, total, generator=generator).argsort(1)[:, :NUM_QUESTIONS]

    keys, places = some(NUM_KEYS), NUM_HUBS + some(length - NUM_HUBS - NUM_QUESTIONS)
    values = torch.randint(NUM_VALUES, keys.shape, generator=generator)
    ids.scatter_(1, places, FIRST + keys * NUM_VALUES + values)
    order = some(NUM_QUESTIONS)
    questions = FIRST + NUM_KEYS * NUM_VALUES
    ids[:, -NUM_QUESTIONS:] = questions + keys.gather(1, order)
    positions[:, -NUM_QUESTIONS:] = 0
    return ids, positions, questions + NUM_KEYS + values.gather(1, order)


TASKS = {
    "copy": LongTask(FIRST + NUM_LETTERS + 1, _draw_copy),
    "recall": LongTask(FIRST + NUM_KEYS * NUM_VALUES + NUM_KEYS + NUM_VALUES, _draw_recall),
}
"""``copy``: letters to be repeated at the other end of the text. ``recall``: keys whose values are
anywhere in it."""


class LongData:
    """Batches of a task's texts on one kind of graph.

    Parameters
    ----------
    task : str
        One of ``TASKS``.
    graph_of : callable
        Length to graph, called once for each length and number of texts.
    """

    def __init__(self, task: str, graph_of: GraphOf):
        self.task, self.graph_of = TASKS[task], graph_of
        self._graphs: dict[tuple[int, int], AttentionGraph] = {}

    def batch(self, length: int, count: int, generator: torch.Generator) -> Questions:
        """Draw ``count`` new texts of one length; their graph is kept, with its tile plan."""
        if (length, count) not in self._graphs:
            self._graphs[length, count] = batch([self.graph_of(length)] * count)
        graph = self._graphs[length, count]
        ids, positions, answers = self.task.draw(length, count, generator)
        every = graph.num_src // count
        extra = torch.arange(every - length).expand(count, -1)
        ids = torch.cat([ids, torch.full_like(extra, SPAN)], 1)
        positions = torch.cat([positions, extra % PERIOD], 1)
        asked = torch.arange(count)[:, None] * every + torch.arange(length - NUM_QUESTIONS, length)
        return Questions(graph, (ids.flatten(), positions.flatten()), asked.flatten(), answers.flatten())

    def batches(self, lengths: Sequence[int], tokens: int, generator: torch.Generator) -> Iterator[Questions]:
        """Draw batches of about equally many tokens without end, cycling through the lengths."""
        for length in cycle(lengths):
            yield self.batch(length, max(tokens // length, 1), generator)


def train_reader(training: FitConfig, task: str, graph: str) -> tuple[Reader, list[float]]:
    """Return a reader trained on about so many tokens at a time, and each update's loss in nats per question.

    ``task`` is one of ``TASKS``, ``graph`` of ``LONG_GRAPHS``.
    """
    data, symbols = LongData(task, LONG_GRAPHS[graph]), TASKS[task].vocab_size
    return fit(partial(Reader, symbols, symbols), partial(data.batches, LENGTHS, training.size), training)


def accuracy(model: Reader, task: str, graph: str, length: int, texts: int) -> float:
    """Return the share of questions answered correctly on so many new texts of one length."""
    data, generator = LongData(task, LONG_GRAPHS[graph]), torch.Generator()
    generator.manual_seed(TEST_SEED)
    right = sum(model.right(data.batch(length, 1, generator)) for _ in range(texts))
    return right / (texts * NUM_QUESTIONS)


def measure_reader(
    training: FitConfig, task: str, graph: str, tested: Sequence[int], texts: int
) -> dict[str, Any]:
    """Train and test: the loss of the last 100 updates; edges per token and accuracy by length."""
    model, losses = train_reader(training, task, graph)
    last = losses[-100:]
    row: dict[str, Any] = {"loss": sum(last) / len(last)}
    for n in tested:
        row[f"edges {n}"] = LONG_GRAPHS[graph](n).num_edges / n
        row[f"right {n}"] = accuracy(model, task, graph, n, texts)
    return row
