"""The data of experiments: toy tasks, text, and text on disk."""

from collections.abc import Iterator, Sequence

import numpy as np

from attention_on_edges import corpora
from attention_on_edges.corpora import Pair
from attention_on_edges.corpora.files import json_digest
from attention_on_edges.corpora.preparation import prepared
from attention_on_edges.corpora.text_dataset import TextDataset
from attention_on_edges.corpora.text_on_disk import TextOnDisk, learned
from attention_on_edges.corpora.tokenization import BPE
from attention_on_edges.corpora.variation import varied
from attention_on_edges.runs.experiment import Experiment
from attention_on_edges.tasks import TranslationDataset, get_dataset


def load_data(experiment: Experiment, splitter: BPE | None = None) -> TranslationDataset:
    """Return an experiment's data set; unless given, ``splitter`` is learned from the training split.

    Raises
    ------
    CorpusError
        If a file of the corpus cannot be had.
    """
    seed, config = experiment.training.seed, experiment.tokenizer
    if config is None:
        return get_dataset(experiment.task, seed)
    corpus = corpora.load(experiment.task)
    if config.on_disk:
        return TextOnDisk(corpus, splitter or learned(corpus, config.vocab_size), seed)
    if config.moses:
        corpus = prepared(corpus, config.moses)
    if splitter is None:
        splitter = BPE.train(_lines(corpus.splits["train"], config.vary), config.vocab_size)
    return TextDataset(
        corpus, splitter, config.dropout, seed, config.dropout_epochs, config.moses, config.vary
    )


def _lines(pairs: Sequence[Pair], vary: float) -> Iterator[str]:
    """Yield both sides of all pairs, and of the share that is varied, as it would be in an epoch."""
    generator = np.random.default_rng(0)
    for pair in pairs:
        yield from pair
        if vary and generator.random() < vary:
            yield from varied(pair, generator)


def digest_of(data: TranslationDataset) -> str:
    """Return the sha256 of all pairs, in their order."""
    if isinstance(data, TextOnDisk):
        return data.digest
    splits = data.corpus.splits if isinstance(data, TextDataset) else data.splits
    return json_digest(splits)
