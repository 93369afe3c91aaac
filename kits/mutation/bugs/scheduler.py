"""Bugs in the timer phase, in the index that finds its timers, and in the lanes of a block: a broken rule of SPEC §5
to §11."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from cluster.misbehaviour.planted import RunCounter
from kits.mutation.bugs.table import ALL, ONE, Area, Detection, MutantTable, Mutated, parts_with
from validator.chain.block import Event
from validator.chain.genesis import Genesis
from validator.chain.records import BID_MEMORY, KEPT_ANSWER, PUBLISHED, BidMemory, Fires, Timer, timer_payload_key
from validator.chain.transactions import Transaction
from validator.execution.bidding import BidCandidate, BiddingRound
from validator.execution.handler_context import ReadOnlyContext
from validator.execution.timer_phase import Candidate, TimerPhase
from validator.node.assembly import Parts
from validator.node.executor.executor import Executor, StorageConfig
from validator.policies.auction import AuctionPhase
from validator.policies.registry import phases_with
from validator.primitives.meter import Meter
from validator.primitives.params import Parameters
from validator.primitives.types import Address, address_text
from validator.scheduler.calendar import Bucket, Calendar
from validator.scheduler.fairness import FairnessWeights
from validator.scheduler.index import SchedulerIndex
from validator.scheduler.rows import DEAD, timer_id_of_row
from validator.state.working_set import Change, World
from validator.storage.disk import Disk
from validator.transition.transition import DeferredLane, Transition

STRANGER: Final = Address(b"\x5a" * 20)


MUTANTS = MutantTable(Area.SCHEDULER, "state_roots")


# --- which timers fire, and when ------------------------------------------------------------------------------------


@MUTANTS.part("fires-again-after-restart", Detection("restarts", ONE), "timers")
class FiresAgain(Mutated, Executor):
    """the first timer that fires after a restart fires twice"""

    def __init__(self, disk: Disk, genesis: Genesis, transition: type[Transition], storage: StorageConfig) -> None:
        super().__init__(disk, genesis, transition, storage)
        has_restarted, counter = self.recovered_height > 0, self.counter

        class AgainPhase(TimerPhase):
            def fire(self, timer: Timer, candidate: Candidate, max_cost: int) -> None:
                """A timer that fired before the restart is no longer marked in memory."""
                nonlocal has_restarted
                payload = self.world.payload_of(timer)
                super().fire(timer, candidate, max_cost)
                if has_restarted and self.world.balance(timer.fee_payer) >= max_cost:
                    has_restarted = False
                    counter.ran()
                    self.world.add_timer(timer, payload)
                    super().fire(timer, candidate, max_cost)

        class Again(transition):  # type: ignore[misc,valid-type]
            phases = phases_with(AgainPhase, transition.phases)

        self._transition = Again


@MUTANTS.part("carried-timer-lost", Detection("crowd", ALL), "timers")
class CarriedIsLost(Mutated, SchedulerIndex):
    """a carried timer stays filed under its old height and is never found again"""

    def begin(self, height: int, dropped: Sequence[Fires]) -> None:
        super().begin(height, dropped)
        flags = self.pool.rows["flags"][: self.pool.count]
        old = (self.pool.rows["trigger"][: self.pool.count] < height) & ((flags & DEAD) == 0)
        self.counter.runs += int(old.sum())
        self.pool.rows["gas_limit"][: self.pool.count][old] = 2**31 - 1  # no lane has room for it
        self.pool._touch(0, self.pool.count)


@MUTANTS.part("passes-over-the-second", Detection("calm", ALL), "timers")
class PassesOver(Mutated, AuctionPhase):
    """the second-best eligible timer of each block is left waiting"""

    def candidates(self) -> Iterator[Candidate]:
        for position, candidate in enumerate(super().candidates()):
            if position == 1:
                self.counter.ran()
            else:
                yield candidate


@MUTANTS.part("leaves-payloads", Detection("long-payloads", ALL), "safety", "state")
class LeavesPayloads(Mutated, TimerPhase):
    """the long payload of a timer that fired stays in state"""

    def fire(self, timer: Timer, candidate: Candidate, max_cost: int) -> None:
        payload = self.world.payload_of(timer)
        super().fire(timer, candidate, max_cost)
        if timer.payload is None:
            self.counter.ran()
            self.world.put(timer_payload_key(timer.timer_id), payload)


@MUTANTS.part("fires-expired", Detection("deadlines", ALL), "timers")
class FiresExpired(Mutated, AuctionPhase):
    """an expired timer is not destroyed and fires"""

    def expire(self) -> None:
        """Nothing expires."""

    def _kernel_prices(self) -> npt.NDArray[np.void]:
        prices = super()._kernel_prices()
        rows = self.index.pool.living()
        self.counter.runs += int((rows["expires_at"] < self.terms.height).sum())
        prices["height"] = 0
        return prices


@MUTANTS.part("fires-early", Detection("calm", ALL), "timers")
class FiresEarly(Mutated, TimerPhase):
    """a timer of the next height fires one block early"""

    def scan(self, candidates: Iterable[Candidate]) -> None:
        super().scan(candidates)
        for row in self.index.calendar.rows_at(self.terms.height + 1)[:1]:
            timer = self.world.timer(timer_id_of_row(row))
            if timer is None:
                continue
            candidate = Candidate(timer.timer_id, timer.gas_limit or self.terms.cap, 0)
            needed = self.max_cost(candidate)
            has_room = self.use.cycles + candidate.gas_limit <= self.terms.parameters.lane_timer_cycles
            if has_room and self.world.balance(timer.fee_payer) >= needed:
                self.counter.ran()
                self.fire(timer, candidate, needed)


@MUTANTS.part("expiry-without-budget", Detection("deadlines", ALL), "timers")
class RemovesAll(Mutated, TimerPhase):
    """expired timers are removed beyond the garbage collection's budget"""

    def expire(self) -> None:
        before = len(self.destroyed)
        super().expire()
        removed = {receipt.timer_id for receipt in self.destroyed[before:]}
        rows = self.index.pool.living()
        late = [timer_id_of_row(row) for row in rows[rows["expires_at"] < self.terms.height]]
        timers = [timer for each in late if each not in removed and (timer := self.world.timer(each)) is not None]
        if timers:
            self.counter.ran()
            events = [Event("TimerExpired", t.actor, (("timer_id", t.timer_id.hex()),)) for t in timers]
            self.destroy(timers, "expired", events)


# --- order and price ------------------------------------------------------------------------------------------------


@MUTANTS.part("ties-by-insertion", Detection("crowd-by-id", ALL), "timers")
class TiesByInsertion(Mutated, AuctionPhase):
    """ties go by age where the chain's rule is the timer id"""

    def _kernel_prices(self) -> npt.NDArray[np.void]:
        prices = super()._kernel_prices()
        self.counter.runs += bool(prices["by_id"][0])
        prices["by_id"] = False
        return prices


@MUTANTS.part("median-of-competing", Detection("crowd", ALL, seeds=8), "timers")
class MedianOfCompeting(Mutated, Transition):
    """fairness weighs by the median of the competing actors' fires"""

    def timer_phase(self) -> TimerPhase:
        recent = self.index.parties.fires.by_account
        rows = self.index.pool.living()
        competing = {self.index.parties.numbers.address(int(number)) for number in np.unique(rows["actor"])}
        counts = sorted(recent[actor] for actor in competing if recent.get(actor))
        middle = counts[(len(counts) - 1) // 2] + counts[len(counts) // 2] if counts else 0
        wrong = FairnessWeights(recent, max(2, middle))
        self.counter.runs += wrong.divisor != self.fairness.divisor
        self.fairness = wrong
        return Transition.timer_phase(self)


@MUTANTS.part("p50-not-wired", Detection("crowd", ALL), "conservation")
class NoMedian(Mutated, Transition):
    """the median tip of a block never reaches the next one"""

    def close(self, phase: TimerPhase) -> int:
        burned = Transition.close(self, phase)
        self.counter.runs += self.world.globals.p50_tip != 0
        self.world.globals = replace(self.world.globals, p50_tip=0)
        return burned


@MUTANTS.part("no-fee-gate", Detection("crowd", ALL, seeds=8), "timers")
class NoFeeGate(Mutated, AuctionPhase):
    """a timer whose maximum fee is below the lane price fires"""

    def _kernel_prices(self) -> npt.NDArray[np.void]:
        prices = super()._kernel_prices()
        prices["price_low"], prices["price_high"] = 0, 0
        return prices

    def fire(self, timer: Timer, candidate: Candidate, max_cost: int) -> None:
        self.counter.runs += timer.max_fee_per_cycle is not None and timer.max_fee_per_cycle < self.terms.fee_floor
        super().fire(timer, candidate, max_cost)


# --- agents ---------------------------------------------------------------------------------------------------------


@MUTANTS.part("asks-over-the-owners-storage", Detection("agents", ONE))
class AsksTheOwner(Mutated, BiddingRound):
    """a contract that bids for another actor is asked over that actor's storage, not its own"""

    def context_for(self, owner: Address, contract: Address, meter: Meter) -> ReadOnlyContext:
        self.counter.runs += owner != contract
        return BiddingRound.context_for(self, owner, owner, meter)


@MUTANTS.part("asks-out-of-order", Detection("agents", ALL), "timers")
class AsksBackwards(Mutated, BiddingRound):
    """agents are asked about a block's candidates in the reverse order"""

    def _candidates(self) -> Iterator[BidCandidate]:
        candidates = list(super()._candidates())
        self.counter.runs += len(candidates) > 1
        yield from reversed(candidates)


@MUTANTS.part("does-not-ask-the-first", Detection("agents", ALL), "timers")
class LeavesTheFirstOut(Mutated, BiddingRound):
    """no agent is asked about the first candidate of a block"""

    def _candidates(self) -> Iterator[BidCandidate]:
        candidates = list(super()._candidates())
        self.counter.runs += len(candidates) > 0
        yield from candidates[1:]


@MUTANTS.part("queries-not-charged", Detection("agents", ALL), "conservation")
class ChargesNoQuery(Mutated, BiddingRound):
    """a query of an agent costs its owner nothing"""

    def query(self, candidate: BidCandidate) -> None:
        before = self.world.balance(candidate.actor)
        super().query(candidate)
        paid = before - self.world.balance(candidate.actor)
        self.counter.runs += paid > 0
        self.world.credit(candidate.actor, paid)


@MUTANTS.parts("published-survives-a-revert", Detection("agents", ONE))
def _published_survives_a_revert(counter: RunCounter) -> Parts:
    """what a handler published stays where it fails afterwards"""

    class KeepsPublished(World):
        def revert(self, checkpoint: int) -> None:
            """Does not undo what was published."""
            kept = {key: self.get(key) for key, _ in self._journal[checkpoint:] if key[:1] == PUBLISHED}
            super().revert(checkpoint)
            for key, value in kept.items():
                counter.ran()
                self.put(key, value)

    class WithSuchAWorld(Transition):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.world = KeepsPublished(self.parent)

    return Parts(transition=WithSuchAWorld)


# --- settlement -----------------------------------------------------------------------------------------------------


@MUTANTS.part("refund-at-wrong-price", Detection("calm", ALL), "conservation")
class RefundsAtAnotherPrice(Mutated, TimerPhase):
    """unused cells of a fire are refunded at the price of cycles"""

    def settle(self, timer: Timer, candidate: Candidate, meter: Meter, max_cost: int) -> tuple[int, int]:
        unused = self.terms.parameters.max_cells_per_fire - meter.cells_used
        wrong = unused * (self.prices.basefee_cycle - self.prices.basefee_cell)
        result = super().settle(timer, candidate, meter, max_cost)
        self.counter.runs += wrong != 0
        if wrong > 0:
            self.world.credit(timer.fee_payer, wrong)
        else:
            self.world.debit(timer.fee_payer, min(-wrong, self.world.balance(timer.fee_payer)))
        return result


@MUTANTS.part("tips-to-the-actor", Detection("calm", ALL), "conservation")
class TipsToThePayer(Mutated, TimerPhase):
    """a fire's tip goes to its actor, not to the proposer"""

    def settle(self, timer: Timer, candidate: Candidate, meter: Meter, max_cost: int) -> tuple[int, int]:
        burned, tip = super().settle(timer, candidate, meter, max_cost)
        if tip:
            self.counter.ran()
            self.world.credit(timer.actor, tip)
            self.use.tips -= tip
        return burned, tip


@MUTANTS.part("burn-not-counted", Detection("calm", ALL), "conservation")
class BurnNotCounted(Mutated, TimerPhase):
    """what a fire pays for the lane is not counted as burned"""

    def settle(self, timer: Timer, candidate: Candidate, meter: Meter, max_cost: int) -> tuple[int, int]:
        result = super().settle(timer, candidate, meter, max_cost)
        lane = meter.cycles_used * self.prices.lane_price
        self.counter.runs += lane > 0
        self.use.burned_lane -= lane
        return result


@MUTANTS.part("destroys-the-solvent", Detection("calm", ALL), "timers")
class DestroysTheSolvent(Mutated, TimerPhase):
    """every third timer is destroyed for insufficient funds that its payer has"""

    def fire_or_destroy(self, candidate: Candidate) -> bool:
        if candidate.timer_id[-1] % 3:
            return super().fire_or_destroy(candidate)
        self.counter.ran()
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


@MUTANTS.part("another-pays", Detection("calm", ALL), "conservation")
class AnotherPays(Mutated, TimerPhase):
    """a fire is charged to the actor of the fire before it"""

    def fire(self, timer: Timer, candidate: Candidate, max_cost: int) -> None:
        payer = Address(self.fires[-1].actor) if self.fires else timer.fee_payer
        if payer != timer.fee_payer and self.world.balance(payer) >= max_cost:
            self.counter.ran()
            timer = replace(timer, fee_payer=payer)
        super().fire(timer, candidate, max_cost)


@MUTANTS.part("mints-to-a-stranger", Detection("calm", ALL), "conservation")
class MintsToAStranger(Mutated, Transition):
    """an unknown account gets the tips of a block's fires, in addition to the proposer"""

    def close(self, phase: TimerPhase) -> int:
        if tips := phase.use.tips:
            self.counter.ran()
            self.world.credit(STRANGER, tips)
        return Transition.close(self, phase)


# --- the index ------------------------------------------------------------------------------------------------------


@MUTANTS.parts("row-of-another-branch", Detection("bad-links", ONE, seeds=12))
def _row_of_another_branch(counter: RunCounter) -> Parts:
    """the calendar takes a timer of another branch with the same number for its own"""

    class ConfusedBucket(Bucket):
        __slots__ = ()

        def add(self, packed: bytes, sequence: int) -> None:
            """Restores a removed row with the same sequence number, even for another timer."""
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

    return parts_with(ConfusedIndex)


@MUTANTS.part("fires-not-taken-back", Detection("forks", ONE, seeds=12))
class ForgetsToUncount(Mutated, SchedulerIndex):
    """going back from a block leaves its fires in the fairness window"""

    def retreat(self, changes: Sequence[Change]) -> None:
        counted = [change.after for change in changes if isinstance(change.after, Fires)]
        super().retreat(changes)
        for fires in counted:
            self.counter.ran()
            self.parties.count(fires, +1)


@MUTANTS.parts("bids-not-taken-back", Detection("forks-of-bidders", ONE, seeds=12))
def _bids_not_taken_back(counter: RunCounter) -> Parts:
    """which agents were asked, did not pay and answered what is not taken back with a block"""

    memories: dict[Address, BidMemory] = {}

    class KeepsMemories(BiddingRound):
        """Remembers outside of the state whom it asked and who did not pay; a branch's revert does not undo that."""

        def _memory(self, actor: Address) -> BidMemory:
            right = super()._memory(actor)
            kept = memories.get(actor, right)
            counter.runs += kept != right
            return kept

        def _remember(self, actor: Address, memory: BidMemory) -> None:
            memories[actor] = memory
            super()._remember(actor, memory)

    return parts_with(KeepsMemories)


@MUTANTS.part("index-keeps-bids", Detection("forks-of-bidders", ONE, seeds=12))
class KeepsBids(Mutated, SchedulerIndex):
    """going back from a block leaves what agents answered in it in the index, though not in state"""

    def retreat(self, changes: Sequence[Change]) -> None:
        taken_back = [change for change in changes if change.key[:1] not in (BID_MEMORY, KEPT_ANSWER)]
        self.counter.runs += len(taken_back) < len(changes)
        super().retreat(taken_back)


@MUTANTS.part("double-fire", Detection("calm", ONE), "timers")
class DoubleFire(Mutated, TimerPhase):
    """in every block the first timer that fired fires once more"""

    def fire(self, timer: Timer, candidate: Candidate, max_cost: int) -> None:
        payload = self.world.payload_of(timer)
        super().fire(timer, candidate, max_cost)
        if len(self.fires) == 1 and self.world.balance(timer.fee_payer) >= max_cost:
            self.counter.ran()
            self.world.add_timer(timer, payload)
            super().fire(timer, candidate, max_cost)


# --- lanes -----------------------------------------------------------------------------------------------------------


@MUTANTS.part("user-lane-without-end", Detection("full-lanes", ALL), "bounds")
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
