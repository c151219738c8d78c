"""All studies of trained models, by name."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from attention_on_edges.corpora.tokenizer_config import TokenizerConfig
from attention_on_edges.runs.chains import PRICES, chain_runs
from attention_on_edges.runs.experiment import Experiment, ModelConfig, SparseConfig
from attention_on_edges.runs.fitting import FitConfig, FitRun
from attention_on_edges.runs.gat_steps import step_runs
from attention_on_edges.runs.study_results import Study
from attention_on_edges.studies.citations import link_runs
from attention_on_edges.studies.language_model import language_parts
from attention_on_edges.studies.recall import HUB_GRAPHS, LONG_GRAPHS, TASKS, measure_reader, measure_tuned
from attention_on_edges.studies.solubility import readout_runs
from attention_on_edges.studies.specific_edges import specific_parts
from attention_on_edges.studies.steps import adaptive_runs
from attention_on_edges.studies.twins import twin_runs
from attention_on_edges.training import TrainingConfig

SEEDS = range(3)


READING = FitConfig(1200, 2048, 0.00625, decay="root", betas=(0.9, 0.98), eps=1e-9, clip=None)
"""The rate of the Transformer's paper, half as high, for a width of 64."""


def _distances() -> Iterator[FitRun]:
    for task, graph, seed in product(TASKS, LONG_GRAPHS, SEEDS):
        settings = {"task": task, "graph": graph, "tested": (512, 1024, 4096), "texts": 32}
        yield FitRun(f"{task}, {graph}", measure_reader, settings, training=replace(READING, seed=seed))


READING_RATES = (0.0005, 0.002, 0.00625)
"""Of which one is chosen for each graph."""


def _tuned(trials: Iterable[dict[str, Any]], seeds: int, *tested: int) -> Iterator[FitRun]:
    """Readers at rates of their own."""
    for trial in trials:
        name = ", ".join(str(v) for k, v in trial.items() if k != "lengths")
        settings = {"rates": READING_RATES, "seeds": seeds, "tested": tested, "texts": 32}
        yield FitRun(name, measure_tuned, trial | settings, training=replace(READING, updates=3600))


SPARSE = [
    {"task": task, "graph": graph}
    for task, graph in product(TASKS, ("global tokens", "BigBird", "binary partition"))
]


NARROW_HUBS = [
    {"task": "copy", "graph": graph, "lengths": (128,), "letters": letters, "width": width}
    for graph, width, letters in product(HUB_GRAPHS, (16, 64), (4, 16, 48))
]


def _sources() -> list[Experiment]:
    """Small translators that differ only in the graph over the source."""
    graphs = [("complete", 0), ("window", 0), ("window", 2), ("binary partition", 1)]
    course = TrainingConfig(
        epochs=4, batch_tokens=4096, factor=2.0, warmup=200, clip=1.0, decay_epochs=2, autocast=True
    )
    complete = SparseConfig(N=2, dim_model=128, dim_ff=256, h=4, dropout=0.1, shared=True)
    return [
        Experiment(
            f"{graph} {reach}" if reach or graph == "window" else graph,
            "Translate captions with an encoder that has fewer edges.",
            "multi30k",
            replace(complete, source_graph=graph, reach=reach),
            replace(course, seed=seed),
            TokenizerConfig(6000),
        )
        for graph, reach in graphs
        for seed in SEEDS
    ]


COPY = TrainingConfig(epochs=4, batch_size=128, warmup=400)


SORT = replace(COPY, epochs=6)


def _heads() -> Study:
    entries = [
        Experiment(
            f"{h} heads" if h > 1 else "1 head",
            "Learn to copy.",
            "copy",
            ModelConfig(N=1, dim_model=128, dim_ff=128, h=h, shared=True),
            replace(COPY, seed=seed),
        )
        for h in (1, 2, 4, 8)
        for seed in range(10)
    ]
    return Study("heads", "Do several heads make it likelier that training succeeds?", tuple(entries))


def _feed_forward() -> Study:
    """Widths of the feed-forward layer; the model's width shrinks to keep the number of weights."""
    wide = {"0": (164, 0), "1/2": (152, 76), "1": (144, 144)}
    narrow = {"2": (128, 256), "4": (108, 432), "8": (88, 704)}
    entries = [
        Experiment(
            f"width {ratio}",
            "Learn to sort with a feed-forward layer of another width.",
            "sort",
            ModelConfig(N=1, dim_model=dim_model, dim_ff=dim_ff, h=4, shared=True),
            replace(SORT, seed=seed),
        )
        for ratio, (dim_model, dim_ff) in (wide | narrow).items()
        for seed in range(3)
    ]
    return Study("feed-forward", "Is the feed-forward layer only a re-scaler?", tuple(entries))


def _stability() -> Study:
    """Where three layers on each side train successfully, pre-norm and post-norm."""
    course = TrainingConfig(epochs=3, batch_size=128, warmup=100)
    entries = [
        Experiment(
            f"{'pre' if norm_first else 'post'}-norm, {'warm-up' if rises else 'no warm-up'}, "
            f"{'decay' if falls else 'no decay'}, rate {rate:g}",
            "Learn to sort at some rate.",
            "sort",
            ModelConfig(N=3, dim_model=64, dim_ff=128, h=4, shared=True, norm_first=norm_first),
            replace(course, factor=rate * 80.0, with_warmup=rises, with_decay=falls, seed=seed),
        )
        for norm_first, rises, falls in product((True, False), repeat=3)
        for rate in RATES
        for seed in range(3)
    ]
    return Study("stability", "Why is training hard: where does it fail?", tuple(entries))


RATES = (0.0003, 0.001, 0.003, 0.01, 0.03)
"""Peak learning rates: 80 is the root of 64, the width, times that of 100, the warm-up."""


STUDIES = {
    study.name: study
    for study in (
        _heads(),
        _feed_forward(),
        _stability(),
        Study("chains", "Does adaptive depth find how many steps a token needs?", tuple(chain_runs())),
        Study("prices", "Does the weight of steps in the loss decide how many?", tuple(chain_runs(PRICES))),
        Study("gat-steps", "Which step makes a Transformer of a GAT?", tuple(step_runs())),
        Study("distances", "Which graphs carry an answer over a distance?", tuple(_distances())),
        Study("twins", "Does it train as well as in matrices?", tuple(twin_runs(_sources()[:3]))),
        Study("steps", "What decides how many steps a token takes?", tuple(adaptive_runs(_sources()[:2]))),
        Study("tuned", "Was it the path, or the learning rate?", tuple(_tuned(SPARSE, 3, 512, 4096))),
        Study("hubs", "How much can a hub's state hold?", tuple(_tuned(NARROW_HUBS, 2, 128))),
        Study("sources", "What must a translator's encoder attend to?", tuple(_sources())),
        Study("specific", "Is what is enough for a word special to it?", tuple(specific_parts())),
        Study("readouts", "How soluble is a molecule, with and without its bonds?", tuple(readout_runs())),
        Study("language-model", "What does it need lines between words for?", tuple(language_parts())),
        Study("citations", "Which papers cite each other?", tuple(link_runs())),
    )
}
