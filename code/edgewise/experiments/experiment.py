"""A named training run: model, data and recipe."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from edgewise.adaptive import UTransformer, check_halting, make_universal_model
from edgewise.analysis import make_mixing_model
from edgewise.longrange import on_source_graph
from edgewise.trainer import Recipe
from edgewise.transformer import Transformer, make_model
from edgewise.validation import check_count, check_probability


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

    def build(self, vocab_size: int) -> Transformer:
        """Return a model of this size."""
        return make_model(vocab_size, vocab_size, **asdict(self))


@dataclass(frozen=True)
class Universal:
    """A Universal Transformer: steps at most, width, and more, as in ``make_universal_model``."""

    max_steps: int
    dim_model: int
    dim_ff: int
    h: int
    dropout: float = 0.0
    eps: float = 0.01
    bias: float = 1.0
    halting: str = "act"
    prior: float = 0.3
    frozen: str = "state"
    ponder_weight: float = 0.01
    ponder_warmup: int = 0
    norm_first: bool = True
    shared: bool = False

    def __post_init__(self):
        check_halting(
            self.max_steps, self.eps, self.halting, self.prior, self.ponder_weight, self.ponder_warmup
        )

    def build(self, vocab_size: int) -> UTransformer:
        """Return a model of this size."""
        return make_universal_model(vocab_size, vocab_size, **asdict(self))


@dataclass(frozen=True)
class Mixing(Size):
    """A :class:`Size` with another aggregator than attention: ``how`` as in ``make_mixing_model``."""

    how: str = "attention"

    def build(self, vocab_size: int) -> Transformer:
        """Return a model of this size."""
        return make_mixing_model(vocab_size, vocab_size, **asdict(self))


@dataclass(frozen=True)
class Sparse(Size):
    """A :class:`Size` on a source graph: ``source_graph`` and ``reach`` as in ``on_source_graph``."""

    source_graph: str = "complete"
    reach: int = 0

    def build(self, vocab_size: int) -> Transformer:
        """Return a model of this size."""
        size = asdict(self)
        graph = size.pop("source_graph"), size.pop("reach")
        return on_source_graph(make_model(vocab_size, vocab_size, **size), *graph)


@dataclass(frozen=True)
class Text:
    """How text becomes symbols.

    Attributes
    ----------
    vocab_size : int
        Size of the joint vocabulary of the byte-pair encoding, learned from the training split.
    dropout : float
        Probability of BPE-dropout in training.
    dropout_epochs : int, optional
        Epochs with BPE-dropout, the first ones; all if not given.
    """

    vocab_size: int
    dropout: float = 0.0
    dropout_epochs: int | None = field(default=None, kw_only=True)

    def __post_init__(self):
        check_count("vocab_size", self.vocab_size, 256)
        check_probability("dropout", self.dropout)
        if self.dropout_epochs is not None:
            check_count("dropout_epochs", self.dropout_epochs, 1)
            if not self.dropout:
                raise ValueError("dropout_epochs is for a dropout above 0")


@dataclass(frozen=True)
class Streamed(Text):
    """How the text of a corpus larger than memory becomes symbols: tokenised once and kept on disk.

    ``dropout`` must be 0: text that is tokenised once cannot be resampled.

    Attributes
    ----------
    sample : int
        Training pairs, sampled from all, to learn the byte-pair encoding from.
    longest, ratio : int, float
        Filter; see :func:`edgewise.corpora.cleaning.cleaned`.
    most_pieces : int
        Most pieces per side.
    """

    sample: int = 500_000
    longest: int = 100
    ratio: float = 2.0
    most_pieces: int = 256

    def __post_init__(self):
        super().__post_init__()
        for name in ("sample", "longest", "most_pieces"):
            check_count(name, getattr(self, name), 1)
        if self.dropout:
            raise ValueError(f"dropout must be 0 where text is split once, got {self.dropout}")


class Described:
    """Base of a study's entries: their configuration as JSON."""

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, as JSON."""
        return json.loads(json.dumps(asdict(self)))


@dataclass(frozen=True)
class Experiment(Described):
    """A named training run.

    Attributes
    ----------
    name : str
        Its name on the command line and in ``book/artifacts``.
    about : str
        Its purpose, in a sentence.
    task : str
        Data: a toy task, as in ``get_dataset``, or a corpus, as in ``corpora.load``; where text is
        ``Streamed``, as in ``corpora.streams.open_stream``.
    size : Size, Mixing, Sparse or Universal
        Size and kind of the model.
    recipe : Recipe
        The training recipe.
    text : Text or None
        How the text of a corpus becomes symbols; ``None`` for a toy task.
    tests : tuple of str
        Splits that the finished model is scored on.
    """

    name: str
    about: str
    task: str
    size: Size | Universal
    recipe: Recipe
    text: Text | None = None
    tests: tuple[str, ...] = ("test",)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Experiment":
        """Build the experiment that ``config`` describes."""
        size = config["size"]
        kinds = {"max_steps": Universal, "how": Mixing, "source_graph": Sparse}
        kind = next((kind for mark, kind in kinds.items() if mark in size), Size)
        parts = {"size": kind(**size)}
        parts["recipe"] = Recipe(**config["recipe"] | {"betas": tuple(config["recipe"]["betas"])})
        text = config.get("text")
        parts["text"] = (Streamed if "sample" in text else Text)(**text) if text else None
        parts["tests"] = tuple(config.get("tests", ("test",)))
        return cls(**{**config, **parts})

    def build(self, vocab_size: int) -> Transformer:
        """Return the model, initialised from the recipe's seed; dropout continues the same generator."""
        torch.manual_seed(self.recipe.seed)
        return self.size.build(vocab_size)
