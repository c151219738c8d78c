"""Every experiment at a size that runs in seconds, as a smoke test on any device."""

from dataclasses import replace

from edgewise.experiments.experiment import Experiment, Universal


def reduced(experiment: Experiment) -> Experiment:
    """Return a small experiment that takes the same code path.

    Two epochs of a narrow model; text is a few rule-based captions, so that no corpus is needed.
    """
    size = replace(experiment.size, dim_model=16, dim_ff=16, h=2)
    size = replace(size, max_steps=2) if isinstance(size, Universal) else replace(size, N=1)
    recipe = experiment.recipe
    shorter = {"epochs": 2, "cooldown": min(recipe.cooldown, 1), "average": min(recipe.average, 2)}
    recipe = replace(recipe, warmup=20, **shorter)
    if experiment.text is None:
        return replace(experiment, size=size, recipe=replace(recipe, epochs=1, cooldown=0, batch_size=500))
    recipe = replace(recipe, batch_size=None, batch_tokens=1000)
    text = replace(experiment.text, vocab_size=400)
    return replace(experiment, task="few", size=size, recipe=recipe, text=text, tests=("test",))
