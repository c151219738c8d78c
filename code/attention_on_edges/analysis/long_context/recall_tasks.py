"""Texts of any length with questions at their end: copying over a gap, and associative recall."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph, batch
from edgewise.validation import check_choice, check_count

PAD, HUB, SPAN, GAP, FIRST = range(5)
"""Ids 0 to 4. ``PAD``: padding; ``HUB``: the first tokens of a text; ``SPAN``: additional tokens of a graph;
``GAP``: filler; ``FIRST``: the first id for tasks."""

NUM_HUBS = 8
"""Tokens before the text proper, which serve as global tokens in graphs that have them."""

PERIOD = 64
"""Positions of the filler repeat, so that longer texts have no positions unseen in training."""

NUM_QUESTIONS = 8
"""Questions per text."""

NUM_LETTERS = 16
NUM_KEYS = NUM_VALUES = 16

GraphOf = Callable[[int], AttentionGraph]
"""Length of a text to its graph; the graph's tokens past that length are additional ones."""


@dataclass(frozen=True)
class LongBatch:
    """Texts of one length, packed, with their graph.

    It has the fields of :class:`~edgewise.graphs.Batch` that an encoder and the training loop read.

    Attributes
    ----------
    enc : AttentionGraph
        Which token attends to which.
    src : tuple of Tensor
        Ids and positions, each int64 [N], additional tokens of the graph included.
    asked : Tensor
        int64 [n_tokens]: the places of the questions.
    tgt_y : Tensor
        int64 [n_tokens]: their answers.
    every : int or None
        Tokens of each text, additional ones included, where all have equally many.
    """

    enc: AttentionGraph
    src: tuple[Tensor, Tensor]
    asked: Tensor
    tgt_y: Tensor
    every: int | None = None

    @property
    def n_tokens(self) -> int:
        """Questions."""
        return len(self.tgt_y)


@dataclass(frozen=True)
class LongTask:
    """A kind of text.

    Attributes
    ----------
    vocab_size : int
        Symbols, the special ones included.
    num_answers : int
        Possible answers of a random guess.
    shortest : int
        Fewest tokens of a text.
    draw : callable
        ``(length, count, generator)`` to ids and positions [count, length] and answers
        [count, NUM_QUESTIONS]; the last tokens of a text are its questions, in the answers' order.
    """

    vocab_size: int
    num_answers: int
    shortest: int
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
    free = length - NUM_HUBS - NUM_QUESTIONS

    def some(total: int) -> Tensor:
        drawn = torch.rand(count, total, generator=generator).argsort(1)
        return drawn[:, :NUM_QUESTIONS]

    keys, places = some(NUM_KEYS), NUM_HUBS + some(free)
    values = torch.randint(NUM_VALUES, keys.shape, generator=generator)
    ids.scatter_(1, places, FIRST + keys * NUM_VALUES + values)
    order = some(NUM_QUESTIONS)
    questions = FIRST + NUM_KEYS * NUM_VALUES
    ids[:, -NUM_QUESTIONS:] = questions + keys.gather(1, order)
    positions[:, -NUM_QUESTIONS:] = 0
    return ids, positions, questions + NUM_KEYS + values.gather(1, order)


TASKS = {
    "copy": LongTask(FIRST + NUM_LETTERS + 1, NUM_LETTERS, NUM_HUBS + 2 * NUM_QUESTIONS, _draw_copy),
    "recall": LongTask(
        FIRST + NUM_KEYS * NUM_VALUES + NUM_KEYS + NUM_VALUES,
        NUM_VALUES,
        NUM_HUBS + 2 * NUM_QUESTIONS,
        _draw_recall,
    ),
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
    seed : int
        For the texts.

    Raises
    ------
    ValueError
        If the task is unknown.
    """

    def __init__(self, task: str, graph_of: GraphOf, seed: int = 0):
        check_choice("task", task, TASKS)
        self.task, self.graph_of = TASKS[task], graph_of
        self._generator = torch.Generator().manual_seed(check_count("seed", seed))
        self._graphs: dict[tuple[int, int], AttentionGraph] = {}

    def graph(self, length: int, count: int = 1) -> AttentionGraph:
        """Return the graph of ``count`` texts of this length, cached with its tile plan.

        Raises
        ------
        ValueError
            If the length is too short for the task, or the graph has too few tokens.
        """
        if (length, count) not in self._graphs:
            check_count("length", length, self.task.shortest)
            single = self.graph_of(length)
            if single.num_src < length:
                raise ValueError(f"graph_of({length}) must have that many tokens, got {single.num_src}")
            self._graphs[length, count] = batch([single] * check_count("count", count, 1))
        return self._graphs[length, count]

    def batch(self, length: int, count: int) -> LongBatch:
        """Draw ``count`` new texts of one length."""
        graph = self.graph(length, count)
        ids, positions, answers = self.task.draw(length, count, self._generator)
        every = graph.num_src // count
        extra = torch.arange(every - length).expand(count, -1)
        ids = torch.cat([ids, torch.full_like(extra, SPAN)], 1)
        positions = torch.cat([positions, extra % PERIOD], 1)
        asked = torch.arange(count)[:, None] * every + torch.arange(length - NUM_QUESTIONS, length)
        texts = ids.flatten(), positions.flatten()
        return LongBatch(graph, texts, asked.flatten(), answers.flatten(), every)

    def batches(self, lengths: tuple[int, ...], batch_tokens: int, steps: int) -> Iterator[LongBatch]:
        """Draw batches of about equally many tokens, cycling through the lengths."""
        for step in range(steps):
            length = lengths[step % len(lengths)]
            yield self.batch(length, max(batch_tokens // length, 1))
