"""The policy ``fifo`` (SPEC §13): timers fire in the order of their triggers, at the price of a cycle alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from validator.chain.records import Timer
from validator.execution.lane_rules import Bids, LaneRules
from validator.execution.timer_phase import Candidate, TimerPhase
from validator.primitives.params import Parameters


class FifoRules(LaneRules):
    """The rules of ``fifo``, which has no lane fee, agents or fairness: fee fields are stored but ignored."""

    __slots__ = ()
    bids: ClassVar[Bids] = Bids.IGNORED
    timers_first: ClassVar[bool] = False

    def fire_cap(self, parameters: Parameters) -> int:
        return parameters.max_cycles_per_fire

    def next_p50_tip(self, fires: Sequence[tuple[int, int]], parameters: Parameters) -> int:
        return 0


class FifoPhase(TimerPhase):
    """The timer phase of ``fifo``: timers fire in the order of triggers. The first that does not fit ends the phase."""

    __slots__ = ()
    rules: ClassVar[LaneRules] = FifoRules()
    asks_agents: ClassVar[bool] = False
    passes_over: ClassVar[bool] = False

    def candidates(self) -> Iterator[Candidate]:
        positions = self.index.pool.positions(self.terms.height, self.terms.cap)
        return (self._candidate(position, 0) for position in positions)

    def is_priced_out(self, timer: Timer) -> bool:
        return False

    def count_fires(self) -> None:
        """Fires do not count for anything."""
