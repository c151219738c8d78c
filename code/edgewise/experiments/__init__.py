"""Every training run that leaves an artifact, by name."""

from edgewise.experiments.cached import CachedText
from edgewise.experiments.catalogue import EXPERIMENTS, LARGE, get_experiment
from edgewise.experiments.data import TextDataset
from edgewise.experiments.experiment import Experiment, Mixing, Size, Sparse, Streamed, Text, Universal
from edgewise.experiments.loading import digest_of, load_data
from edgewise.experiments.measured import MEASUREMENTS, Measurement, digest_of_weights, run_measurement
from edgewise.experiments.questions import STUDIES, get_study
from edgewise.experiments.readings import BUCKETS, LONG_GRAPHS, Reading, Tagging
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
from edgewise.experiments.studies import Results, Study, load_study, run_study
from edgewise.experiments.translator import Translation, Translator

__all__ = [
    "BUCKETS",
    "EXPERIMENTS",
    "GREEDY",
    "LARGE",
    "LONG_GRAPHS",
    "MEASUREMENTS",
    "STUDIES",
    "CachedText",
    "Experiment",
    "Measurement",
    "Mixing",
    "Reading",
    "Results",
    "Search",
    "Size",
    "Sparse",
    "Streamed",
    "Study",
    "Tagging",
    "Text",
    "TextDataset",
    "Translation",
    "Translator",
    "Universal",
    "decode",
    "decoded_figures",
    "deviation",
    "digest_of",
    "digest_of_weights",
    "figures",
    "final_figures",
    "finish",
    "get_experiment",
    "get_study",
    "load_data",
    "load_study",
    "load_translator",
    "load_weights",
    "reduced",
    "restore",
    "restore_model",
    "restore_splitter",
    "run_measurement",
    "run_study",
    "search_of",
    "start",
    "test_sources",
    "translate",
]
