"""A translator: a trained model and its tokeniser."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from attention_on_edges.corpora.preparation import Languages, moses, plain
from attention_on_edges.corpora.text import as_trained, listed
from attention_on_edges.corpora.tokenization import BPE
from attention_on_edges.decoding import Hypothesis, beam_search
from attention_on_edges.models.transformer import Transformer
from attention_on_edges.pool import GraphPool
from attention_on_edges.runs.experiment import Search
from attention_on_edges.tasks import TranslationDataset
from edgewise.validation import InputError

MOST_PIECES = 250
"""Longest text that is translated, in pieces: about five times the longest in training."""

MOST_REPEATS = 3
"""Most times that a piece, or a run of several, stands in a row in a translation; only loops have more."""

BATCH = 100
"""Texts decoded together."""


@dataclass(frozen=True)
class Translation:
    """A translation, and the pieces and the hypothesis that the model found."""

    text: str
    pieces: list[str]
    hypothesis: Hypothesis


class Translator:
    """Translates texts.

    Parameters
    ----------
    model : Transformer
        Trained on symbols of the splitter.
    splitter : BPE
        Text to pieces and back.
    search : Search
        Its length penalty and offset are those of beam search.
    moses : tuple of two str, optional
        Languages of source and target, if the model was trained on text prepared by
        ``preparation.moses``: texts are prepared alike, and translations are detokenised.

    Raises
    ------
    ValueError
        If the model's vocabulary is not the splitter's plus the three special symbols.
    """

    def __init__(self, model: Transformer, splitter: BPE, search: Search, moses: Languages | None = None):
        self.model, self.splitter, self.search, self.moses = model, splitter, search, moses
        self.vocabulary = TranslationDataset({}, splitter.symbols)
        size = model.src_embed.lut.num_embeddings
        if size != self.vocabulary.vocab_size:
            raise ValueError(f"the model knows {size} symbols, the splitter {self.vocabulary.vocab_size}")

    def __call__(
        self, texts: Sequence[str], beam: int = 5, max_repeats: int | None = MOST_REPEATS
    ) -> list[Translation]:
        """Return the translation of each text that ``beam_search`` ranks best.

        It takes ``max_repeats``, too, which benchmarks do not use.

        Raises
        ------
        InputError
            If a text is empty, longer than ``MOST_PIECES`` or not Unicode; says which.
        """
        ids = [self.encode(text, f"text {number}") for number, text in enumerate(listed("texts", texts), 1)]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))  # texts of similar length end together
        found: dict[int, Translation] = {}
        symbols = (self.vocabulary.sos_id, self.vocabulary.eos_id)
        for first in range(0, len(order), BATCH):
            part = order[first : first + BATCH]
            sources = [ids[i] for i in part]
            hypotheses = beam_search(
                self.model,
                sources,
                *symbols,
                beam,
                self.search.length_penalty,
                max_repeats=max_repeats,
                length_offset=self.search.length_offset,
            )
            found |= zip(part, map(self._translation, hypotheses), strict=True)
        return [found[i] for i in range(len(ids))]

    def encode(self, text: str, name: str = "text") -> list[int]:
        """Text to the ids that the model reads.

        Raises
        ------
        InputError
            If the text is empty, longer than ``MOST_PIECES`` or not Unicode; says so of ``name``.
        """
        try:
            text.encode()
        except UnicodeEncodeError:  # what the system does with arguments that are not UTF-8
            raise InputError(f"{name} must be Unicode, got half a character or none: {text[:40]!r}") from None
        if not as_trained(text):
            raise InputError(f"{name} must not be empty")
        pieces = self.split(text)
        if len(pieces) > MOST_PIECES:
            raise InputError(
                f"{name} must have at most {MOST_PIECES} pieces, got {len(pieces)}: {text[:40]!r}..."
            )
        return self.vocabulary.encode(pieces)

    def split(self, text: str) -> list[str]:
        """Text, as training text is written, to the pieces that the model reads."""
        text = as_trained(text)
        return self.splitter.split(moses([text], self.moses[0])[0] if self.moses else text)

    def attention(self, text: str, translation: Translation, layer: int = -1) -> list[Tensor]:
        """Return a layer's attention for this translation: ``[e2e, e2d, d2d]``.

        Decoder rows are its inputs: the start symbol, then all pieces of the translation.
        """
        target = [self.vocabulary.sos_id, *translation.hypothesis.ids, self.vocabulary.eos_id]
        return self.model.attention_of(GraphPool()([self.encode(text)], [target]), 0, layer)

    def _translation(self, hypothesis: Hypothesis) -> Translation:
        special = {self.vocabulary.sos_id, self.vocabulary.eos_id, self.vocabulary.pad_id}
        ids = [i for i in hypothesis.ids if i not in special]
        pieces = self.vocabulary.decode(ids)
        text = self.splitter.join(pieces)
        if self.moses:
            (text,) = plain([text], self.moses[1])
        return Translation(text, pieces, hypothesis)
