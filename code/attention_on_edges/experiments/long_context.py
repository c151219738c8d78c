"""Chapter 10's short trainings, as entries of studies: readers on sparse graphs."""

from dataclasses import dataclass
from typing import Any

import torch

from attention_on_edges.analysis.long_context import (
    TASKS,
    BucketReader,
    GraphOf,
    LongContextConfig,
    LongData,
    Tags,
    accuracy,
    make_bucket_reader,
    make_reader,
    shared_links,
    tagged_right,
    train_reader,
    train_tagger,
)
from attention_on_edges.data.corpora.annotated import treebank
from attention_on_edges.experiments.experiment import Described, check_cpu
from edgewise.graphs import (
    bigbird,
    binary_partition,
    complete,
    compressive,
    dilated,
    global_tokens,
    random_links,
    segments,
    union,
    window,
)
from edgewise.validation import check_choice

LONG_GRAPHS: dict[str, GraphOf] = {
    "complete": complete,
    "window": lambda n: window(n, 24, 24),
    "two windows": lambda n: union(window(n, 12, 12), dilated(n, 12, 32)),
    "segments": lambda n: segments(n, 32, 32),
    "global tokens": lambda n: union(window(n, 16, 16), global_tokens(n, 8)),
    "random links": lambda n: union(window(n, 16, 16), random_links(n, 16, besides=window(n, 16, 16))),
    "BigBird": lambda n: bigbird(n, 12, 8, 8),
    "binary partition": lambda n: binary_partition(n, 3),
    "compressed memory": lambda n: compressive(n, 32, 16, 15, 16),
}
"""By length; all but the first have forty to fifty edges per token at 512 tokens."""

BUCKETS = "buckets"
"""The name of the graph that a reader's states decide."""


@dataclass(frozen=True)
class ReaderRun(Described):
    """A reader that is trained to copy over a gap or to recall, on one kind of graph.

    Attributes
    ----------
    name : str
        Its variant in the study.
    task : str
        One of ``longrange.TASKS``.
    graph : str
        One of ``LONG_GRAPHS``, or ``BUCKETS``.
    training : LongContextConfig
        How it is trained.
    tested : tuple of int
        Lengths of the test texts.
    texts : int
        Test texts of each length.
    """

    name: str
    task: str
    graph: str
    training: LongContextConfig
    tested: tuple[int, ...] = (512, 1024, 4096)
    texts: int = 32

    def __post_init__(self):
        check_choice("task", self.task, TASKS)
        check_choice("graph", self.graph, [*LONG_GRAPHS, BUCKETS])

    def figures(self, device: torch.device | str = "cpu") -> dict[str, Any]:
        """Train and test: the loss of the last 100 updates; edges per token and accuracy by length.

        Raises
        ------
        ValueError
            If ``device`` is not the CPU: these readers are small.
        """
        check_cpu(device, "readers")
        if self.graph == BUCKETS:
            graph_of, make = complete, make_bucket_reader  # its layers make graphs of their own
        else:
            graph_of, make = LONG_GRAPHS[self.graph], make_reader
        model, losses = train_reader(self.task, graph_of, self.training, make=make)
        last = losses[-100:]
        row: dict[str, Any] = {"loss": sum(last) / len(last)}
        for n in self.tested:
            if isinstance(model, BucketReader):
                with torch.no_grad():
                    graphs = model.graphs(LongData(self.task, graph_of).batch(n, 1))
                row[f"edges {n}"] = sum(g.num_edges for g in graphs) / len(graphs) / n
            else:
                row[f"edges {n}"] = graph_of(n).num_edges / n
            row[f"right {n}"] = accuracy(model, self.task, graph_of, n, self.texts)
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
    training : LongContextConfig
        How it is trained.
    """

    name: str
    graph: str
    training: LongContextConfig

    def figures(self, device: torch.device | str = "cpu") -> dict[str, Any]:
        """Train on EWT's training split.

        Returns accuracy on the test split, edges per word, and the share of the parses' links among them.

        Raises
        ------
        ValueError
            If ``device`` is not the CPU: these readers are small.
        """
        check_cpu(device, "readers")
        train, test = treebank("train"), treebank("test")
        tags = Tags(train)
        model = train_tagger(tags, train, self.graph, self.training)
        words = tags.batch(test, self.graph)
        edges = words.enc.num_edges / words.n_tokens
        right, shared = tagged_right(model, tags, test, self.graph), shared_links(test, self.graph)
        return {"right": right, "edges": edges, "shared": shared}
