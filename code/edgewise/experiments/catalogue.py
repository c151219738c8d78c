"""The named experiments, each a frozen configuration."""

from edgewise.experiments.adaptive import ADAPTIVE
from edgewise.experiments.experiment import Experiment, Size, Sparse, Streamed, Text
from edgewise.trainer import Recipe
from edgewise.validation import check_choice

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "copy",
            "Repeat a sequence of letters.",
            "copy",
            Size(N=1, dim_model=128, dim_ff=128, h=1),
            Recipe(epochs=20, batch_size=128, average=5),
        ),
        Experiment(
            "sort",
            "Put a sequence of letters in order.",
            "sort",
            Size(N=2, dim_model=128, dim_ff=256, h=4, dropout=0.1),
            Recipe(epochs=100, batch_size=128, factor=0.5, warmup=800, average=10, clip=1.0),
        ),
        Experiment(
            "multi30k-agreement",
            "The same with R-Drop: two passes over every batch.",
            "multi30k",
            Size(N=3, dim_model=192, dim_ff=512, h=6, dropout=0.3, shared=True),
            Recipe(
                epochs=45,
                cooldown=6,
                batch_tokens=2048,
                factor=1.9,
                warmup=2000,
                clip=1.0,
                consistency=3.0,
                average=4,
                autocast=True,
            ),
            Text(4000, 0.1),
            ("test2016", "test2017"),
        ),
        Experiment(
            "multi30k",
            "Translate captions of pictures from English to German.",
            "multi30k",
            Size(N=4, dim_model=128, dim_ff=256, h=4, dropout=0.3, shared=True),
            Recipe(
                epochs=76,
                cooldown=28,
                batch_tokens=4096,
                factor=1.57,
                warmup=1200,
                clip=1.0,
                average=5,
                autocast=True,
            ),
            Text(6000, 0.1, dropout_epochs=36),
            ("test2016", "test2017"),
        ),
        Experiment(
            "multi30k-one-layer",
            "The same with one layer on each side, as the DGL tutorial drew it.",
            "multi30k",
            Size(N=1, dim_model=128, dim_ff=256, h=4, dropout=0.2, shared=True),
            Recipe(
                epochs=40, batch_tokens=4096, factor=1.6, warmup=1200, clip=1.0, average=10, autocast=True
            ),
            Text(6000, 0.1),
            ("test2016", "test2017"),
        ),
        Experiment(
            "multi30k-window",
            "The same, each source token attending to two on either side, with a steeper start.",
            "multi30k",
            Sparse(
                N=4, dim_model=128, dim_ff=256, h=4, dropout=0.3, shared=True, source_graph="window", reach=2
            ),
            Recipe(
                epochs=46,
                cooldown=20,
                batch_tokens=4096,
                factor=1.8,
                warmup=400,
                clip=1.0,
                average=5,
                autocast=True,
            ),
            Text(6000, 0.1, dropout_epochs=22),
            ("test2016", "test2017"),
        ),
        Experiment(
            "tatoeba",
            "Translate short everyday sentences from English to French.",
            "tatoeba",
            Size(N=2, dim_model=128, dim_ff=256, h=4, dropout=0.1, shared=True),
            Recipe(
                epochs=6,
                cooldown=2,
                batch_tokens=4096,
                factor=1.6,
                warmup=1200,
                clip=1.0,
                average=2,
                autocast=True,
            ),
            Text(6000, 0.1),
        ),
        *ADAPTIVE,
        Experiment(
            "wmt14",
            "Translate news from English to German: the large run's every step, on 10,000 pairs.",
            "wmt14",
            Size(N=3, dim_model=256, dim_ff=1024, h=4, dropout=0.3, shared=True),
            Recipe(
                epochs=30,
                batch_tokens=4096,
                bucketed=True,
                factor=1.0,
                warmup=1000,
                clip=1.0,
                average=5,
                autocast=True,
            ),
            Streamed(32_000),
        ),
        Experiment(
            "wmt14-base",
            "The base model of Vaswani et al. 2017 on all of WMT14: for several GPUs.",
            "wmt14-full",
            Size(N=6, dim_model=512, dim_ff=2048, h=8, dropout=0.1, shared=True),
            Recipe(
                epochs=20,
                batch_tokens=25_000,
                bucketed=True,
                factor=1.0,
                warmup=4000,
                clip=1.0,
                average=5,
                autocast=True,
            ),
            Streamed(32_000),
        ),
    )
}

LARGE = {"wmt14", "wmt14-base"}
"""Experiments whose weights are too large for ``book/artifacts``."""


def get_experiment(name: str) -> Experiment:
    """Return a named experiment.

    Raises
    ------
    ValueError
        If there is none of that name; lists the existing ones.
    """
    check_choice("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]
