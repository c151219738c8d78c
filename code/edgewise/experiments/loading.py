"""The data of experiments: toy tasks, text, and text that stays on disk."""

from collections.abc import Callable

from edgewise import corpora
from edgewise.corpora.streams import json_digest
from edgewise.experiments.cached import CachedText, load_cached
from edgewise.experiments.data import TextDataset
from edgewise.experiments.experiment import Experiment, Streamed
from edgewise.tasks import TranslationDataset, get_dataset
from edgewise.tokenization import BPE


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
    seed, text = experiment.recipe.seed, experiment.text
    if text is None:
        return get_dataset(experiment.task, seed)
    if isinstance(text, Streamed):
        return load_cached(experiment.task, text, seed, splitter, workers, say)
    corpus = corpora.load(experiment.task)
    if splitter is None:
        lines = (side for pair in corpus.splits["train"] for side in pair)
        splitter = BPE.train(lines, text.vocab_size)
    return TextDataset(corpus, splitter, text.dropout, seed, text.dropout_epochs)


def digest_of(data: TranslationDataset) -> str:
    """Return the sha256 of all pairs, in their order."""
    if isinstance(data, CachedText):
        return data.digest
    splits = data.corpus.splits if isinstance(data, TextDataset) else data.splits
    return json_digest(splits)


def digest_of_symbols(data: TranslationDataset) -> str:
    """Return the sha256 of the vocabulary."""
    return json_digest(data.symbols)
