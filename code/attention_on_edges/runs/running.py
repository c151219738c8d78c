"""From an experiment to its artifact, and back."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from attention_on_edges.corpora.files import json_digest
from attention_on_edges.corpora.text_dataset import TextDataset
from attention_on_edges.corpora.tokenization import BPE
from attention_on_edges.models.transformer import Transformer
from attention_on_edges.runs import artifacts
from attention_on_edges.runs.artifacts import TOKENIZER, Artifact
from attention_on_edges.runs.experiment import Experiment, Search
from attention_on_edges.runs.loading import digest_of, load_data
from attention_on_edges.runs.scores import GREEDY, choose_search, decoded_figures, final_figures, signatures
from attention_on_edges.runs.translator import Translator
from attention_on_edges.tasks import SPECIAL
from attention_on_edges.training import Trainer
from attention_on_edges.training.distributed import world_size
from attention_on_edges.training.trainer import Progress
from edgewise.validation import InputError

VALIDATED = 200
"""Validation sequences decoded after each epoch; of text in memory, all are."""


def start(
    experiment: Experiment,
    folder: Path,
    device: torch.device | str = "cpu",
    resume: bool = False,
    progress: Progress | None = None,
) -> Trainer:
    """Start or resume the experiment's run in a folder.

    Several processes share it, if they have joined by ``process_group``; a resumed run must have as many.

    Raises
    ------
    InputError
        If the processes have different settings.
    FileExistsError
        If the folder holds a run and ``resume`` is false.
    CheckpointError
        If the newest checkpoint is of another configuration, pairs, vocabulary or number of processes.
    """
    data = load_data(experiment)
    found = {"data": {"pairs": digest_of(data)[:16], "vocabulary": json_digest(data.symbols)[:16]}}
    stage = artifacts.facts(device) | {"processes": world_size()}
    model = experiment.build(data.vocab_size).to(device)
    trainer = Trainer(
        model,
        data,
        experiment.training,
        folder,
        experiment.config | found,
        score=lambda m: decoded_figures(m, data, "valid", None if type(data) is TextDataset else VALIDATED),
        stage=stage,
        progress=progress,
    )
    trainer.start(resume)
    return trainer


def finish(trainer: Trainer, experiment: Experiment) -> Artifact:
    """Write the artifact of a finished run into the run's folder.

    Raises
    ------
    ValueError
        If the run is not finished.
    """
    if not trainer.finished:
        raise ValueError(
            f"{trainer.folder} is not finished: {len(trainer.epochs)} of {trainer.config.epochs} epochs"
        )
    weights = artifacts.halved(trainer.averaged_weights())
    load_weights(trainer.model, weights)
    metrics = {"losses": trainer.losses, "epochs": trainer.epochs}
    search = GREEDY
    data: Any = trainer.data
    if experiment.tokenizer:
        chosen, by_penalty = choose_search(trainer.model, data)
        search = experiment.search or chosen
        metrics |= {"signatures": signatures(), "search": asdict(search), "valid_by_penalty": by_penalty}
        metrics["greedy"] = {mode: decoded_figures(trainer.model, data, mode) for mode in experiment.tests}
    metrics |= final_figures(experiment, trainer.model, data, search)
    stages = [stage for stage in trainer.stages if stage["to_step"] > stage["from_step"]]
    provenance = stages[-1] | {
        "seed": trainer.config.seed,
        "data": digest_of(data),
        "seconds": sum(stage["seconds"] for stage in stages),
        "stages": stages,
    }
    tokenizer = data.splitter.to_json() if isinstance(data, TextDataset) else None
    folder = trainer.folder / "artifact"
    return artifacts.write(folder, weights, experiment.config, metrics, provenance, tokenizer)


def restore(artifact: Artifact) -> tuple[Transformer, Any]:
    """Return an artifact's model, in evaluation mode, and its data set, as by ``load_data``.

    Raises
    ------
    CorpusError
        If the data are a corpus that cannot be had.
    """
    experiment = artifact.experiment
    data = load_data(experiment, BPE.load(artifact.folder / TOKENIZER) if experiment.tokenizer else None)
    return restore_model(artifact, data.vocab_size), data


def search_of(artifact: Artifact) -> Search:
    """Return the search settings behind an artifact's metrics."""
    return Search(**artifact.metrics["search"]) if "search" in artifact.metrics else GREEDY


def restore_model(artifact: Artifact, vocab_size: int) -> Transformer:
    """Return an artifact's model, in evaluation mode.

    Raises
    ------
    InputError
        If its configuration is that of no model, or of another than the weights'.
    """
    weights, experiment = artifact.weights, artifact.experiment
    try:
        with torch.device("meta"):  # shapes alone: of a wrong size nothing is allocated
            load_weights(experiment.build(vocab_size), weights)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{artifact.folder / artifacts.CONFIG}, model: {error}") from None
    model = experiment.build(vocab_size)
    load_weights(model, weights)
    return model.eval()


def load_translator(artifact: Artifact) -> Translator:
    """Return a translator with an artifact's model; needs no corpus.

    Raises
    ------
    InputError
        If the artifact is of a toy task, or cannot be used.
    """
    tokenizer = artifact.experiment.tokenizer
    if tokenizer is None:
        raise InputError(f"{artifact.name} is not a model of text: it cannot translate")
    splitter = BPE.load(artifact.folder / TOKENIZER)
    model = restore_model(artifact, len(SPECIAL) + len(splitter.symbols))
    return Translator(model, splitter, search_of(artifact), tokenizer.moses)


@torch.no_grad()
def load_weights(model: torch.nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    """Copy parameters by name into a model; a shared parameter is expected under its first name.

    Raises
    ------
    InputError
        If a parameter's name is missing, unknown, or of another shape.
    """
    parameters = dict(model.named_parameters())
    wrong = sorted(parameters.keys() ^ weights.keys())
    wrong += [n for n, p in parameters.items() if n in weights and weights[n].shape != p.shape]
    if wrong:
        raise InputError(f"weights must be those of the model; these are not, or not alike: {wrong[:3]}")
    for name, parameter in parameters.items():
        parameter.copy_(weights[name])
