"""Chapter 10's studies, by name."""

from dataclasses import replace

from attention_on_edges.analysis.long_context.recall_tasks import TASKS
from attention_on_edges.analysis.long_context.tagging import WORD_GRAPHS
from attention_on_edges.data.tokenizer_config import TokenizerConfig
from attention_on_edges.experiments.experiment import Experiment, SparseConfig
from attention_on_edges.experiments.fitting import FitConfig
from attention_on_edges.experiments.long_context import LONG_GRAPHS, ReaderRun, TaggerRun
from attention_on_edges.experiments.studies import Study
from edgewise.training import TrainingConfig

SEEDS = range(3)

READING = FitConfig(1200, 2048, 0.00625, decay="root", betas=(0.9, 0.98), eps=1e-9, clip=None)
"""The rate of the Transformer's paper, half as high, for a width of 64."""

DISTANCES = [
    ReaderRun(f"{task}, {graph}", task, graph, replace(READING, seed=seed))
    for task in TASKS
    for graph in LONG_GRAPHS
    for seed in SEEDS
]

TREES = [
    TaggerRun(graph, graph, replace(READING, updates=500, seed=seed))
    for graph in WORD_GRAPHS
    for seed in SEEDS
]


def _sources() -> list[Experiment]:
    """Small translators that differ only in the graph over the source."""
    graphs = [("complete", 0), ("window", 0), ("window", 2), ("binary partition", 1)]
    course = TrainingConfig(
        epochs=4, batch_tokens=4096, factor=2.0, warmup=200, clip=1.0, decay_epochs=2, autocast=True
    )
    size = {"N": 2, "dim_model": 128, "dim_ff": 256, "h": 4, "dropout": 0.1, "shared": True}
    return [
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


GRAPH_STUDIES = (
    Study("distances", "Which graphs carry an answer over a distance?", tuple(DISTANCES)),
    Study("trees", "What is it worth to attend along a parse?", tuple(TREES)),
    Study("sources", "What must a translator's encoder attend to?", tuple(_sources())),
)
