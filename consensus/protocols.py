"""The protocols by their names in configurations."""

from __future__ import annotations

from typing import Final

from consensus.hotstuff import HotStuff
from consensus.simplex import Simplex

EngineType = type[Simplex] | type[HotStuff]
"""The class of a consensus engine. All are constructed with the arguments of :class:`consensus.voting.VotingEngine`."""

PROTOCOLS: Final[dict[str, EngineType]] = {"simplex": Simplex, "hotstuff": HotStuff}
