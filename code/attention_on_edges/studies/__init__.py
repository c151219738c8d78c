"""Questions of chapters 3, 8 to 11, 14 and 15 that took many runs or committed models: a file a study."""

from attention_on_edges.studies.alignment import pool_words, split_words
from attention_on_edges.studies.all_studies import STUDIES
from attention_on_edges.studies.heads import heads_of, importance, without_heads
from attention_on_edges.studies.measurements import MEASUREMENTS, run_measurement
from attention_on_edges.studies.recall import LONG_GRAPHS
from attention_on_edges.studies.results import Results, Study, load_study, run_study
from attention_on_edges.studies.syntax import gold_tree
