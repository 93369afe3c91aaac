"""Bugs in the timer phase and in the index that finds its timers: a rule of SPEC §5 to §11 that is not kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from cluster.misbehaviour.mutants.base import ALL, ONE, Area, Detection, MutantTable, RunCounter
from validator.chain.block import Event
from validator.chain.genesis import Genesis
from validator.chain.records import BID_MEMORY, KEPT_ANSWER, PUBLISHED, BidMemory, Fires, Timer
from validator.execution.bidding import BidCandidate, BiddingRound
from validator.execution.handler_context import ReadOnlyContext
from validator.execution.timer_phase import Candidate, TimerPhase
from validator.node.assembly import Parts
from validator.node.executor.executor import Executor, StorageConfig
from validator.primitives.meter import Meter
from validator.primitives.params import Parameters
from validator.primitives.types import Address, address_text
from validator.scheduler.calendar import Bucket, Calendar
from validator.scheduler.fairness import FairnessWeights
from validator.scheduler.index import SchedulerIndex
from validator.scheduler.rows import DEAD, timer_id_of_row
from validator.state.working_set import Change, World
from validator.storage.disk import Disk
from validator.transition.transition import Transition

STRANGER: Final = Address(b"\x5a" * 20)


MUTANTS = MutantTable(Area.SCHEDULER, "state_roots")


def _with_phase(phase: type[TimerPhase]) -> Parts:
    class Mutated(Transition):
        timer_phase_class = phase

    return Parts(transition=Mutated)


def _with_index(index: type[SchedulerIndex]) -> Parts:
    class Mutated(Executor):
        index_class = index

    return Parts(executor=Mutated)


# --- which timers fire, and when ------------------------------------------------------------------------------------


@MUTANTS.parts(
    "fires-again-after-restart",
    "the first timer that fires after a restart fires twice",
    Detection("restarts", ONE),
    "timers",
)
def _fires_again_after_restart(counter: RunCounter) -> Parts:
    class FiresAgain(Executor):
        def __init__(self, disk: Disk, genesis: Genesis, transition: type[Transition], storage: StorageConfig) -> None:
            super().__init__(disk, genesis, transition, storage)
            has_restarted = self.recovered_height > 0

            class AgainPhase(TimerPhase):
                def fire(self, timer: Timer, candidate: Candidate, max_cost: int) -> None:
                    """Whatever fired before the restart is not marked in memory any more."""
                    nonlocal has_restarted
                    payload = self.world.payload_of(timer)
                    TimerPhase.fire(self, timer, candidate, max_cost)
                    if has_restarted and self.world.balance(timer.fee_payer) >= max_cost:
                        has_restarted = False
                        counter.ran()
                        self.world.add_timer(timer, payload)
                        TimerPhase.fire(self, timer, candidate, max_cost)

            class Again(transition):  # type: ignore[misc,valid-type]
                timer_phase_class = AgainPhase

            self._transition = Again

    return Parts(executor=FiresAgain)


@MUTANTS.parts(
    "carried-timer-lost",
    "a carried timer stays filed under its old height and is never found again",
    Detection("crowd", ALL),
    "timers",
)
def _carried_is_lost(counter: RunCounter) -> Parts:
    class CarriedIsLost(SchedulerIndex):
        """Looks for a carried timer under its old height, where it is no more."""

        def begin(self, height: int, dropped: Sequence[Fires]) -> None:
            super().begin(height, dropped)
            flags = self.pool.rows["flags"][: self.pool.count]
            old = (self.pool.rows["trigger"][: self.pool.count] < height) & ((flags & DEAD) == 0)
            counter.runs += int(old.sum())
            self.pool.rows["gas_limit"][: self.pool.count][old] = 2**31 - 1  # no lane has room for it
            self.pool._touch(0, self.pool.count)

    return _with_index(CarriedIsLost)


@MUTANTS.parts(
    "passes-over-the-second",
    "the second-best eligible timer of each block is left waiting",
    Detection("calm", ALL),
    "timers",
)
def _passed_over(counter: RunCounter) -> Parts:
    class PassesOver(TimerPhase):
        def best_first(self) -> Iterator[Candidate]:
            for position, candidate in enumerate(TimerPhase.best_first(self)):
                if position == 1:
                    counter.ran()
                else:
                    yield candidate

    return _with_phase(PassesOver)


@MUTANTS.parts("fires-expired", "an expired timer is not destroyed and fires", Detection("deadlines", ALL), "timers")
def _fires_expired(counter: RunCounter) -> Parts:
    class FiresExpired(TimerPhase):
        def expire(self) -> None:
            """Nothing expires."""

        def _kernel_prices(self) -> npt.NDArray[np.void]:
            prices = TimerPhase._kernel_prices(self)
            rows = self.index.pool.living()
            counter.runs += int((rows["expires_at"] < self.terms.height).sum())
            prices["height"] = 0
            return prices

    return _with_phase(FiresExpired)


@MUTANTS.parts("fires-early", "a timer of the next height fires one block early", Detection("calm", ALL), "timers")
def _fires_early(counter: RunCounter) -> Parts:
    class FiresEarly(TimerPhase):
        def scan(self, candidates: Iterable[Candidate]) -> None:
            TimerPhase.scan(self, candidates)
            for row in self.index.calendar.rows_at(self.terms.height + 1)[:1]:
                timer = self.world.timer(timer_id_of_row(row))
                if timer is None:
                    continue
                candidate = Candidate(timer.timer_id, timer.gas_limit or self.terms.cap, 0)
                needed = self.max_cost(candidate)
                has_room = self.use.cycles + candidate.gas_limit <= self.terms.parameters.lane_timer_cycles
                if has_room and self.world.balance(timer.fee_payer) >= needed:
                    counter.ran()
                    self.fire(timer, candidate, needed)

    return _with_phase(FiresEarly)


@MUTANTS.parts(
    "expiry-without-budget",
    "expired timers are removed beyond the garbage collection's budget",
    Detection("deadlines", ALL),
    "timers",
)
def _gc_without_budget(counter: RunCounter) -> Parts:
    class RemovesAll(TimerPhase):
        def expire(self) -> None:
            before = len(self.destroyed)
            TimerPhase.expire(self)
            removed = {receipt.timer_id for receipt in self.destroyed[before:]}
            rows = self.index.pool.living()
            late = [timer_id_of_row(row) for row in rows[rows["expires_at"] < self.terms.height]]
            timers = [timer for each in late if each not in removed and (timer := self.world.timer(each)) is not None]
            if timers:
                counter.ran()
                events = [Event("TimerExpired", t.actor, (("timer_id", t.timer_id.hex()),)) for t in timers]
                self.destroy(timers, "expired", events)

    return _with_phase(RemovesAll)


# --- order and price ------------------------------------------------------------------------------------------------


@MUTANTS.parts(
    "ties-by-insertion",
    "ties go by age where the chain's rule is the timer id",
    Detection("crowd-by-id", ALL),
    "timers",
)
def _ties_by_insertion(counter: RunCounter) -> Parts:
    class TiesByInsertion(TimerPhase):
        def _kernel_prices(self) -> npt.NDArray[np.void]:
            prices = TimerPhase._kernel_prices(self)
            counter.runs += bool(prices["by_id"][0])
            prices["by_id"] = False
            return prices

    return _with_phase(TiesByInsertion)


@MUTANTS.parts(
    "median-of-competing",
    "fairness weighs by the median of the competing actors' fires",
    Detection("crowd", ALL, seeds=8),
    "timers",
)
def _median_of_competing(counter: RunCounter) -> Parts:
    class MedianOfCompeting(Transition):
        def timer_phase(self) -> TimerPhase:
            """Weighs by the median of those that compete in this block, not of all that fired in the window."""
            recent = self.index.parties.fires.by_actor
            rows = self.index.pool.living()
            competing = {self.index.parties.numbers.address(int(number)) for number in np.unique(rows["actor"])}
            counts = sorted(recent[actor] for actor in competing if recent.get(actor))
            middle = counts[(len(counts) - 1) // 2] + counts[len(counts) // 2] if counts else 0
            wrong = FairnessWeights(recent, max(2, middle))
            counter.runs += wrong.divisor != self.fairness.divisor
            self.fairness = wrong
            return Transition.timer_phase(self)

    return Parts(transition=MedianOfCompeting)


@MUTANTS.parts(
    "p50-not-wired", "the median tip of a block never reaches the next one", Detection("crowd", ALL), "conservation"
)
def _p50_not_wired(counter: RunCounter) -> Parts:
    class NoMedian(Transition):
        def close(self, phase: TimerPhase) -> int:
            burned = Transition.close(self, phase)
            counter.runs += self.world.globals.p50_tip != 0
            self.world.globals = self.world.globals._replace(p50_tip=0)
            return burned

    return Parts(transition=NoMedian)


@MUTANTS.parts(
    "no-fee-gate", "a timer whose maximum fee is below the lane price fires", Detection("crowd", ALL, seeds=8), "timers"
)
def _no_fee_gate(counter: RunCounter) -> Parts:
    class NoFeeGate(TimerPhase):
        def _kernel_prices(self) -> npt.NDArray[np.void]:
            prices = TimerPhase._kernel_prices(self)
            prices["price_low"], prices["price_high"] = 0, 0
            return prices

        def fire(self, timer: Timer, candidate: Candidate, max_cost: int) -> None:
            counter.runs += timer.max_fee_per_cycle is not None and timer.max_fee_per_cycle < self.prices.lane_price
            TimerPhase.fire(self, timer, candidate, max_cost)

    return _with_phase(NoFeeGate)


# --- agents ---------------------------------------------------------------------------------------------------------


@MUTANTS.parts(
    "asks-over-the-owners-storage",
    "a contract that bids for another actor is asked over that actor's storage, not its own",
    Detection("agents", ONE),
)
def _asks_over_the_owners_storage(counter: RunCounter) -> Parts:
    class AsksTheOwner(BiddingRound):
        def context_for(self, owner: Address, contract: Address, meter: Meter) -> ReadOnlyContext:
            counter.runs += owner != contract
            return BiddingRound.context_for(self, owner, owner, meter)

    return _with_bidding(AsksTheOwner)


def _with_bidding(bidding: type[BiddingRound]) -> Parts:
    class AsksOtherwise(TimerPhase):
        bidding_class = bidding

    return _with_phase(AsksOtherwise)


@MUTANTS.parts(
    "asks-out-of-order",
    "agents are asked about a block's candidates in the reverse order",
    Detection("agents", ALL),
    "timers",
)
def _asks_out_of_order(counter: RunCounter) -> Parts:
    class AsksBackwards(BiddingRound):
        def _candidates(self) -> Iterator[BidCandidate]:
            candidates = list(super()._candidates())
            counter.runs += len(candidates) > 1
            yield from reversed(candidates)

    return _with_bidding(AsksBackwards)


@MUTANTS.parts(
    "does-not-ask-the-first",
    "no agent is asked about the first candidate of a block",
    Detection("agents", ALL),
    "timers",
)
def _does_not_ask_the_first(counter: RunCounter) -> Parts:
    class LeavesTheFirstOut(BiddingRound):
        def _candidates(self) -> Iterator[BidCandidate]:
            candidates = list(super()._candidates())
            counter.runs += len(candidates) > 0
            yield from candidates[1:]

    return _with_bidding(LeavesTheFirstOut)


@MUTANTS.parts(
    "published-survives-a-revert", "what a handler published stays where it fails afterwards", Detection("agents", ONE)
)
def _published_survives_a_revert(counter: RunCounter) -> Parts:
    class KeepsPublished(World):
        def revert(self, checkpoint: int) -> None:
            """Leaves out of what is undone whatever was published."""
            kept = {key: self.get(key) for key, _ in self._journal[checkpoint:] if key[:1] == PUBLISHED}
            super().revert(checkpoint)
            for key, value in kept.items():
                counter.ran()
                self.put(key, value)

    class Mutated(Transition):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.world = KeepsPublished(self.parent)

    return Parts(transition=Mutated)


# --- settlement -----------------------------------------------------------------------------------------------------


@MUTANTS.parts(
    "refund-at-wrong-price",
    "unused cells of a fire are refunded at the price of cycles",
    Detection("calm", ALL),
    "conservation",
)
def _refund_at_wrong_price(counter: RunCounter) -> Parts:
    class RefundsAtAnotherPrice(TimerPhase):
        def settle(self, timer: Timer, candidate: Candidate, meter: Meter, max_cost: int) -> tuple[int, int]:
            """Refunds unused cells at the price of cycles."""
            unused = self.terms.parameters.max_cells_per_fire - meter.cells_used
            wrong = unused * (self.prices.basefee_cycle - self.prices.basefee_cell)
            result = TimerPhase.settle(self, timer, candidate, meter, max_cost)
            counter.runs += wrong != 0
            if wrong > 0:
                self.world.credit(timer.fee_payer, wrong)
            else:
                self.world.debit(timer.fee_payer, min(-wrong, self.world.balance(timer.fee_payer)))
            return result

    return _with_phase(RefundsAtAnotherPrice)


@MUTANTS.parts(
    "tips-to-the-actor", "a fire's tip goes to its actor, not to the proposer", Detection("calm", ALL), "conservation"
)
def _tips_to_payer(counter: RunCounter) -> Parts:
    class TipsToThePayer(TimerPhase):
        def settle(self, timer: Timer, candidate: Candidate, meter: Meter, max_cost: int) -> tuple[int, int]:
            burned, tip = TimerPhase.settle(self, timer, candidate, meter, max_cost)
            if tip:
                counter.ran()
                self.world.credit(timer.actor, tip)
                self.use.tips -= tip
            return burned, tip

    return _with_phase(TipsToThePayer)


@MUTANTS.parts(
    "burn-not-counted", "what a fire pays for the lane is not counted as burned", Detection("calm", ALL), "conservation"
)
def _burn_not_counted(counter: RunCounter) -> Parts:
    class BurnNotCounted(TimerPhase):
        def settle(self, timer: Timer, candidate: Candidate, meter: Meter, max_cost: int) -> tuple[int, int]:
            result = TimerPhase.settle(self, timer, candidate, meter, max_cost)
            lane = meter.cycles_used * self.prices.lane_price
            counter.runs += lane > 0
            self.use.burned_lane -= lane
            return result

    return _with_phase(BurnNotCounted)


@MUTANTS.parts(
    "destroys-the-solvent",
    "every third timer is destroyed for insufficient funds that its payer has",
    Detection("calm", ALL),
    "timers",
)
def _destroys_the_solvent(counter: RunCounter) -> Parts:
    class DestroysTheSolvent(TimerPhase):
        def fire_or_destroy(self, candidate: Candidate) -> bool:
            if candidate.timer_id[-1] % 3:
                return TimerPhase.fire_or_destroy(self, candidate)
            counter.ran()
            timer, needed = self._timer(candidate.timer_id), self.max_cost(candidate)
            fields = (
                ("timer_id", timer.timer_id.hex()),
                ("fee_payer", address_text(timer.fee_payer)),
                ("needed", str(needed)),
                ("balance", str(needed - 1)),
            )
            event = Event("TimerCancelledInsufficientFunds", timer.actor, fields)
            self.destroy([timer], "insufficient_funds", [event])
            return True

    return _with_phase(DestroysTheSolvent)


@MUTANTS.parts(
    "another-pays", "a fire is charged to the actor of the fire before it", Detection("calm", ALL), "conservation"
)
def _another_pays(counter: RunCounter) -> Parts:
    class AnotherPays(TimerPhase):
        def fire(self, timer: Timer, candidate: Candidate, max_cost: int) -> None:
            payer = Address(self.fires[-1].actor) if self.fires else timer.fee_payer
            if payer != timer.fee_payer and self.world.balance(payer) >= max_cost:
                counter.ran()
                timer = timer._replace(fee_payer=payer)
            TimerPhase.fire(self, timer, candidate, max_cost)

    return _with_phase(AnotherPays)


@MUTANTS.parts(
    "mints-to-a-stranger",
    "an account that nobody knows gets what a block's fires tipped, once more",
    Detection("calm", ALL),
    "conservation",
)
def _mints_to_a_stranger(counter: RunCounter) -> Parts:
    class MintsToAStranger(Transition):
        def close(self, phase: TimerPhase) -> int:
            if tips := phase.use.tips:
                counter.ran()
                self.world.credit(STRANGER, tips)
            return Transition.close(self, phase)

    return Parts(transition=MintsToAStranger)


# --- the index ------------------------------------------------------------------------------------------------------


@MUTANTS.parts(
    "row-of-another-branch",
    "the calendar takes a timer of another branch with the same number for its own",
    Detection("bad-links", ONE, seeds=12),
)
def _row_of_another_branch(counter: RunCounter) -> Parts:
    class ConfusedBucket(Bucket):
        __slots__ = ()

        def add(self, packed: bytes, sequence: int) -> None:
            """Brings a removed row with the same sequence number back as it was, whichever timer comes."""
            if self._removed is not None and sequence in self._removed:
                counter.ran()
                self._removed.remove(sequence)
            else:
                super().add(packed, sequence)

    class ConfusedCalendar(Calendar):
        def __init__(self, parameters: Parameters) -> None:
            super().__init__(parameters)
            self._buckets = defaultdict(ConfusedBucket)

    class ConfusedIndex(SchedulerIndex):
        def __init__(self, genesis: Genesis) -> None:
            super().__init__(genesis)
            self.calendar = ConfusedCalendar(genesis.parameters)

    return _with_index(ConfusedIndex)


@MUTANTS.parts(
    "fires-not-taken-back",
    "going back from a block leaves its fires in the fairness window",
    Detection("forks", ONE, seeds=12),
)
def _fires_not_taken_back(counter: RunCounter) -> Parts:
    class ForgetsToUncount(SchedulerIndex):
        def retreat(self, changes: Sequence[Change]) -> None:
            """Leaves the fires of a block that it goes back from in the fairness counts."""
            counted = [change.after for change in changes if isinstance(change.after, Fires)]
            super().retreat(changes)
            for fires in counted:
                counter.ran()
                self.parties.count(fires, +1)

    return _with_index(ForgetsToUncount)


@MUTANTS.parts(
    "bids-not-taken-back",
    "which agents were asked, did not pay and answered what is not taken back with a block",
    Detection("forks-of-bidders", ONE, seeds=12),
)
def _bids_not_taken_back(counter: RunCounter) -> Parts:
    memories: dict[Address, BidMemory] = {}

    class KeepsMemories(BiddingRound):
        """Remembers beside the state when it asked whom and who did not pay: nothing of it goes with a branch."""

        def _memory(self, actor: Address) -> BidMemory:
            right = super()._memory(actor)
            kept = memories.get(actor, right)
            counter.runs += kept != right
            return kept

        def _remember(self, actor: Address, memory: BidMemory) -> None:
            memories[actor] = memory
            super()._remember(actor, memory)

    class Mutated(TimerPhase):
        bidding_class = KeepsMemories

    return _with_phase(Mutated)


@MUTANTS.parts(
    "index-keeps-bids",
    "going back from a block leaves what agents answered in it in the index, though not in state",
    Detection("forks-of-bidders", ONE, seeds=12),
)
def _index_keeps_bids(counter: RunCounter) -> Parts:
    class KeepsBids(SchedulerIndex):
        def retreat(self, changes: Sequence[Change]) -> None:
            """Takes back all but what agents answered."""
            taken_back = [change for change in changes if change.key[:1] not in (BID_MEMORY, KEPT_ANSWER)]
            counter.runs += len(taken_back) < len(changes)
            super().retreat(taken_back)

    return _with_index(KeepsBids)


@MUTANTS.parts(
    "double-fire", "in every block the first timer that fired fires once more", Detection("calm", ONE), "timers"
)
def _double_fire(counter: RunCounter) -> Parts:
    class DoubleFirePhase(TimerPhase):
        def fire(self, timer: Timer, candidate: Candidate, max_cost: int) -> None:
            payload = self.world.payload_of(timer)
            TimerPhase.fire(self, timer, candidate, max_cost)
            if len(self.fires) == 1 and self.world.balance(timer.fee_payer) >= max_cost:
                counter.ran()
                self.world.add_timer(timer, payload)
                TimerPhase.fire(self, timer, candidate, max_cost)

    class DoubleFire(Transition):
        timer_phase_class = DoubleFirePhase

    return Parts(transition=DoubleFire)
