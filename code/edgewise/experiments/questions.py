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


def _feed_forward() -> Study:
    """Widths of the feed-forward layer by model width, which shrinks so that weights are as many."""
    wide = {"0": (164, 0), "1/2": (152, 76), "1": (144, 144)}
    narrow = {"2": (128, 256), "4": (108, 432), "8": (88, 704)}
    entries = [
        Experiment(
            f"width {ratio}",
            "Learn to sort with a feed-forward layer of another width.",
            "sort",
            Size(N=1, dim_model=dim_model, dim_ff=dim_ff, h=4, shared=True),
            replace(SORT, seed=seed),
        )
        for ratio, (dim_model, dim_ff) in (wide | narrow).items()
        for seed in range(3)
    ]
    return Study("feed-forward", "Is the feed-forward layer only a re-scaler?", tuple(entries))


STUDIES = {study.name: study for study in (_heads(), _feed_forward(), _mixing())}


def get_study(name: str) -> Study:
    """Return a named study.

    Raises
    ------
    ValueError
        If there is none of that name; lists those there are.
    """
    check_choice("study", name, STUDIES)
    return STUDIES[name]
