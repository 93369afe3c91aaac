"""Bugs in the lanes of a block: one has no limit, takes from another, or its price does not follow its use."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from cluster.misbehaviour.mutants.base import ALL, Area, Detection, MutantTable, Mutated
from validator.chain.transactions import Transaction
from validator.execution.timer_phase import Candidate, TimerPhase
from validator.transition.transition import DeferredLane, Transition

MUTANTS = MutantTable(Area.SCHEDULER, "bounds")


@MUTANTS.part("user-lane-without-end", Detection("full-lanes", ALL))
class UserLaneWithoutEnd(Mutated, Transition):
    """a block takes transactions beyond the limits of the user lane"""

    def _fits_its_lane(self, transaction: Transaction) -> bool:
        self.counter.runs += not Transition._fits_its_lane(self, transaction)
        return True


@MUTANTS.part("deferred-without-end", Detection("full-lanes", ALL), "chain")
class DeferredWithoutEnd(Mutated, Transition):
    """all messages that wait run in a block, whatever the deferred lane has left"""

    def run_messages(self) -> None:
        lane = self.deferred_lane
        self.deferred_lane = DeferredLane(2**62, lane.used)
        Transition.run_messages(self)
        self.counter.runs += self.deferred_lane.used > lane.limit


@MUTANTS.part("lane-price-stands-still", Detection("crowd", ALL), "conservation")
class PriceStandsStill(Mutated, Transition):
    """the lane basefee does not rise, however full the lane is"""

    def close(self, phase: TimerPhase) -> int:
        before = self.world.globals.basefee_lane_timer
        burned = Transition.close(self, phase)
        if self.world.globals.basefee_lane_timer > before:
            self.counter.ran()
            self.world.globals = replace(self.world.globals, basefee_lane_timer=before)
        return burned


@MUTANTS.part("fires-take-the-user-lane", Detection("full-lanes", ALL), "promises")
class FiresTakeTheUserLane(Mutated, Transition):
    """timers that are due are reserved room in the user lane"""

    def _fits_its_lane(self, transaction: Transaction) -> bool:
        reserved = self.index.pool.live * self.terms.parameters.min_gas_limit_per_timer
        p, fits = self.terms.parameters, Transition._fits_its_lane(self, transaction)
        left = p.lane_user_cycles - self.user_lane.cycles - reserved
        self.counter.runs += fits and transaction.gas_limit > left
        return fits and transaction.gas_limit <= left


@MUTANTS.part("removals-take-the-lane", Detection("deadlines", ALL), "timers")
class RemovalsTakeTheLane(Mutated, TimerPhase):
    """no timer fires in a block whose budget for removals is half used up"""

    def scan(self, candidates: Iterable[Candidate]) -> None:
        if 2 * self.use.gc_cycles >= self.terms.parameters.timer_gc_cycles:
            self.counter.ran()
            return
        super().scan(candidates)
