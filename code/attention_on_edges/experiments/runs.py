"""From an experiment to its artifact, and back."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from edgewise.training.epoch import Progress

from attention_on_edges.data import corpora
from attention_on_edges.data.corpora.streams import open_stream
from attention_on_edges.data.familiarity import Familiarity
from attention_on_edges.data.tasks import SPECIAL, TranslationDataset
from attention_on_edges.data.text_dataset import TextDataset
from attention_on_edges.data.tokenization import BPE
from attention_on_edges.data.tokenizer_config import StreamingConfig, TokenizerConfig
from attention_on_edges.experiments import artifacts
from attention_on_edges.experiments.artifacts import Artifact
from attention_on_edges.experiments.experiment import Experiment, Search
from attention_on_edges.experiments.json_files import typed
from attention_on_edges.experiments.loading import digest_of, digest_of_symbols, load_data
from attention_on_edges.experiments.scores import (
    GREEDY,
    choose_search,
    decoded_figures,
    final_figures,
    signatures,
)
from attention_on_edges.experiments.translator import Translator
from edgewise.models.transformer import Transformer
from edgewise.training import LOCAL, LocalCommunicator, Trainer
from edgewise.validation import InputError

VALIDATED = 200
"""Validation sequences decoded after each epoch; of text in memory, all are."""


def start(
    experiment: Experiment,
    folder: Path,
    device: torch.device | str = "cpu",
    resume: bool = False,
    progress: Progress | None = None,
    communicator: LocalCommunicator = LOCAL,
    workers: int = 0,
    say: Callable[[str], None] = lambda line: None,
) -> Trainer:
    """Start or resume the experiment's run in a folder.

    A resumed run may have another number of epochs, and settings of later epochs may change, since they do
    not affect earlier ones. It must have the same number of processes, each of which has random numbers of
    its own. If text stays on disk, ``workers`` processes prefetch for each; their number does not affect the
    result. ``say`` is called before slow work.

    Raises
    ------
    MismatchError
        If the processes have different settings.
    FileExistsError
        If the folder holds a run and ``resume`` is false.
    CheckpointError
        If the newest checkpoint cannot be used: it is damaged, or has another configuration, pairs,
        vocabulary or number of processes.
    """
    communicator.assert_same(experiment.config | {"resume": resume})
    if not resume and (folder / "artifact").exists():
        raise FileExistsError(f"{folder} holds a finished run; name another folder")
    data = load_data(experiment, None, workers, say)
    found = {"data": {"pairs": digest_of(data)[:16], "vocabulary": digest_of_symbols(data)[:16]}}
    communicator.assert_same(found)
    stage = artifacts.facts(device) | {"processes": communicator.size}
    model = experiment.build(data.vocab_size).to(device)
    trainer = Trainer(
        model,
        data,
        experiment.training,
        folder,
        _identity(experiment) | found,
        score=lambda m: decoded_figures(
            m, data, "valid", None if type(experiment.tokenizer) is TokenizerConfig else VALIDATED
        ),
        stage=stage,
        progress=progress,
        communicator=communicator,
    )
    trainer.start(resume)
    return trainer


def _identity(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that affect an experiment from its first update."""
    identity = experiment.config
    identity.pop("search")
    for last in ("epochs", "decay_epochs", "average"):
        identity["training"].pop(last)
    if identity["tokenizer"]:
        identity["tokenizer"].pop("dropout_epochs")  # recorded with each epoch instead
    return identity


def finish(trainer: Trainer, experiment: Experiment) -> Artifact:
    """Write the artifact of a finished run into the run's folder.

    Raises
    ------
    ValueError
        If the run is not finished, or has more epochs than configured.
    """
    if not trainer.finished or len(trainer.epochs) > trainer.config.epochs:
        how = "has too many epochs" if trainer.finished else "is not finished"
        raise ValueError(f"{trainer.folder} {how}: {len(trainer.epochs)} of {trainer.config.epochs} epochs")
    weights = artifacts.halved(trainer.averaged_weights())
    load_weights(trainer.model, weights)
    metrics = {"losses": trainer.losses, "epochs": trainer.epochs}
    search = GREEDY
    if experiment.tokenizer:
        chosen, by_penalty = choose_search(trainer.model, trainer.data)
        search = experiment.search or chosen
        metrics |= {"signatures": signatures(), "search": asdict(search), "valid_by_penalty": by_penalty}
        metrics["greedy"] = {
            mode: decoded_figures(trainer.model, trainer.data, mode) for mode in experiment.tests
        }
    metrics |= final_figures(experiment, trainer.model, trainer.data, search)
    stages = [stage for stage in trainer.stages if stage["to_step"] > stage["from_step"]]
    provenance = stages[-1] | {
        "seed": trainer.config.seed,
        "data": digest_of(trainer.data),
        "seconds": sum(stage["seconds"] for stage in stages),
        "stages": stages,
    }
    if type(experiment.tokenizer) is TokenizerConfig:
        metrics["sources"] = asdict(familiarity_of(trainer.data))
    tokenizer = trainer.data.splitter.to_json() if isinstance(trainer.data, TextDataset) else None
    folder = trainer.folder / "artifact"
    return artifacts.write(folder, weights, experiment.config, metrics, provenance, tokenizer)


def deviation(trainer: Trainer, experiment: Experiment) -> float | None:
    """Return the largest relative difference between the run's first losses and the committed artifact's.

    ``None`` if there is no artifact of this configuration.
    """
    if experiment.name not in artifacts.names():
        return None
    recorded = artifacts.load(experiment.name)
    if recorded.experiment != experiment:
        return None
    pairs = zip(trainer.losses, recorded.metrics["losses"], strict=False)
    return max(abs(ours - theirs) / abs(theirs) for ours, theirs in pairs)


def restore(artifact: Artifact) -> tuple[Transformer, TranslationDataset]:
    """Return an artifact's model, in evaluation mode, and its data.

    Raises
    ------
    CorpusError
        If the data are a corpus that cannot be had.
    """
    experiment = artifact.experiment
    data = load_data(experiment, restore_splitter(artifact) if experiment.tokenizer else None)
    return restore_model(artifact, data.vocab_size), data


def restore_splitter(artifact: Artifact) -> BPE:
    """Return the tokeniser of an artifact's model."""
    return BPE.load(artifact.folder / artifacts.TOKENIZER)


def search_of(artifact: Artifact) -> Search:
    """Return the search settings behind an artifact's metrics."""
    if "search" not in artifact.metrics:
        return GREEDY
    return typed(artifact.metrics["search"], Search, f"{artifact.folder / artifacts.METRICS}, search")


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
            check_weights(experiment.build(vocab_size), weights)
    except (ValueError, RuntimeError) as error:  # PyTorch's, of sizes that are beyond 64 bits
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
    splitter = restore_splitter(artifact)
    model = restore_model(artifact, len(SPECIAL) + len(splitter.symbols))
    known = artifact.metrics.get("sources")
    if known is not None:
        known = typed(known, Familiarity, f"{artifact.folder / artifacts.METRICS}, sources")
    search = search_of(artifact)
    return Translator(
        model, splitter, search.length_penalty, tokenizer.moses, known, length_offset=search.length_offset
    )


def familiarity_of(data: TextDataset) -> Familiarity:
    """Count the pieces of a data set's training sources."""
    sources = (data.encode(source) for source, _ in data.splits["train"])
    return Familiarity.of(sources, data.vocab_size)


def test_sources(artifact: Artifact) -> list[str]:
    """Return the sources of an artifact's first test split.

    Raises
    ------
    CorpusError
        If the corpus cannot be had.
    """
    experiment = artifact.experiment
    streamed = isinstance(experiment.tokenizer, StreamingConfig)
    corpus = open_stream(experiment.task).corpus if streamed else corpora.load(experiment.task)
    return [source for source, _ in corpus.splits[experiment.tests[0]]]


@torch.no_grad()
def load_weights(model: torch.nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    """Copy parameters by name into a model; a shared parameter is expected under its first name.

    Raises
    ------
    InputError
        As by :func:`check_weights`.
    """
    check_weights(model, weights)
    for name, parameter in model.named_parameters():
        parameter.copy_(weights[name])


def check_weights(model: torch.nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    """Raise ``InputError`` if a parameter's name is missing, unknown, or of another shape."""
    parameters = dict(model.named_parameters())
    wrong = sorted(parameters.keys() ^ weights.keys())
    wrong += [n for n, p in parameters.items() if n in weights and weights[n].shape != p.shape]
    if wrong:
        raise InputError(f"weights must be those of the model; these are not, or not alike: {wrong[:3]}")
