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
        :func:`~attention_on_edges.corpora.preparation.moses` in these languages of source and target.
    vary : float
        Probability that a pair is varied in training, as by
        :func:`~attention_on_edges.corpora.variation.varied`.
    on_disk : bool
        Whether the training split is tokenised once and read from disk; then without the four above.
    """

    vocab_size: int
    dropout: float = 0.0
    dropout_epochs: int | None = field(default=None, kw_only=True)
    moses: tuple[str, str] | None = field(default=None, kw_only=True)
    vary: float = field(default=0.0, kw_only=True)
    on_disk: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        check_count("vocab_size", self.vocab_size, 256)
        check_probability("dropout", self.dropout)
        check_probability("vary", self.vary)
