"""A named training run: model, data and training configuration."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from attention_on_edges.corpora.tokenizer_config import TokenizerConfig
from attention_on_edges.models.sparse_translator import on_source_graph
from attention_on_edges.models.transformer import Transformer, make_model
from attention_on_edges.models.universal import UTransformer, make_universal_model
from attention_on_edges.runs.json_files import made_of
from attention_on_edges.training import TrainingConfig


@dataclass(frozen=True)
class ModelConfig:
    """Layers on each side, width, width of the feed-forward layer, heads, and more: as in ``make_model``."""

    N: int
    dim_model: int
    dim_ff: int
    h: int
    dropout: float = 0.0
    norm_first: bool = True
    shared: bool = False

    def build(self, vocab_size: int) -> Transformer:
        """Return a model of this size."""
        return make_model(vocab_size, vocab_size, **asdict(self))


@dataclass(frozen=True)
class UniversalConfig:
    """A Universal Transformer: steps at most, width, and more, as in ``make_universal_model``."""

    max_steps: int
    dim_model: int
    dim_ff: int
    h: int
    dropout: float = 0.0
    eps: float = 0.01
    bias: float = 1.0
    halting: str = "act"
    ponder_weight: float = 0.01
    ponder_warmup: int = 0
    norm_first: bool = True
    shared: bool = False

    def build(self, vocab_size: int) -> UTransformer:
        """Return a model of this size."""
        return make_universal_model(vocab_size, vocab_size, **asdict(self))


@dataclass(frozen=True)
class SparseConfig(ModelConfig):
    """A :class:`ModelConfig` on a source graph: ``source_graph`` and ``reach`` as in ``on_source_graph``."""

    source_graph: str = "complete"
    reach: int = 0

    def build(self, vocab_size: int) -> Transformer:
        """Return a model of this size."""
        size = asdict(self)
        graph = size.pop("source_graph"), size.pop("reach")
        return on_source_graph(make_model(vocab_size, vocab_size, **size), *graph)


@dataclass(frozen=True)
class Search:
    """How text is decoded, as in ``beam_search``; toy tasks are decoded greedily."""

    beam: int = 1
    length_penalty: float = 0.0
    length_offset: float = 5


@dataclass(frozen=True)
class Experiment:
    """A named training run.

    Attributes
    ----------
    name : str
        Its name on the command line and in ``book/artifacts``.
    about : str
        Its purpose, in a sentence.
    task : str
        Data: a toy task, as in ``get_dataset``, or a corpus, as in ``corpora.load``.
    model : ModelConfig, SparseConfig or UniversalConfig
        Kind and size of the model.
    training : TrainingConfig
        How it is trained.
    tokenizer : TokenizerConfig or None
        How the text of a corpus becomes symbols; ``None`` for a toy task.
    tests : tuple of str
        Splits that the finished model is scored on.
    search : Search, optional
        How the finished model decodes text; by default a beam of five, with the length penalty that is best
        on validation.
    """

    name: str
    about: str
    task: str
    model: ModelConfig | UniversalConfig
    training: TrainingConfig
    tokenizer: TokenizerConfig | None = None
    tests: tuple[str, ...] = ("test",)
    search: Search | None = None

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, as JSON."""
        return json.loads(json.dumps(asdict(self)))

    @property
    def label(self) -> dict[str, Any]:
        """What its row in a study is called."""
        return {"variant": self.name, "seed": self.training.seed}

    @classmethod
    def of(cls, config: Mapping[str, Any], where: Path | str = "configuration") -> "Experiment":
        """Build the experiment that ``config`` describes; ``where`` is for messages.

        Raises
        ------
        InputError
            If a field is missing, unknown or out of its range.
        """
        parts = dict(config)
        kinds = {"max_steps": UniversalConfig, "source_graph": SparseConfig}
        kind = next((kind for mark, kind in kinds.items() if mark in parts.get("model", ())), ModelConfig)
        found = {"model": kind, "training": TrainingConfig, "tokenizer": TokenizerConfig, "search": Search}
        for name, kind in found.items():
            if parts.get(name) is not None:
                parts[name] = made_of(kind, parts[name], f"{where}, {name}")
        return made_of(cls, parts, where)

    def build(self, vocab_size: int) -> Transformer:
        """Return the model, initialised from its seed; dropout continues the same generator."""
        torch.manual_seed(self.training.seed)
        return self.model.build(vocab_size)
