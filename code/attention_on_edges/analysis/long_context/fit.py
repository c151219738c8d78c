"""One model and one training loop for every graph."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from attention_on_edges.analysis.long_context.reader import Reader, make_reader
from attention_on_edges.analysis.long_context.recall_tasks import PAD, TASKS, GraphOf, LongBatch, LongData
from edgewise.layers import evaluating
from edgewise.training import LabelSmoothing, NoamOpt, SimpleLossCompute, run_epoch
from edgewise.training.tutorial import Progress
from edgewise.validation import check_choice, check_count


@dataclass(frozen=True)
class LongContextConfig:
    """The training settings, the same for every graph.

    Attributes
    ----------
    steps : int
        Updates.
    lengths : tuple of int
        Of the texts, in turn.
    batch_tokens : int
        Tokens per update, approximately.
    N, dim_model, dim_ff, h : int
        Size of the model.
    factor, warmup : float, int
        Of the Noam schedule.
    seed : int
        For weights and texts.
    """

    steps: int = 600
    lengths: tuple[int, ...] = (128, 256, 512)
    batch_tokens: int = 4096
    N: int = 2
    dim_model: int = 64
    dim_ff: int = 128
    h: int = 4
    factor: float = 0.5
    warmup: int = 100
    seed: int = 0

    def __post_init__(self):
        for name in ("steps", "batch_tokens", "warmup"):
            check_count(name, getattr(self, name), 1)
        check_count("seed", self.seed)
        if not self.lengths:
            raise ValueError("lengths must name at least one length of text, got none")

    @property
    def size(self) -> dict[str, int]:
        """Of the model, as :func:`attention_on_edges.analysis.long_context.make_reader` takes it."""
        return {name: getattr(self, name) for name in ("N", "dim_model", "dim_ff", "h")}


def fit(
    model: Reader,
    batches: Iterable[LongBatch],
    config: LongContextConfig,
    answers: int,
    progress: Progress | None = None,
) -> list[float]:
    """Train a reader in place; return the loss of each update in nats per question.

    Parameters
    ----------
    model : Reader
        In evaluation mode afterwards.
    batches : iterable of LongBatch
        One for each update.
    config : LongContextConfig
        Learning rate schedule.
    answers : int
        Size of the output vocabulary; the first symbol, ``PAD``, is no answer.
    progress : callable, optional
        Called after each batch with its number of questions.
    """
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    loss = SimpleLossCompute(
        LabelSmoothing(answers, PAD, smoothing=0.0),
        NoamOpt(config.dim_model, config.factor, config.warmup, adam),
    )
    result = run_epoch(batches, model.train(), loss, progress=progress)
    model.eval()
    return result.losses


def train_reader(
    task: str,
    graph_of: GraphOf,
    config: LongContextConfig = LongContextConfig(),
    progress: Progress | None = None,
    make: Callable[..., Reader] = make_reader,
) -> tuple[Reader, list[float]]:
    """Train a new reader on a task and a kind of graph.

    Parameters
    ----------
    task : str
        One of ``TASKS``.
    graph_of : callable
        Length of a text to its graph.
    config : LongContextConfig
        How.
    progress : callable, optional
        Called after each batch with its number of questions.
    make : callable
        ``make_reader``, or another that takes the same.

    Returns
    -------
    model : Reader
        In evaluation mode.
    losses : list of float
        Loss of each update in nats per question.

    Raises
    ------
    ValueError
        If the task is unknown, or a length is too short for it.
    """
    check_choice("task", task, TASKS)
    torch.manual_seed(config.seed)
    vocab_size = TASKS[task].vocab_size
    model = make(vocab_size, **config.size)
    data = LongData(task, graph_of, config.seed)
    batches = data.batches(config.lengths, config.batch_tokens, config.steps)
    return model, fit(model, batches, config, vocab_size, progress)


def accuracy(
    model: Reader, task: str, graph_of: GraphOf, length: int, texts: int = 32, seed: int = 1_000_000
) -> float:
    """Return the share of questions answered correctly on new texts of one length, one text at a time.

    Raises
    ------
    ValueError
        If the task is unknown, the length is too short for it, or ``texts`` is below 1.
    """
    data, right = LongData(task, graph_of, seed), 0
    with evaluating(model), torch.no_grad():
        for _ in range(check_count("texts", texts, 1)):
            batch = data.batch(length, 1)
            right += int((model(batch).argmax(1) == batch.tgt_y).sum())
    return right / (texts * batch.n_tokens)
