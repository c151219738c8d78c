"""Texts of any length with questions at their end: copying over a gap, and associative recall."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import torch
from torch import Tensor

from attention_on_edges.analysis.long_context.reader import Questions
from edgewise.graphs import AttentionGraph, batch

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
