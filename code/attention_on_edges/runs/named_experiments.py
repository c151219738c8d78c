"""The named experiments, each a frozen configuration."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from attention_on_edges.corpora.tokenizer_config import TokenizerConfig
from attention_on_edges.runs.experiment import Experiment, ModelConfig, Search, SparseConfig, UniversalConfig
from attention_on_edges.training import TrainingConfig

MULTI30K = ("multi30k", ("test2016", "test2017"))


SMALL = ModelConfig(N=4, dim_model=128, dim_ff=256, h=4, dropout=0.3, shared=True)


def _text(
    name: str,
    about: str,
    model: ModelConfig,
    tokenizer: TokenizerConfig,
    data: tuple[str, tuple[str, ...]] = MULTI30K,
    **training: Any,
) -> Experiment:
    """A translator; its batches have 4,096 target tokens unless told otherwise."""
    settings = {"batch_tokens": 4096, "clip": 1.0, "average": 5, "autocast": True} | training
    return Experiment(name, about, data[0], model, TrainingConfig(**settings), tokenizer, data[1])


def _from_other_seeds(experiment: Experiment, also: str = "") -> Iterator[Experiment]:
    for seed in (1, 2):
        name, about = f"{experiment.name}-seed-{seed}", f"The same from seed {seed}{also}."
        training = replace(experiment.training, seed=seed)
        yield replace(experiment, name=name, about=about, training=training)


SORT_UNIVERSAL = Experiment(
    "sort-universal",
    "Put a sequence of letters in order, each token revised until it halts.",
    "sort",
    UniversalConfig(max_steps=8, dim_model=128, dim_ff=256, h=4, ponder_weight=0.01, ponder_warmup=400),
    TrainingConfig(epochs=18, decay_epochs=5, batch_size=128, factor=0.25, warmup=400, average=3, clip=1.0),
)


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
        _text(
            "multi30k",
            "Translate captions of pictures from English to German.",
            SMALL,
            TokenizerConfig(6000, 0.1, dropout_epochs=36),
            epochs=76,
            decay_epochs=28,
            factor=1.57,
            warmup=1200,
        ),
        WU,
        *_from_other_seeds(WU),
        _text(
            "multi30k-one-layer",
            "The same with one layer on each side, as the DGL tutorial drew it.",
            replace(SMALL, N=1, dropout=0.2),
            TokenizerConfig(6000, 0.1),
            epochs=40,
            factor=1.6,
            warmup=1200,
            average=10,
        ),
        _text(
            "multi30k-window",
            "The same, each source token attending to two on either side, with a steeper start.",
            SparseConfig(**vars(SMALL), source_graph="window", reach=2),
            TokenizerConfig(6000, 0.1, dropout_epochs=22),
            epochs=46,
            decay_epochs=20,
            factor=1.8,
            warmup=400,
        ),
        _text(
            "tatoeba",
            "Translate short everyday sentences from English to French.",
            replace(SMALL, N=2, dropout=0.1),
            TokenizerConfig(6000, 0.1, vary=0.2),
            ("tatoeba", ("test",)),
            epochs=24,
            decay_epochs=8,
            factor=1.6,
            warmup=1200,
            average=3,
        ),
        SORT_UNIVERSAL,
        *_from_other_seeds(SORT_UNIVERSAL, also=", data included"),
        _text(
            "wmt14-base",
            "The base model of Vaswani et al. 2017 on all of WMT14: for several GPUs.",
            ModelConfig(N=6, dim_model=512, dim_ff=2048, h=8, dropout=0.1, shared=True),
            TokenizerConfig(32_000, on_disk=True),
            ("wmt14-full", ("test",)),
            epochs=20,
            batch_tokens=25_000,
            bucketed=True,
            warmup=4000,
        ),
    )
}


LARGE = {"wmt14-base"}
"""Experiments whose weights are too large for ``book/artifacts``."""


def reduced(experiment: Experiment) -> Experiment:
    """Return a small experiment that takes the same code path.

    Two epochs of a narrow model; text is a few rule-based captions, so that no corpus is needed.
    """
    model = replace(experiment.model, dim_model=16, dim_ff=16, h=2)
    model = replace(model, max_steps=2) if isinstance(model, UniversalConfig) else replace(model, N=1)
    training = experiment.training
    training = replace(training, decay_epochs=min(training.decay_epochs, 1), average=min(training.average, 2))
    training = replace(training, epochs=2, warmup=20)
    if experiment.tokenizer is None:
        training = replace(training, epochs=1, decay_epochs=0, batch_size=500)
        return replace(experiment, model=model, training=training)
    training = replace(training, batch_size=None, batch_tokens=1000)
    tokenizer = replace(experiment.tokenizer, vocab_size=400)
    return replace(
        experiment, task="small", model=model, training=training, tokenizer=tokenizer, tests=("test",)
    )
