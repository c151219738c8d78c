"""Chapter 11's experiments: the Universal Transformer on sort."""

from dataclasses import replace

from attention_on_edges.experiments.experiment import Experiment, UniversalConfig
from edgewise.training import TrainingConfig

LONG = TrainingConfig(epochs=18, decay_epochs=5, batch_size=128, factor=0.25, warmup=400, average=3, clip=1.0)
UNIVERSAL = UniversalConfig(
    max_steps=8, dim_model=128, dim_ff=256, h=4, ponder_weight=0.01, ponder_warmup=400
)

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
)
"""In the order in which they are trained."""
