"""Chapter 3's study: which of the steps from GAT to the Transformer matter, added and left out one by one."""

from dataclasses import dataclass
from typing import Any

import torch

from attention_on_edges.analysis.gat_steps import (
    GATV2,
    STEP_TASKS,
    STEPS,
    StepConfig,
    check_steps,
    nodes_right,
    train_steps,
)
from attention_on_edges.experiments.experiment import Described, check_cpu
from edgewise.validation import check_choice

VALIDATION, TEST = 1_000_000, 2_000_000
"""Seeds of the graphs by which a learning rate is chosen, and of those whose accuracy is reported."""


@dataclass(frozen=True)
class StepsRun(Described):
    """A model with some of the steps, trained at each learning rate; the best on validation counts.

    Attributes
    ----------
    name : str
        Its variant in the study.
    task : str
        One of ``STEP_TASKS``.
    steps : tuple of str
        Among ``STEPS``, or ``GATV2`` instead of the dot product.
    training : StepConfig
        How it is trained.
    """

    name: str
    task: str
    steps: tuple[str, ...]
    training: StepConfig

    def __post_init__(self):
        check_choice("task", self.task, STEP_TASKS)
        check_steps(self.steps)

    def figures(self, device: torch.device | str = "cpu") -> dict[str, Any]:
        """Train; return the accuracy on new graphs, and the learning rate that was chosen.

        Raises
        ------
        ValueError
            If ``device`` is not the CPU: these models are small.
        """
        check_cpu(device)
        models = {
            rate: train_steps(self.task, self.steps, self.training, rate) for rate in self.training.rates
        }
        valid = {rate: nodes_right(model, self.task, seed=VALIDATION) for rate, model in models.items()}
        rate = max(valid, key=lambda rate: valid[rate])
        return {"right": nodes_right(models[rate], self.task, seed=TEST), "rate": rate}


LADDER = {"GAT": ()} | {f"+ {STEPS[i]}": STEPS[: i + 1] for i in range(len(STEPS))}
"""GAT, and steps added one after the other; the last has all of them."""

WITHOUT = {f"without {step}": tuple(other for other in STEPS if other != step) for step in STEPS[:-1]}
"""All steps but one; without the last is a rung of the ladder."""

BY_GATV2 = {"GATv2": (GATV2,), "GATv2's score in the whole": (GATV2, *STEPS[1:])}
"""GATv2, and the Transformer's layer with GATv2's score for its dot product."""


def step_runs() -> list[StepsRun]:
    """All runs: two tasks, twelve kinds of layer, three seeds."""
    return [
        StepsRun(f"{task}, {name}", task, steps, StepConfig(seed=seed))
        for kinds in (LADDER | WITHOUT, BY_GATV2)
        for task in STEP_TASKS
        for name, steps in kinds.items()
        for seed in range(3)
    ]
