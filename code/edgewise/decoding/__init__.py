"""Chapters 7 and 8: from a source to a target, token by token.

In training the decoder reads the true tokens. Here it reads its own. Each step adds one receiver a sentence
and the edges into it, from its own past and from its source; keys and values of the past stay as they were,
so nothing else is computed again.
"""

from edgewise.decoding.beam import beam_search
from edgewise.decoding.continuation import AdaptiveContinuation, Continuation, continuation_of
from edgewise.decoding.greedy import greedy
from edgewise.decoding.hypothesis import Hypothesis

__all__ = [
    "AdaptiveContinuation",
    "Continuation",
    "Hypothesis",
    "beam_search",
    "continuation_of",
    "greedy",
]
