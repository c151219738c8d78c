"""The named experiments, each a frozen configuration."""

from dataclasses import replace

from attention_on_edges.data.tokenizer_config import TokenizerConfig
from attention_on_edges.experiments.adaptive import ADAPTIVE
from attention_on_edges.experiments.experiment import Experiment, ModelConfig, Search, SparseConfig
from edgewise.training import TrainingConfig
from edgewise.validation import check_choice

WU = Experiment(
    "multi30k-wu",
    "The recipe of Wu et al. 2021, whose model is the best published one that reads text alone.",
    "multi30k",
    ModelConfig(N=4, dim_model=128, dim_ff=256, h=4, dropout=0.3, norm_first=False, shared=True),
    TrainingConfig(
        epochs=129,  # 8,000 updates
        batch_tokens=3450,
        bucketed=True,
        grad_accum=2,  # two devices there
        factor=2.53,  # 0.005 after the warm-up
        warmup=2000,
        eps=1e-8,
        clip=25.0,
        average=10,
        patience=10,
        autocast=True,
    ),
    TokenizerConfig(10_256, moses=("en", "de")),  # 10,000 merges
    ("test2016", "test2017"),
    Search(beam=5, length_penalty=1.0, length_offset=0),  # score per token
)

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "copy",
            "Repeat a sequence of letters.",
            "copy",
            ModelConfig(N=1, dim_model=128, dim_ff=128, h=1),
            TrainingConfig(epochs=20, batch_size=128, average=5),
        ),
        Experiment(
            "sort",
            "Put a sequence of letters in order.",
            "sort",
            ModelConfig(N=2, dim_model=128, dim_ff=256, h=4, dropout=0.1),
            TrainingConfig(epochs=100, batch_size=128, factor=0.5, warmup=800, average=10, clip=1.0),
        ),
        Experiment(
            "multi30k",
            "Translate captions of pictures from English to German.",
            "multi30k",
            ModelConfig(N=4, dim_model=128, dim_ff=256, h=4, dropout=0.3, shared=True),
            TrainingConfig(
                epochs=76,
                decay_epochs=28,
                batch_tokens=4096,
                factor=1.57,
                warmup=1200,
                clip=1.0,
                average=5,
                autocast=True,
            ),
            TokenizerConfig(6000, 0.1, dropout_epochs=36),
            ("test2016", "test2017"),
        ),
        WU,
        *(
            replace(
                WU,
                name=f"multi30k-wu-seed-{seed}",
                about=f"The same from seed {seed}.",
                training=replace(WU.training, seed=seed),
            )
            for seed in (1, 2)
        ),
        Experiment(
            "multi30k-one-layer",
            "The same with one layer on each side, as the DGL tutorial drew it.",
            "multi30k",
            ModelConfig(N=1, dim_model=128, dim_ff=256, h=4, dropout=0.2, shared=True),
            TrainingConfig(
                epochs=40, batch_tokens=4096, factor=1.6, warmup=1200, clip=1.0, average=10, autocast=True
            ),
            TokenizerConfig(6000, 0.1),
            ("test2016", "test2017"),
        ),
        Experiment(
            "multi30k-window",
            "The same, each source token attending to two on either side, with a steeper start.",
            "multi30k",
            SparseConfig(
                N=4, dim_model=128, dim_ff=256, h=4, dropout=0.3, shared=True, source_graph="window", reach=2
            ),
            TrainingConfig(
                epochs=46,
                decay_epochs=20,
                batch_tokens=4096,
                factor=1.8,
                warmup=400,
                clip=1.0,
                average=5,
                autocast=True,
            ),
            TokenizerConfig(6000, 0.1, dropout_epochs=22),
            ("test2016", "test2017"),
        ),
        Experiment(
            "tatoeba",
            "Translate short everyday sentences from English to French.",
            "tatoeba",
            ModelConfig(N=2, dim_model=128, dim_ff=256, h=4, dropout=0.1, shared=True),
            TrainingConfig(
                epochs=24,
                decay_epochs=8,
                batch_tokens=4096,
                factor=1.6,
                warmup=1200,
                clip=1.0,
                average=3,
                autocast=True,
            ),
            TokenizerConfig(6000, 0.1, vary=0.2),
        ),
        *ADAPTIVE,
        Experiment(
            "wmt14",
            "Translate news from English to German: the large run's every step, on 10,000 pairs.",
            "wmt14",
            ModelConfig(N=3, dim_model=256, dim_ff=1024, h=4, dropout=0.3, shared=True),
            TrainingConfig(
                epochs=30,
                batch_tokens=4096,
                bucketed=True,
                factor=1.0,
                warmup=1000,
                clip=1.0,
                average=5,
                autocast=True,
            ),
            TokenizerConfig(32_000, on_disk=True),
        ),
        Experiment(
            "wmt14-base",
            "The base model of Vaswani et al. 2017 on all of WMT14: for several GPUs.",
            "wmt14-full",
            ModelConfig(N=6, dim_model=512, dim_ff=2048, h=8, dropout=0.1, shared=True),
            TrainingConfig(
                epochs=20,
                batch_tokens=25_000,
                bucketed=True,
                factor=1.0,
                warmup=4000,
                clip=1.0,
                average=5,
                autocast=True,
            ),
            TokenizerConfig(32_000, on_disk=True),
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
