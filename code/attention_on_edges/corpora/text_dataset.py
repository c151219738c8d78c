"""Text as data for experiments."""

from functools import cached_property

import numpy as np

from attention_on_edges.corpora import Corpus
from attention_on_edges.corpora.preparation import Languages
from attention_on_edges.corpora.tokenization import BPE
from attention_on_edges.corpora.variation import varied
from attention_on_edges.tasks import Pair, TranslationDataset

VARIANTS = 16
"""Segmentations of each word that BPE-dropout chooses from."""


class TextDataset(TranslationDataset):
    """A corpus as symbol sequences.

    Parameters
    ----------
    corpus : Corpus
        Text by split.
    splitter : BPE
        Its tokeniser.
    dropout : float
        BPE-dropout in training batches. ``VARIANTS`` segmentations of each word type are drawn before the
        first batch; each occurrence of the word draws one of them.
    seed : int
        For shuffling and segmentations.
    dropout_epochs : int, optional
        Epochs with BPE-dropout, the first ones; all if not given.
    moses : tuple of two str, optional
        Languages of source and target, if ``corpus`` was prepared by
        :func:`~attention_on_edges.corpora.preparation.prepared`.
    vary : float
        Probability that a training pair is varied:
        :func:`~attention_on_edges.corpora.variation.varied`.
    """

    def __init__(
        self,
        corpus: Corpus,
        splitter: BPE,
        dropout: float = 0.0,
        seed: int = 0,
        dropout_epochs: int | None = None,
        moses: Languages | None = None,
        vary: float = 0.0,
    ):
        self.corpus, self.splitter, self.moses = corpus, splitter, moses
        self.dropout_epochs, self.vary = dropout_epochs, vary
        splits = {
            mode: [(splitter.split(source), splitter.split(target)) for source, target in pairs]
            for mode, pairs in corpus.splits.items()
        }
        super().__init__(splits, splitter.symbols, seed)
        self._dropout, self._seed = dropout, seed

    @cached_property
    def _variants(self) -> dict[str, list[list[str]]]:
        """Segmentations of each word of the training text; drawn with the first pair, since it takes long."""
        texts = (text for pair in self.corpus.splits["train"] for text in pair)
        words = {word for text in texts for word in self.splitter.words(text)}
        generator = np.random.default_rng([self._seed, VARIANTS])
        return {
            word: [self.splitter.sample_word(word, self._dropout, generator) for _ in range(VARIANTS)]
            for word in sorted(words)
        }

    def draw_pair(self, idx: int, mode: str) -> Pair:
        """Return a pair as it appears in a batch: in training, segmentations are resampled each time."""
        if mode != "train":
            return super().draw_pair(idx, mode)
        vary = bool(self.vary) and self._generator.random() < self.vary
        drop = self._dropout > 0 and (self.dropout_epochs is None or self.epoch <= self.dropout_epochs)
        if not vary and not drop:
            return super().draw_pair(idx, mode)
        pair = self.corpus.splits[mode][idx]
        split = self._draw if drop else self.splitter.split
        source, target = map(split, varied(pair, self._generator) if vary else pair)
        return source, target

    def _draw(self, text: str) -> list[str]:
        words = self.splitter.words(text)
        chosen = self._generator.integers(VARIANTS, size=len(words)).tolist()
        return [piece for word, i in zip(words, chosen, strict=True) for piece in self._variant(word, i)]

    def _variant(self, word: str, number: int) -> list[str]:
        if word in self._variants:
            return self._variants[word][number]
        return self.splitter.sample_word(word, self._dropout, self._generator)  # of a varied pair
