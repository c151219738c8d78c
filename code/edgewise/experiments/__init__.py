"""Every training run that leaves an artifact, by name."""

from edgewise.experiments.catalogue import EXPERIMENTS, get_experiment
from edgewise.experiments.data import TextDataset, digest_of, load_data
from edgewise.experiments.experiment import Experiment, Size, Text, Universal
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
    "Experiment",
    "Search",
    "Size",
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
    "restore",
    "restore_model",
    "restore_splitter",
    "search_of",
    "start",
    "test_sources",
    "translate",
]
