"""The protocols that there are, by the name that configurations use."""

from __future__ import annotations

from typing import Final

from consensus.hotstuff import HotStuff
from consensus.simplex import Simplex
from consensus.voting import VotingEngine

EngineType = type[Simplex] | type[HotStuff]
"""Every engine is made with the same arguments (:class:`consensus.simplex.Simplex`)."""

PROTOCOLS: Final[dict[str, EngineType]] = {"simplex": Simplex, "hotstuff": HotStuff}

__all__ = ["PROTOCOLS", "EngineType", "VotingEngine"]
