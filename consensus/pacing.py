"""Timeouts that adapt to a network that is slower than the configuration assumed.

A view *failed* for a validator if a quorum gave it up, or if the validator itself did and left it otherwise. The
configured timeouts are doubled when more views failed since the last finalization than faulty leaders can fail
(:meth:`consensus.leader.LeaderElection.longest_row`), and again with each further one, up to :data:`MAX_FACTOR` times.
They are halved after each :data:`FINAL_VIEWS` finalizations. ``docs/consensus.md`` has the argument and the bounds.
"""

from __future__ import annotations

from typing import Final

MAX_FACTOR: Final = 16
FINAL_VIEWS: Final = 16
"""Finalizations after which timeouts shrink a step: a step back too early costs as many views as it takes to grow."""


class Pacing:
    """The factor of one engine's timeouts."""

    def __init__(self) -> None:
        self.factor = 1
        self._failed = 0
        """Views since the last finalization."""
        self._final = 0
        """Finalizations since the last step."""

    def failed(self, longest_row: int) -> None:
        """A view failed, of which so many may between two finalizations, however good the network."""
        self._failed += 1
        if self._failed > longest_row and self.factor < MAX_FACTOR:
            self.factor *= 2
            self._final = 0

    def finalized(self) -> None:
        """A finalization became known."""
        self._failed = 0
        self._final += 1
        if self._final == FINAL_VIEWS:
            self._final = 0
            self.factor = max(1, self.factor // 2)
