"""Chapter 10's studies, by name."""

from collections.abc import Sequence
from dataclasses import replace

from attention_on_edges.analysis.long_context import TASKS, WORD_GRAPHS, LongContextConfig
from attention_on_edges.data.tokenizer_config import TokenizerConfig
from attention_on_edges.experiments.experiment import Experiment, SparseConfig
from attention_on_edges.experiments.long_context import BUCKETS, ReaderRun, TaggerRun
from attention_on_edges.experiments.studies import Study
from edgewise.training import TrainingConfig

SEEDS = range(3)


def _reader_runs(name: str, about: str, graphs: Sequence[str]) -> Study:
    """Readers of both tasks on some kinds of graph."""
    entries = [
        ReaderRun(
            f"{task}, {graph}",
            task,
            graph,
            LongContextConfig(steps=1200, batch_tokens=2048, factor=0.5, seed=seed),
        )
        for task in TASKS
        for graph in graphs
        for seed in SEEDS
    ]
    return Study(name, about, tuple(entries))


def _distances() -> Study:
    fixed = ("complete", "window", "two windows", "segments", "global tokens", "BigBird", "binary partition")
    return _reader_runs("distances", "Which graphs carry an answer over a distance?", fixed)


def _chosen() -> Study:
    graphs = ("random links", "compressed memory", BUCKETS)
    return _reader_runs("chosen", "Do drawn links, a fading memory or chosen edges carry it better?", graphs)


def _trees() -> Study:
    entries = [
        TaggerRun(graph, graph, LongContextConfig(steps=500, batch_tokens=2048, factor=0.5, seed=seed))
        for graph in WORD_GRAPHS
        for seed in SEEDS
    ]
    return Study("trees", "What is it worth to attend along a parse?", tuple(entries))


def _sources() -> Study:
    """Small translators that differ only in the graph over the source."""
    graphs = [("complete", 0), ("window", 0), ("window", 2), ("binary partition", 1)]
    course = TrainingConfig(
        epochs=4, batch_tokens=4096, factor=2.0, warmup=200, clip=1.0, decay_epochs=2, autocast=True
    )
    size = {"N": 2, "dim_model": 128, "dim_ff": 256, "h": 4, "dropout": 0.1, "shared": True}
    entries = [
        Experiment(
            f"{graph} {reach}" if reach or graph == "window" else graph,
            "Translate captions with an encoder that has fewer edges.",
            "multi30k",
            SparseConfig(**size, source_graph=graph, reach=reach),
            replace(course, seed=seed),
            TokenizerConfig(6000),
        )
        for graph, reach in graphs
        for seed in SEEDS
    ]
    return Study("sources", "What must a translator's encoder attend to?", tuple(entries))


GRAPH_STUDIES = (_distances(), _chosen(), _trees(), _sources())
