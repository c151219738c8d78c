"""Chapter 9's studies, by name."""

from dataclasses import replace

from edgewise.experiments.experiment import Experiment, Mixing, Size
from edgewise.experiments.studies import Study
from edgewise.trainer import Recipe
from edgewise.validation import check_choice

COPY = Recipe(epochs=4, batch_size=128, warmup=400)
SORT = replace(COPY, epochs=6)


def _heads() -> Study:
    entries = [
        Experiment(
            f"{h} heads" if h > 1 else "1 head",
            "Learn to copy.",
            "copy",
            Size(N=1, dim_model=128, dim_ff=128, h=h, shared=True),
            replace(COPY, seed=seed),
        )
        for h in (1, 2, 4, 8)
        for seed in range(10)
    ]
    return Study("heads", "Do several heads make it likelier that training succeeds?", tuple(entries))


def _mixing() -> Study:
    entries = [
        Experiment(
            f"{how}, {h} head{'s' if h > 1 else ''}",
            "Learn to sort, with or without attention.",
            "sort",
            Mixing(N=1, dim_model=128, dim_ff=256, h=h, shared=True, how=how),
            replace(SORT, seed=seed),
        )
        for how in ("sum", "mean", "max", "attention")
        for h in (1, 4)
        for seed in range(3)
    ]
    return Study("mixing", "What can be done without attention?", tuple(entries))


STUDIES = {study.name: study for study in (_heads(), _mixing())}


def get_study(name: str) -> Study:
    """Return a named study.

    Raises
    ------
    ValueError
        If there is none of that name; lists those there are.
    """
    check_choice("study", name, STUDIES)
    return STUDIES[name]
