"""How text becomes symbols."""

from dataclasses import dataclass, field

from edgewise.validation import check_count, check_probability


@dataclass(frozen=True)
class TokenizerConfig:
    """How text becomes symbols.

    Attributes
    ----------
    vocab_size : int
        Size of the joint vocabulary of the byte-pair encoding, learned from the training split.
    dropout : float
        Probability of BPE-dropout in training.
    dropout_epochs : int, optional
        Epochs with BPE-dropout, the first ones; all if not given.
    moses : tuple of two str, optional
        If given, text is lower-cased, normalised and tokenised before, as by
        :func:`~attention_on_edges.data.preparation.moses` in these languages of source and target.
    vary : float
        Probability that a pair is varied in training, as by
        :func:`~attention_on_edges.data.variation.varied`.
    """

    vocab_size: int
    dropout: float = 0.0
    dropout_epochs: int | None = field(default=None, kw_only=True)
    moses: tuple[str, str] | None = field(default=None, kw_only=True)
    vary: float = field(default=0.0, kw_only=True)

    def __post_init__(self):
        check_count("vocab_size", self.vocab_size, 256)
        check_probability("dropout", self.dropout)
        check_probability("vary", self.vary)
        if self.dropout_epochs is not None:
            check_count("dropout_epochs", self.dropout_epochs, 1)
            if not self.dropout:
                raise ValueError("dropout_epochs is for a dropout above 0")


@dataclass(frozen=True)
class StreamingConfig(TokenizerConfig):
    """How the text of a corpus larger than memory becomes symbols: tokenised once and kept on disk.

    ``dropout`` must be 0: text that is tokenised once cannot be resampled.

    Attributes
    ----------
    sample : int
        Training pairs, sampled from all, to learn the byte-pair encoding from.
    longest, ratio : int, float
        Filter; see :func:`attention_on_edges.data.corpora.cleaning.cleaned`.
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
        if self.moses:
            raise ValueError("moses is for text in memory; streamed text stays as it is")
        if self.vary:
            raise ValueError(f"vary must be 0 where text is split once, got {self.vary}")
