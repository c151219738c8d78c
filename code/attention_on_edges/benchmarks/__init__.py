"""Every table of speed and memory: interleaved runs, medians, ratios."""

from attention_on_edges.benchmarks.decoding import (
    CacheRow,
    DecodingRow,
    bench_cache,
    bench_decoding,
    bench_lengths,
    format_cache,
    format_decoding,
)
from attention_on_edges.benchmarks.depth import DepthRow, bench_depth, format_depth
from attention_on_edges.benchmarks.engines import (
    FLEX,
    LARGE,
    VARLEN,
    WORKLOADS,
    EngineRow,
    PaddedAttention,
    Workload,
    bench_engines,
    format_engines,
)
from attention_on_edges.benchmarks.language_models import (
    ARCHITECTURES,
    TRAINED,
    CausalRow,
    Equality,
    bench_causal,
    compare_with_transformers,
    format_causal,
    transformers_available,
)
from attention_on_edges.benchmarks.long_context import CONTESTANTS, LENGTHS, bench_long
from attention_on_edges.benchmarks.memory import MemoryRow, bench_memory, format_memory
from attention_on_edges.benchmarks.pyg import PYG_WORKLOADS, PygRow, bench_pyg, format_pyg
from attention_on_edges.benchmarks.scaling import LongRow, exponents, format_long
from attention_on_edges.benchmarks.timing import interleave
from attention_on_edges.benchmarks.training import (
    TRAININGS,
    ProfileRow,
    TrainingRow,
    bench_training,
    format_profile,
    format_training,
    profile_training,
)

__all__ = [
    "ARCHITECTURES",
    "CONTESTANTS",
    "FLEX",
    "LARGE",
    "LENGTHS",
    "PYG_WORKLOADS",
    "TRAINED",
    "TRAININGS",
    "VARLEN",
    "WORKLOADS",
    "CacheRow",
    "CausalRow",
    "DecodingRow",
    "DepthRow",
    "EngineRow",
    "Equality",
    "LongRow",
    "MemoryRow",
    "PaddedAttention",
    "ProfileRow",
    "PygRow",
    "TrainingRow",
    "Workload",
    "bench_cache",
    "bench_causal",
    "bench_decoding",
    "bench_depth",
    "bench_engines",
    "bench_lengths",
    "bench_long",
    "bench_memory",
    "bench_pyg",
    "bench_training",
    "compare_with_transformers",
    "exponents",
    "format_cache",
    "format_causal",
    "format_decoding",
    "format_depth",
    "format_engines",
    "format_long",
    "format_memory",
    "format_profile",
    "format_pyg",
    "format_training",
    "interleave",
    "profile_training",
    "transformers_available",
]
