"""Chapter 10's short trainings, as entries of studies: readers on sparse graphs."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from attention_on_edges.analysis.long_context.reader import Reader
from attention_on_edges.analysis.long_context.recall_tasks import NUM_QUESTIONS, TASKS, GraphOf, LongData
from attention_on_edges.analysis.long_context.tagging import Tags, shared_links
from attention_on_edges.data.corpora.annotated import treebank
from attention_on_edges.experiments.experiment import Described, check_cpu
from attention_on_edges.experiments.fitting import FitConfig, fit
from edgewise.graphs import bigbird, binary_partition, complete, global_tokens, union, window

LONG_GRAPHS: dict[str, GraphOf] = {
    "complete": complete,
    "window": lambda n: window(n, 24, 24),
    "global tokens": lambda n: union(window(n, 16, 16), global_tokens(n, 8)),
    "BigBird": lambda n: bigbird(n, 12, 8, 8),
    "binary partition": lambda n: binary_partition(n, 3),
}
"""By length; all but the first have forty to fifty edges per token at 512 tokens."""

LENGTHS = (128, 256, 512)
"""Tokens of the texts in training, in turn."""

TEST_SEED = 1_000_000


@dataclass(frozen=True)
class ReaderRun(Described):
    """A reader that is trained to copy over a gap or to recall, on one kind of graph.

    Attributes
    ----------
    name : str
        Its variant in the study.
    task : str
        One of ``TASKS``.
    graph : str
        One of ``LONG_GRAPHS``.
    training : FitConfig
        How it is trained, on about so many tokens at a time.
    tested : tuple of int
        Lengths of the test texts.
    texts : int
        Test texts of each length.
    """

    name: str
    task: str
    graph: str
    training: FitConfig
    tested: tuple[int, ...] = (512, 1024, 4096)
    texts: int = 32

    def train(self) -> tuple[Reader, list[float]]:
        """Return a trained reader, and the loss of each update in nats per question."""
        data, symbols = LongData(self.task, LONG_GRAPHS[self.graph]), TASKS[self.task].vocab_size
        return fit(
            partial(Reader, symbols, symbols),
            partial(data.batches, LENGTHS, self.training.size),
            self.training,
        )

    def accuracy(self, model: Reader, length: int) -> float:
        """Return the share of questions answered correctly on new texts of one length."""
        data, generator = LongData(self.task, LONG_GRAPHS[self.graph]), torch.Generator()
        generator.manual_seed(TEST_SEED)
        right = sum(model.right(data.batch(length, 1, generator)) for _ in range(self.texts))
        return right / (self.texts * NUM_QUESTIONS)

    def figures(self, device: torch.device | str = "cpu") -> dict[str, Any]:
        """Train and test: the loss of the last 100 updates; edges per token and accuracy by length."""
        check_cpu(device, "readers")
        model, losses = self.train()
        last = losses[-100:]
        row: dict[str, Any] = {"loss": sum(last) / len(last)}
        for n in self.tested:
            row[f"edges {n}"] = LONG_GRAPHS[self.graph](n).num_edges / n
            row[f"right {n}"] = self.accuracy(model, n)
        return row


@dataclass(frozen=True)
class TaggerRun(Described):
    """A reader that is trained to name grammatical relations, on one kind of graph.

    Attributes
    ----------
    name : str
        Its variant in the study.
    graph : str
        One of ``tagging.WORD_GRAPHS``.
    training : FitConfig
        How it is trained, on about so many words at a time.
    """

    name: str
    graph: str
    training: FitConfig

    def figures(self, device: torch.device | str = "cpu") -> dict[str, Any]:
        """Train on EWT's training split.

        Returns accuracy on the test split, edges per word, and the share of the parses' links among them.
        """
        check_cpu(device, "readers")
        test, tags = treebank("test"), Tags(treebank("train"), self.graph)
        make = partial(Reader, len(tags.words) + 1, len(tags.relations) + 1)
        model, _ = fit(make, partial(tags.batches, self.training.size), self.training)
        batches = [tags.batch(test[first : first + 100]) for first in range(0, len(test), 100)]
        words = sum(len(batch.tgt_y) for batch in batches)
        return {
            "right": sum(map(model.right, batches)) / words,
            "edges": sum(batch.enc.num_edges for batch in batches) / words,
            "shared": shared_links(test, self.graph),
        }
