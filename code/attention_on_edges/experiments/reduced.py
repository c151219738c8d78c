"""Every experiment at a size that runs in seconds, as a smoke test on any device."""

from dataclasses import replace

from attention_on_edges.experiments.experiment import Experiment, UniversalConfig


def reduced(experiment: Experiment) -> Experiment:
    """Return a small experiment that takes the same code path.

    Two epochs of a narrow model; text is a few rule-based captions, so that no corpus is needed.
    """
    model = replace(experiment.model, dim_model=16, dim_ff=16, h=2)
    model = replace(model, max_steps=2) if isinstance(model, UniversalConfig) else replace(model, N=1)
    training = experiment.training
    shorter = {"decay_epochs": min(training.decay_epochs, 1), "average": min(training.average, 2)}
    training = replace(training, epochs=2, warmup=20, **shorter)
    if experiment.tokenizer is None:
        training = replace(training, epochs=1, decay_epochs=0, batch_size=500)
        return replace(experiment, model=model, training=training)
    training = replace(training, batch_size=None, batch_tokens=1000)
    tokenizer = replace(experiment.tokenizer, vocab_size=400)
    return replace(
        experiment, task="small", model=model, training=training, tokenizer=tokenizer, tests=("test",)
    )
