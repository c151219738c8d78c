"""Chapter 12: training in several processes, and corpora larger than memory."""

from edgewise.distributed.joining import joined, launched, leads_machine
from edgewise.distributed.team import DisagreementError, LostError, Team

__all__ = ["DisagreementError", "LostError", "Team", "joined", "launched", "leads_machine"]
