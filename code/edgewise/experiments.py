"""Every training run that leaves an artifact, by name."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from edgewise import artifacts
from edgewise.artifacts import Artifact
from edgewise.decoding import evaluating, greedy
from edgewise.graphs import GraphPool
from edgewise.metrics import exact_match, token_accuracy
from edgewise.tasks import TranslationDataset, get_dataset
from edgewise.trainer import Recipe, Run, StateLossCompute
from edgewise.training import LabelSmoothing, run_epoch
from edgewise.transformer import Transformer, make_model
from edgewise.validation import check_choice


@dataclass(frozen=True)
class Size:
    """Layers on each side, width, width of the feed-forward layer, heads, and more: as in ``make_model``."""

    N: int
    dim_model: int
    dim_ff: int
    h: int
    dropout: float = 0.0
    norm_first: bool = True
    shared: bool = False


@dataclass(frozen=True)
class Experiment:
    """A named training run.

    Attributes
    ----------
    name : str
        What it is called on the command line and in ``book/artifacts``.
    about : str
        What it is for, in a sentence.
    task : str
        Data set, as in ``get_dataset``.
    size : Size
        Of the model.
    recipe : Recipe
        How it is trained.
    """

    name: str
    about: str
    task: str
    size: Size
    recipe: Recipe

    @property
    def config(self) -> dict[str, Any]:
        """All of it, as JSON holds it."""
        return asdict(self)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Experiment":
        """Build the experiment that ``config`` describes."""
        recipe = config["recipe"] | {"betas": tuple(config["recipe"]["betas"])}
        return cls(**config | {"size": Size(**config["size"]), "recipe": Recipe(**recipe)})

    def build(self, data: TranslationDataset) -> Transformer:
        """Return the untrained model, drawn from the recipe's seed, which dropout goes on from."""
        torch.manual_seed(self.recipe.seed)
        return make_model(data.vocab_size, data.vocab_size, **asdict(self.size))

    def load_data(self) -> TranslationDataset:
        """Return the data set."""
        return get_dataset(self.task, self.recipe.seed)


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
    )
}

VALIDATED = 200
"""Sequences of the validation split that are decoded after each epoch."""


def get_experiment(name: str) -> Experiment:
    """Return a named experiment.

    Raises
    ------
    ValueError
        If there is none of that name; lists those there are.
    """
    check_choice("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]


def start(
    experiment: Experiment,
    folder: Path,
    device: torch.device | str = "cpu",
    resume: bool = False,
    progress: bool = False,
) -> Run:
    """Begin, or continue, the experiment's run in a folder.

    Raises
    ------
    FileExistsError
        If the folder holds a run and ``resume`` is false.
    CheckpointError
        If the newest checkpoint cannot be used.
    """
    data = experiment.load_data()
    model = experiment.build(data).to(device)
    run = Run(
        model,
        data,
        experiment.recipe,
        folder,
        experiment.config,
        score=lambda m: decoded_figures(m, data, "valid", VALIDATED),
        stage=artifacts.facts(device),
        progress=progress,
    )
    run.start(resume)
    return run


def finish(run: Run, experiment: Experiment) -> Artifact:
    """Write the artifact of a finished run into the run's folder.

    Raises
    ------
    ValueError
        If the run is not finished.
    """
    if not run.finished:
        raise ValueError(f"{run.folder} is not finished: {len(run.epochs)} of {run.recipe.epochs} epochs")
    weights = artifacts.halved(run.averaged_weights())
    load_weights(run.model, weights)
    metrics = {
        "losses": run.losses,
        "epochs": run.epochs,
        "test": figures(run.model, run.data, "test"),
    }
    stages = [stage for stage in run.stages if stage["to_step"] > stage["from_step"]]
    provenance = stages[-1] | {
        "seed": run.recipe.seed,
        "data": digest_of(run.data),
        "seconds": sum(stage["seconds"] for stage in stages),
        "stages": stages,
    }
    return artifacts.write(run.folder / "artifact", weights, experiment.config, metrics, provenance)


def deviation(run: Run, experiment: Experiment) -> float | None:
    """Return by how much, relatively, the run's first losses differ from those of the committed artifact.

    ``None`` if there is no artifact of this very configuration.
    """
    if experiment.name not in artifacts.names():
        return None
    recorded = artifacts.load(experiment.name)
    if Experiment.of(recorded.config) != experiment:
        return None
    pairs = zip(run.losses, recorded.metrics["losses"], strict=False)
    return max(abs(ours - theirs) / abs(theirs) for ours, theirs in pairs)


def restore(artifact: Artifact) -> tuple[Transformer, TranslationDataset]:
    """Return an artifact's model, in evaluation mode, and its data."""
    experiment = Experiment.of(artifact.config)
    data = experiment.load_data()
    model = experiment.build(data)
    load_weights(model, artifact.weights)
    return model.eval(), data


@torch.no_grad()
def load_weights(model: torch.nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    """Copy parameters by name into a model; one that has several names is expected under the first.

    Raises
    ------
    ValueError
        If a name is missing, unknown, or of another shape.
    """
    parameters = dict(model.named_parameters())
    wrong = sorted(parameters.keys() ^ weights.keys())
    wrong += [n for n, p in parameters.items() if n in weights and weights[n].shape != p.shape]
    if wrong:
        raise ValueError(f"weights must be those of the model; these are not, or not alike: {wrong[:3]}")
    for name, parameter in parameters.items():
        parameter.copy_(weights[name])


def figures(
    model: Transformer, data: TranslationDataset, mode: str, limit: int | None = None
) -> dict[str, float]:
    """Score a model on a split: given the true tokens before each one, and by its own decoding.

    Parameters
    ----------
    model : Transformer
        Runs without dropout.
    data : TranslationDataset
        Holds the split.
    mode : str
        ``"train"``, ``"valid"`` or ``"test"``.
    limit : int, optional
        Sequences to decode, the first ones; all if not given.
    """
    criterion = LabelSmoothing(data.vocab_size, data.pad_id)
    loss = StateLossCompute(model.generator, criterion)
    device = next(model.parameters()).device
    with evaluating(model), torch.no_grad():
        run_epoch(data(GraphPool(), mode, 250, device), model.hidden, loss, is_train=False)
    forced = {"loss": loss.avg_loss, "accuracy": loss.accuracy}
    return forced | decoded_figures(model, data, mode, limit)


def decoded_figures(
    model: Transformer, data: TranslationDataset, mode: str, limit: int | None = None
) -> dict[str, float]:
    """Decode a split greedily: share of sequences exactly right, share of tokens in their places."""
    pairs = data.splits[mode][:limit]
    predictions = decode(model, data, [source for source, _ in pairs])
    targets = [target for _, target in pairs]
    return {
        "exact_match": exact_match(predictions, targets),
        "token_accuracy": token_accuracy(predictions, targets),
    }


def decode(
    model: Transformer, data: TranslationDataset, sources: list[list[str]], batch_size: int = 250
) -> list[list[str]]:
    """Decode symbol sequences greedily, ``batch_size`` at a time."""
    ids = [data.encode(source) for source in sources]
    hypotheses = [
        hypothesis
        for first in range(0, len(ids), batch_size)
        for hypothesis in greedy(model, ids[first : first + batch_size], data.sos_id, data.eos_id)
    ]
    return [data.decode(hypothesis.ids) for hypothesis in hypotheses]


def digest_of(data: TranslationDataset) -> str:
    """Return the sha256 of all pairs, in their order."""
    return hashlib.sha256(json.dumps(data.splits).encode()).hexdigest()
