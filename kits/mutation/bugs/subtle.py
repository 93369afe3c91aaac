"""Bugs that need a rare combination: what is wrong with a unit of value is right in nearly every block.

Any check would see the bug at once, if a run got there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kits.mutation.bugs.table import ALL, Area, Detection, MutantTable, Mutated
from validator.chain.genesis import Genesis
from validator.chain.records import Fires, Timer
from validator.execution.timer_phase import Candidate, TimerPhase
from validator.node.executor.executor import Executor, StorageConfig
from validator.policies.registry import phases_with
from validator.primitives.meter import Meter
from validator.scheduler.index import SchedulerIndex
from validator.state.working_set import Change
from validator.storage.disk import Disk
from validator.transition.transition import Transition

MUTANTS = MutantTable(Area.SCHEDULER, "conservation")
MANY: Final = 12
"""The number of seeds to try for bugs that few runs provoke."""


class _OverpaysFires(Mutated, TimerPhase):
    """A timer phase in which a payer gets one unit too much back after some fires."""

    def is_wrong(self, timer: Timer) -> bool:
        """Whether the bug shows with this fire. The timer's own fire is settled, and not in ``fires`` yet."""
        raise NotImplementedError

    @property
    def begins_epoch(self) -> bool:
        return self.terms.height % self.terms.parameters.epoch_length == 0

    def is_carried(self, timer: Timer) -> bool:
        return timer.trigger_height < self.terms.height

    def settle(self, timer: Timer, candidate: Candidate, meter: Meter, max_cost: int) -> tuple[int, int]:
        result = super().settle(timer, candidate, meter, max_cost)
        if self.is_wrong(timer):
            self.counter.ran()
            self.world.credit(timer.fee_payer, 1)
        return result


@MUTANTS.part("overpays-across-epochs", Detection("crowd", ALL))
class OverpaysAcrossEpochs(_OverpaysFires):
    """a timer that was carried into a new epoch and fires in its first block gets one unit too much back"""

    def is_wrong(self, timer: Timer) -> bool:
        return self.begins_epoch and self.is_carried(timer)


@MUTANTS.part("overpays-at-expiry", Detection("deadlines", ALL))
class OverpaysAtExpiry(_OverpaysFires):
    """a timer that fires in the last block before it expires gets one unit too much back"""

    def is_wrong(self, timer: Timer) -> bool:
        return timer.expires_at == self.terms.height


@MUTANTS.part("overpays-long-payloads", Detection("long-payloads", ALL, seeds=MANY))
class OverpaysLongPayloads(_OverpaysFires):
    """a timer with a long payload that fires in the first block of an epoch gets one unit too much back"""

    def is_wrong(self, timer: Timer) -> bool:
        return timer.payload is None and self.begins_epoch


@MUTANTS.part("overpays-after-removals", Detection("insolvent", ALL, seeds=MANY))
class OverpaysAfterRemovals(_OverpaysFires):
    """a fire after a timer expired and another could not be paid, in the same block, gets one unit too much back"""

    def is_wrong(self, timer: Timer) -> bool:
        return {"expired", "insufficient_funds"} <= {receipt.reason for receipt in self.destroyed}


@MUTANTS.part("overpays-the-last", Detection("crowd", ALL, seeds=MANY))
class OverpaysTheLast(_OverpaysFires):
    """the fire that leaves the lane no room for another gets one unit too much back, in the first block of an epoch"""

    def is_wrong(self, timer: Timer) -> bool:
        return self.begins_epoch and self.is_full


@MUTANTS.part("overpays-beside-the-insolvent", Detection("insolvent", ALL, seeds=MANY))
class OverpaysBesideTheInsolvent(_OverpaysFires):
    """a carried timer that fires in a block in which another could not be paid gets one unit too much back"""

    def is_wrong(self, timer: Timer) -> bool:
        reasons = [receipt.reason for receipt in self.destroyed]
        return self.is_carried(timer) and "insufficient_funds" in reasons


@MUTANTS.part("overpays-after-full-removals", Detection("deadlines", ALL, seeds=MANY))
class OverpaysAfterFullRemovals(_OverpaysFires):
    """a fire in an epoch's first block, if as many timers expired in it as may, gets one unit too much back"""

    def is_wrong(self, timer: Timer) -> bool:
        p = self.terms.parameters
        most = p.timer_gc_cycles // p.gc_cycles_per_removal - p.scan_limit
        return self.begins_epoch and sum(receipt.reason == "expired" for receipt in self.destroyed) >= most


@MUTANTS.part("overpays-full-cells", Detection("full-cells", ALL, seeds=MANY))
class OverpaysFullCells(_OverpaysFires):
    """the carried timer that uses up the lane's cells gets one unit too much back"""

    def is_wrong(self, timer: Timer) -> bool:
        return self.use.cells >= self.terms.parameters.lane_timer_cells and self.is_carried(timer)


@MUTANTS.part("overpays-after-failures", Detection("full-cells", ALL, seeds=MANY))
class OverpaysAfterFailures(_OverpaysFires):
    """a fire after two others that failed in the same block gets one unit too much back"""

    def is_wrong(self, timer: Timer) -> bool:
        return [fire.ok for fire in self.fires[-2:]] == [False, False]


@MUTANTS.part("second-block-not-taken-back", Detection("deep-forks", ALL, seeds=MANY), "state_roots")
class ForgetsTheSecond(Mutated, SchedulerIndex):
    """going back from two blocks at once leaves the fires of the second in the fairness window"""

    def __init__(self, genesis: Genesis) -> None:
        super().__init__(genesis)
        self._went_back = False

    def advance(self, changes: Sequence[Change]) -> None:
        self._went_back = False
        super().advance(changes)

    def retreat(self, changes: Sequence[Change]) -> None:
        counted = [change.after for change in changes if isinstance(change.after, Fires)]
        super().retreat(changes)
        for fires in counted if self._went_back else ():
            self.counter.ran()
            self.parties.count(fires, +1)
        self._went_back = True


class _OverpaysOnce(Mutated, Executor):
    """An executor that, after some starts, gives the payer of one fire one unit too much back."""

    def begins_wrong(self) -> bool:
        """Whether the bug shows after this start."""
        raise NotImplementedError

    def is_wrong(self, timer: Timer, height: int) -> bool:
        """Whether the bug shows with this fire, the first such one after the start."""
        raise NotImplementedError

    def __init__(self, disk: Disk, genesis: Genesis, transition: type[Transition], storage: StorageConfig) -> None:
        super().__init__(disk, genesis, transition, storage)
        waits, is_wrong, counter = self.begins_wrong(), self.is_wrong, self.counter

        class OncePhase(TimerPhase):
            def settle(self, timer: Timer, candidate: Candidate, meter: Meter, max_cost: int) -> tuple[int, int]:
                nonlocal waits
                result = super().settle(timer, candidate, meter, max_cost)
                if waits and is_wrong(timer, self.terms.height):
                    waits = False
                    counter.ran()
                    self.world.credit(timer.fee_payer, 1)
                return result

        class Once(transition):  # type: ignore[misc,valid-type]
            phases = phases_with(OncePhase, transition.phases)

        self._transition = Once


@MUTANTS.part("overpays-after-restart-at-border", Detection("crowded-restarts", ALL, seeds=MANY), "state_roots")
class OverpaysAfterRestart(_OverpaysOnce):
    """after a restart at the last block of an epoch, the first carried timer that fires gets one unit too much back"""

    def begins_wrong(self) -> bool:
        height, length = self.recovered_height, self._genesis.parameters.epoch_length
        return height > 0 and height % length == length - 1

    def is_wrong(self, timer: Timer, height: int) -> bool:
        return timer.trigger_height < height
