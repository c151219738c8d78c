"""Chapter 12: distributed training, and corpora larger than memory."""

from edgewise.distributed.cache import CacheError, TokenCache, cached, write_cache
from edgewise.distributed.joining import joined, launched, leads_machine
from edgewise.distributed.team import DisagreementError, LostError, Team

__all__ = [
    "CacheError",
    "DisagreementError",
    "LostError",
    "Team",
    "TokenCache",
    "cached",
    "joined",
    "launched",
    "leads_machine",
    "write_cache",
]
