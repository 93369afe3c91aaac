"""``consensus``: the protocol and its timeouts."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from cluster.scenario.sections.base import Milliseconds, Section
from consensus.interface import VotingConfig

DEFAULTS: Final = VotingConfig()


class ConsensusSection(Section):
    """The protocol and its timeouts."""

    protocol: Literal["simplex", "hotstuff"] = "simplex"
    """The consensus protocol."""
    leader_election: Literal["round-robin", "random"] = "round-robin"
    """The leader of a view: the committee's members in turn, or by a hash of chain and view."""
    signatures: Literal["ed25519", "keyed-hash"] = "ed25519"
    """The signatures of votes; ``keyed-hash`` is a fast substitute for simulations only."""
    block_interval_ms: Milliseconds = 250
    """Minimum time between two blocks: a leader waits this long after it entered its view before it proposes."""
    leader_timeout_ms: Annotated[int, Field(ge=1, le=3_600_000)] = DEFAULTS.leader_timeout_ms
    """How long a validator waits for the leader's proposal before it votes to nullify the view."""
    advance_timeout_ms: Annotated[int, Field(ge=1, le=3_600_000)] = DEFAULTS.advance_timeout_ms
    """How long it waits for the view to end before it votes to nullify it."""
    rebroadcast_ms: Annotated[int, Field(ge=1, le=3_600_000)] = DEFAULTS.rebroadcast_ms
    """Shortest interval at which it repeats its last messages in one view; it grows with the block time."""

    @property
    def view_change_ms(self) -> int:
        """The maximum time from the start of a view that fails to the proposal of the next view."""
        return self.advance_timeout_ms + self.block_interval_ms

    @model_validator(mode="after")
    def _interval_below_timeout(self) -> ConsensusSection:
        if self.block_interval_ms >= self.leader_timeout_ms:
            raise ValueError(
                f"block_interval_ms: {self.block_interval_ms} is not below leader_timeout_ms ({self.leader_timeout_ms})"
            )
        if self.leader_timeout_ms > self.advance_timeout_ms:
            raise ValueError(
                f"leader_timeout_ms: {self.leader_timeout_ms} is above advance_timeout_ms ({self.advance_timeout_ms})"
            )
        return self
