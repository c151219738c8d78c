"""The data of experiments: toy tasks, text, and text that stays on disk."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from attention_on_edges.data import corpora
from attention_on_edges.data.corpora import Pair
from attention_on_edges.data.corpora.streams import json_digest
from attention_on_edges.data.preparation import prepared
from attention_on_edges.data.streamed_text import StreamedText, load_streamed
from attention_on_edges.data.tasks import TranslationDataset, get_dataset
from attention_on_edges.data.text_dataset import TextDataset
from attention_on_edges.data.tokenization import BPE
from attention_on_edges.data.tokenizer_config import StreamingConfig
from attention_on_edges.data.variation import varied
from attention_on_edges.experiments.experiment import Experiment


def load_data(
    experiment: Experiment,
    splitter: BPE | None = None,
    workers: int = 0,
    say: Callable[[str], None] = lambda line: None,
) -> TranslationDataset:
    """Return an experiment's data set; unless given, ``splitter`` is learned from the training split.

    If text stays on disk, ``workers`` processes prefetch, and ``say`` is called before slow work, the first
    time only.

    Raises
    ------
    CorpusError
        If a file of the corpus cannot be had or used.
    """
    seed, config = experiment.training.seed, experiment.tokenizer
    if config is None:
        return get_dataset(experiment.task, seed)
    if isinstance(config, StreamingConfig):
        return load_streamed(experiment.task, config, seed, splitter, workers, say)
    corpus = corpora.load(experiment.task)
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
    if isinstance(data, StreamedText):
        return data.digest
    splits = data.corpus.splits if isinstance(data, TextDataset) else data.splits
    return json_digest(splits)


def digest_of_symbols(data: TranslationDataset) -> str:
    """Return the sha256 of the vocabulary."""
    return json_digest(data.symbols)
