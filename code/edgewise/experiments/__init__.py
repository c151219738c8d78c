"""Every training run that leaves an artifact, by name."""

from edgewise.experiments.cached import CachedText
from edgewise.experiments.catalogue import (
    EXPERIMENTS,
    LARGE,
    Experiment,
    Size,
    Streamed,
    Text,
    Universal,
    get_experiment,
)
from edgewise.experiments.data import TextDataset
from edgewise.experiments.loading import digest_of, load_data
from edgewise.experiments.reduced import reduced
from edgewise.experiments.runs import (
    deviation,
    finish,
    load_translator,
    load_weights,
    restore,
    restore_model,
    restore_splitter,
    search_of,
    start,
    test_sources,
)
from edgewise.experiments.scores import (
    GREEDY,
    Search,
    decode,
    decoded_figures,
    figures,
    final_figures,
    translate,
)
from edgewise.experiments.translator import Translation, Translator

__all__ = [
    "EXPERIMENTS",
    "GREEDY",
    "LARGE",
    "CachedText",
    "Experiment",
    "Search",
    "Size",
    "Streamed",
    "Text",
    "TextDataset",
    "Translation",
    "Translator",
    "Universal",
    "decode",
    "decoded_figures",
    "deviation",
    "digest_of",
    "figures",
    "final_figures",
    "finish",
    "get_experiment",
    "load_data",
    "load_translator",
    "load_weights",
    "reduced",
    "restore",
    "restore_model",
    "restore_splitter",
    "search_of",
    "start",
    "test_sources",
    "translate",
]
