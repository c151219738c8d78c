"""Every training run that leaves an artifact, by name."""

from attention_on_edges.data.text_dataset import TextDataset
from attention_on_edges.experiments.ablations import STUDIES, get_study
from attention_on_edges.experiments.catalogue import EXPERIMENTS, LARGE, get_experiment
from attention_on_edges.experiments.experiment import (
    Experiment,
    ModelConfig,
    Search,
    UniversalConfig,
)
from attention_on_edges.experiments.loading import digest_of, load_data
from attention_on_edges.experiments.long_context import LONG_GRAPHS, ReaderRun, TaggerRun
from attention_on_edges.experiments.measurements import (
    MEASUREMENTS,
    digest_of_weights,
    run_measurement,
)
from attention_on_edges.experiments.reduced import reduced
from attention_on_edges.experiments.runs import (
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
from attention_on_edges.experiments.scores import (
    decode,
    decoded_figures,
    figures,
    final_figures,
    translate,
)
from attention_on_edges.experiments.studies import Results, Study, load_study, run_study
from attention_on_edges.experiments.translator import Translation, Translator

__all__ = [
    "EXPERIMENTS",
    "LARGE",
    "LONG_GRAPHS",
    "MEASUREMENTS",
    "STUDIES",
    "Experiment",
    "ModelConfig",
    "ReaderRun",
    "Results",
    "Search",
    "Study",
    "TaggerRun",
    "TextDataset",
    "Translation",
    "Translator",
    "UniversalConfig",
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
