"""Earliest deadline first: the timer that expires next comes first, at the price of a cycle alone."""

from collections.abc import Iterator

from validator.execution.timer_phase import Candidate
from validator.policies.fifo import FifoPhase


class EarliestDeadline(FifoPhase):
    """A timer's deadline is the last height at which it may fire. Equal deadlines go by their triggers."""

    replaces = {"order"}
    passes_over = True

    def candidates(self) -> Iterator[Candidate]:
        return map(self.turn, sorted(self.eligible(), key=lambda timer: timer.expires_at))
