"""Training runs by name, from a configuration to an artifact, and what an artifact can do."""

from attention_on_edges.runs.experiment import Experiment, ModelConfig, Search, UniversalConfig
from attention_on_edges.runs.loading import digest_of, load_data
from attention_on_edges.runs.named_experiments import EXPERIMENTS, LARGE, reduced
from attention_on_edges.runs.running import (
    finish,
    load_translator,
    load_weights,
    restore,
    restore_model,
    search_of,
    start,
)
from attention_on_edges.runs.scores import decode, decoded_figures, figures, final_figures, translate
from attention_on_edges.runs.translator import Translation, Translator
