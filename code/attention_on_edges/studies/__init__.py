"""Questions of chapters 3, 8 to 11, 14 and 15 that took many runs or trained models: a file a study.

Benchmarks are among them.

The command line and the pages of chapters 9, 10, 14 and of benchmarks import this, and nothing else does.
"""

from attention_on_edges.studies.alignment import pool_words, split_words
from attention_on_edges.studies.all_studies import STUDIES
from attention_on_edges.studies.heads import heads_of, importance, without_heads
from attention_on_edges.studies.measurements import MEASUREMENTS, run_measurement
from attention_on_edges.studies.recall import LONG_GRAPHS
from attention_on_edges.studies.syntax import gold_tree
