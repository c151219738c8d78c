"""Chapters 7 and 8: from a source to a target, token by token.

Training is teacher-forced; here the decoder is free-running. Each step adds one receiver per sentence and its
in-edges, from the target prefix and from the source; keys and values of the prefix are cached, so nothing is
recomputed.
"""

from attention_on_edges.decoding.beam import Hypothesis, beam_search, greedy
from attention_on_edges.decoding.causal import continue_texts
from attention_on_edges.decoding.continuation import AdaptiveContinuation, Continuation, continuation_of

__all__ = [
    "AdaptiveContinuation",
    "Continuation",
    "Hypothesis",
    "beam_search",
    "continuation_of",
    "continue_texts",
    "greedy",
]
