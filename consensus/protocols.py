"""The protocols that there are, by the name that configurations use."""

from __future__ import annotations

from typing import Final

from consensus.hotstuff import HotStuff
from consensus.simplex import Simplex

EngineType = type[Simplex] | type[HotStuff]
"""Every engine is made with the same arguments (:class:`consensus.voting.VotingEngine`)."""

PROTOCOLS: Final[dict[str, EngineType]] = {"simplex": Simplex, "hotstuff": HotStuff}
