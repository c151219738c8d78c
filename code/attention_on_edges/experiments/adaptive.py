"""Chapter 11's experiments: the Universal Transformer on toy tasks, and its baselines."""

from dataclasses import replace
from typing import Any

from attention_on_edges.experiments.experiment import Experiment, ModelConfig, UniversalConfig
from edgewise.training import TrainingConfig

LONG = TrainingConfig(epochs=18, decay_epochs=5, batch_size=128, factor=0.25, warmup=400, average=3, clip=1.0)
SHORT = replace(LONG, epochs=12, decay_epochs=5)
UNIVERSAL = UniversalConfig(
    max_steps=8, dim_model=128, dim_ff=256, h=4, ponder_weight=0.01, ponder_warmup=400
)


def _layers(count: int) -> ModelConfig:
    """An ordinary Transformer of the same width."""
    return ModelConfig(N=count, dim_model=UNIVERSAL.dim_model, dim_ff=UNIVERSAL.dim_ff, h=UNIVERSAL.h)


def _ablation(name: str, about: str, **changes: Any) -> Experiment:
    """The short run, with some settings changed."""
    return Experiment(f"sort-universal-{name}", about, "sort", replace(UNIVERSAL, **changes), SHORT)


ADAPTIVE = (
    Experiment(
        "sort-universal",
        "Put a sequence of letters in order, each token revised until it halts.",
        "sort",
        UNIVERSAL,
        LONG,
    ),
    *(
        Experiment(
            f"sort-universal-seed-{seed}",
            f"The same from seed {seed}, data included.",
            "sort",
            UNIVERSAL,
            replace(LONG, seed=seed),
        )
        for seed in (1, 2)
    ),
    Experiment(
        "sort-one-layer", "Sort with an ordinary Transformer of as many weights.", "sort", _layers(1), LONG
    ),
    Experiment(
        "sort-three-layers",
        "Sort with an ordinary Transformer of about as much work.",
        "sort",
        _layers(3),
        LONG,
    ),
    Experiment("copy-universal", "Copy, each token revised until it halts.", "copy", UNIVERSAL, SHORT),
    Experiment(
        "copy-one-layer", "Copy with an ordinary Transformer of as many weights.", "copy", _layers(1), SHORT
    ),
    Experiment(
        "copy-three-layers",
        "Copy with an ordinary Transformer of about as much work.",
        "copy",
        _layers(3),
        SHORT,
    ),
    _ablation("short", "The run that the following ones change in one setting each."),
    *(
        _ablation(f"bias-{name}", f"The halting bias begins at {bias:g}.", bias=bias)
        for name, bias in (("0", 0.0), ("minus-1", -1.0), ("minus-3", -3.0))
    ),
    *(
        _ablation(f"ponder-{weight:g}", f"Ponder weight {weight:g}.", ponder_weight=weight)
        for weight in (0.0, 0.001, 0.1)
    ),
    _ablation("input", "Halted tokens are attended to as what their last step read.", frozen="input"),
    *(
        _ablation(f"fixed-{steps}", f"Every token takes {steps} steps.", max_steps=steps, halting="fixed")
        for steps in (2, 4)
    ),
    _ablation("pondernet", "PonderNet's halting, prior 0.3.", halting="pondernet", prior=0.3),
)
"""In the order in which they are trained."""
