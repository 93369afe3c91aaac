"""A user's policy for the specification: its prices are computed by its own rules, and its order is an input.

Only the policy knows what it decides. Rules of its prices (:class:`~validator.execution.lane_rules.LaneRules`)
depend on their arguments alone, so they are executed. The timers that had a turn, and what fires paid, are taken from
the receipts. Both only as far as the class says that it ``replaces`` them: all else is as in the policy from which it
is derived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from spec.agents import Bidding
from spec.block import POLICIES
from spec.encoding import Address, Hash, Unreadable, uint
from spec.phase import Phase, Turn
from spec.policies.fifo import Fees, Fifo
from spec.world import Refusal, Timer, World
from validator.chain.genesis import Genesis, PolicyFile, Replaces
from validator.execution.lane_rules import Offer
from validator.execution.timer_phase import TimerPhase
from validator.policies.own import phase_of_file
from validator.primitives.errors import Rejection
from validator.primitives.params import Parameters

INSUFFICIENT_FUNDS = "insufficient_funds"


class NotAllowed(Exception):
    """What no policy may do. ``field`` is where the receipts say it; then what they say, and what is right."""

    def __init__(self, field: str, said: str, expected: str) -> None:
        super().__init__(f"{field} is {said}, expected {expected}")
        self.field, self.said, self.expected = field, said, expected


class ToldFire(NamedTuple):
    """What the receipts say of a fire that a policy decides."""

    timer_id: Hash
    burned: int
    tip: int
    tip_per_cycle: int
    changed: frozenset[Hash]
    """The timers that its run changed."""

    @classmethod
    def of(cls, fire: Any) -> ToldFire:
        burned, tip, tip_per_cycle = (int.from_bytes(amount, "big") for amount in fire[9:12])
        changes = fire[12][2] if len(fire) > 12 and len(fire[12]) > 2 else ()
        changed = frozenset(bytes(field) for change in changes for field in change if isinstance(field, bytes))
        return cls(bytes(fire[0]), burned, tip, tip_per_cycle, changed)


class Told(NamedTuple):
    """What a block's receipts say that a policy decides."""

    fires: list[ToldFire]
    unpaid: list[tuple[Hash, str, str]]
    """The timers that were destroyed because their payers could not pay: id, what was needed, and the balance."""

    @classmethod
    def of(cls, receipts: Any) -> Told:
        """What decoded receipts say. Raises :class:`~spec.encoding.Unreadable`."""
        try:
            fires = [ToldFire.of(fire) for fire in receipts[3]]
            shown = [(each[0], dict(each[2][2])) for each in receipts[4] if each[1] == INSUFFICIENT_FUNDS]
            return cls(fires, [(bytes(timer_id), fields["needed"], fields["balance"]) for timer_id, fields in shown])
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise Unreadable(f"receipts: {error}") from None


class OwnPolicy(Fifo):
    """What users' policies share. Each chain has another class (:func:`own_policy`)."""

    file: ClassVar[PolicyFile]
    its_phase: ClassVar[type[TimerPhase]]
    told: ClassVar[Told]
    """What the receipts of the block that is being executed say."""

    @property
    def _is_order_told(self) -> bool:
        return not self.file.replaces.isdisjoint((Replaces.ORDER, Replaces.PRICES))

    @property
    def _is_price_told(self) -> bool:
        return Replaces.PRICES in self.file.replaces

    # --- prices: the user's rules are executed only if the class says that it replaces them --------------------------

    def lane_price(self, world: World) -> int:
        if not self._is_price_told:
            return super().lane_price(world)
        return self.its_phase.rules.lane_price(world.basefee_lane, _parameters(world))

    def fee_floor(self, world: World) -> int:
        if not self._is_price_told:
            return super().fee_floor(world)
        return self.its_phase.rules.fee_floor(world.basefee_lane, _parameters(world))

    def accept_fees(self, world: World, max_fee: int | None, priority: int | None) -> Fees:
        if not self._is_price_told:
            return super().accept_fees(world, max_fee, priority)
        try:
            return self.its_phase.rules.admit(Offer(max_fee, priority), world.fee_floor)
        except Rejection as refused:
            raise Refusal(refused.name) from None

    def next_basefee_lane(self, world: World, next_basefee_cycle: int, lane_cycles: int) -> int:
        if not self._is_price_told:
            return super().next_basefee_lane(world, next_basefee_cycle, lane_cycles)
        rules, used = self.its_phase.rules, lane_cycles
        return rules.next_basefee_lane(world.basefee_lane, next_basefee_cycle, used, _parameters(world))

    def next_p50(self, world: World, fires: Sequence[tuple[int, int]]) -> int:
        if not self._is_price_told:
            return super().next_p50(world, fires)
        return self.its_phase.rules.next_p50_tip(fires, _parameters(world))

    # --- turns --------------------------------------------------------------------------------------------------------

    def turns(self, phase: Phase, due: list[Timer]) -> list[Turn]:
        if self.its_phase.asks_agents:
            phase.bidding.run(due)
        phase.bidding = _Asked.of(phase.bidding)
        return super().turns(phase, due)

    def scan(self, phase: Phase, turns: list[Turn]) -> None:
        """Fire what the receipts say, in their order, and judge what no policy may do."""
        if not self.file.replaces:
            super().scan(phase, turns)
            return
        if not self._is_order_told:
            self._check_order(phase, turns)
        offers = {turn.timer_id: turn for turn in turns}
        may_fire = {timer.timer_id for timer in self.within_cap(phase, phase.world.due_timers())}
        least = _Least(phase.world, may_fire)
        unpaid = list(self.told.unpaid)
        for place, fire in enumerate(self.told.fires):
            self._destroy_unpaid(phase, unpaid, place)
            offer = offers.get(fire.timer_id)
            if offer is not None and not self._is_price_told and self.bids != "locked":
                self._check_tip(place, fire, offer)
            self._fire(phase, place, fire, may_fire)
            least.look()
        self._destroy_unpaid(phase, unpaid, len(self.told.fires))
        self._check_nothing_waits(phase, [offers[key] for key in may_fire if key in offers], least)
        self.settle(phase)

    def settle(self, phase: Phase) -> None:
        """What the policy does after the last turn."""
        settle = getattr(super(), "settle", None)
        if settle is not None:
            settle(phase)

    def payment(self, world: World, timer: Timer) -> int:
        """What a fire pays of its locked bid."""
        if not self.file.replaces:
            paid: int = super().payment(world, timer)  # type: ignore[misc]  # of the policy that locks bids
            return paid
        told = next(fire.tip for fire in self.told.fires if fire.timer_id == timer.timer_id)
        least = 0 if self._is_price_told else world.parameters["RESERVE_PRICE"]
        return min(timer.bid or 0, max(least, told))

    # --- a turn -------------------------------------------------------------------------------------------------------

    def _fire(self, phase: Phase, place: int, told: ToldFire, may_fire: set[Hash]) -> None:
        world, p, field = phase.world, phase.world.parameters, f"receipts.fires[{place}].timer_id"
        timer = world.timers.get(told.timer_id)
        if timer is None or told.timer_id not in may_fire:
            raise NotAllowed(field, told.timer_id.hex(), "a timer that is due and may fire")
        gas_limit = self.gas_limit(world, timer)
        if phase.is_full() or phase.cycles + gas_limit > p["LANE_TIMER_CYCLES"]:
            raise NotAllowed(field, told.timer_id.hex(), f"none: the lane has no room for its {gas_limit} cycles")
        tip = 0 if self.bids == "locked" else told.tip_per_cycle
        needed, available = self._needed(phase, timer, tip), _available(world, timer)
        if needed > available and not self._is_price_told:
            raise NotAllowed(field, told.timer_id.hex(), f"none: it may cost {needed}, its payer has {available}")
        phase.fire(timer, tip, gas_limit, min(needed, available) if self._is_price_told else needed)
        if self._is_price_told and self.bids != "locked":
            self._charge(phase, told)

    def _charge(self, phase: Phase, told: ToldFire) -> None:
        """Have the last fire burn and tip what the receipts say."""
        world, fire, number = phase.world, phase.fires[-1], len(phase.fires) - 1
        burned, tip = int.from_bytes(fire.burned, "big"), int.from_bytes(fire.tip, "big")
        more = told.burned + told.tip - burned - tip
        if more > world.balance.get(fire.fee_payer, 0):
            raise NotAllowed(f"receipts.fires[{number}].burned", str(told.burned), "what its payer has")
        world.put(world.balance, fire.fee_payer, world.balance.get(fire.fee_payer, 0) - more)
        phase.burned_lane += told.burned - burned
        phase.tips += told.tip - tip
        phase.fires[-1] = fire._replace(burned=uint(told.burned), tip=uint(told.tip))

    def _destroy_unpaid(self, phase: Phase, unpaid: list[tuple[Hash, str, str]], place: int) -> None:
        """Before the fire at this place, destroy the next timers whose payers could not pay, as the receipts say.

        Receipts do not say between which fires. It is done once no later fire changes the timer and the payer has the
        balance that they name, and after the last fire.
        """
        later = self.told.fires[place:]
        while unpaid:
            timer_id, needed, balance = unpaid[0]
            timer = phase.world.timers.get(timer_id)
            if timer is None or not needed.isdecimal() or not balance.isdecimal() or self.timers_first:
                raise NotAllowed("receipts.destroyed", timer_id.hex(), "a timer that was due and could not pay")
            is_changed = any(timer_id in fire.changed for fire in later)
            if later and (is_changed or str(_available(phase.world, timer)) != balance):
                return
            if phase.destroy_insolvent(timer, int(needed), int(balance)):
                raise NotAllowed("receipts.destroyed", timer_id.hex(), "none: the budget for removals is used up")
            unpaid.pop(0)

    def _needed(self, phase: Phase, timer: Timer, tip: int) -> int:
        """The most that a fire may cost."""
        world, p = phase.world, phase.world.parameters
        per_cycle = world.basefee_cycle + world.lane_price + tip
        return int(self.gas_limit(world, timer) * per_cycle + p["MAX_CELLS_PER_FIRE"] * world.basefee_cell)

    # --- what no policy may do ----------------------------------------------------------------------------------------

    def _check_order(self, phase: Phase, turns: list[Turn]) -> None:
        """Check that the fires come in the order of the turns, of which some may be left out.

        A policy of two passes over the turns begins again once.
        """
        places = {turn.timer_id: place for place, turn in enumerate(turns)}
        before, passes_left = -1, int(self.timers_first)
        for number, fire in enumerate(self.told.fires):
            field = f"receipts.fires[{number}]"
            if fire.timer_id not in places:
                raise NotAllowed(f"{field}.timer_id", fire.timer_id.hex(), "a timer that has a turn")
            place = places[fire.timer_id]
            if place < before:
                passes_left -= 1
                if passes_left < 0:
                    raise NotAllowed(f"{field}.timer_id", fire.timer_id.hex(), f"its turn: it came out of turn {place}")
            before = place

    @staticmethod
    def _check_tip(place: int, fire: ToldFire, offer: Turn) -> None:
        """Check that a fire tips what its timer's terms and the prices give."""
        if fire.tip_per_cycle != offer.tip:
            raise NotAllowed(f"receipts.fires[{place}].tip_per_cycle", str(fire.tip_per_cycle), str(offer.tip))

    def _check_nothing_waits(self, phase: Phase, offers: list[Turn], least: _Least) -> None:
        """Check that no due timer that can pay waits although the lane has room for it, unless the class says so."""
        world, p, replaces = phase.world, phase.world.parameters, self.file.replaces
        if not replaces.isdisjoint((Replaces.WAITING, Replaces.PRICES)):
            return
        waiting = [(turn, world.timers[turn.timer_id]) for turn in offers if turn.timer_id in world.timers]
        is_over = len(phase.fires) + len(waiting) > p["SCAN_LIMIT"] or phase.is_full()
        if is_over or phase.gc_cycles + p["GC_CYCLES_PER_REMOVAL"] > p["TIMER_GC_CYCLES"]:
            return
        room = p["LANE_TIMER_CYCLES"] - phase.cycles
        fitting = [each for each in waiting if self.gas_limit(world, each[1]) <= room]
        if not self.its_phase.passes_over and len(fitting) < len(waiting):
            return  # one that did not fit has ended the phase
        for turn, timer in fitting:
            cap = timer.payer_cap
            balance = least.of(timer.fee_payer)
            balance = balance if cap is None else min(balance, cap - (timer.bid or 0))
            tip = 0 if self.bids == "locked" else turn.tip
            is_closed = self.bids == "locked" and phase.fires_of(timer.actor) >= p["MAX_FIRES_PER_ACTOR"]
            if balance >= self._needed(phase, timer, tip) and not is_closed:
                gas_limit = self.gas_limit(world, timer)
                waits = f"without timer {timer.timer_id.hex()}, which was due and passed over"
                raise NotAllowed(
                    "receipts.fires",
                    waits,
                    f"its fire: the lane has room for its {gas_limit} cycles, used {phase.cycles}",
                )


class _Least:
    """The least balances that the payers of timers had between turns."""

    def __init__(self, world: World, timers: set[Hash]) -> None:
        self._balance = world.balance
        self._least = {world.timers[timer_id].fee_payer: 0 for timer_id in timers}
        self._least = {payer: world.balance.get(payer, 0) for payer in self._least}

    def look(self) -> None:
        for payer, least in self._least.items():
            self._least[payer] = min(least, self._balance.get(payer, 0))

    def of(self, payer: Address) -> int:
        return self._least[payer]


class _Asked(Bidding):
    """The queries of a block, asked or left out already."""

    @classmethod
    def of(cls, bidding: Bidding) -> _Asked:
        asked = cls(bidding.world)
        asked.__dict__.update(bidding.__dict__)
        return asked

    def run(self, due: list[Timer]) -> None:
        """Ask no agent."""


def own_policy(genesis: Genesis) -> type[OwnPolicy] | None:
    """A class for the user's policy of a chain; ``None`` if it has none.

    Raises :class:`~validator.policies.own.PolicyError`.
    """
    file = genesis.policy_file
    if file is None:
        return None
    bases = (OwnPolicy, POLICIES[genesis.policy.value])
    return type("Own", bases, {"file": file, "its_phase": phase_of_file(file), "told": Told([], [])})


def _available(world: World, timer: Timer) -> int:
    """What a timer's payer can pay for its fire."""
    balance = world.balance.get(timer.fee_payer, 0)
    return balance if timer.payer_cap is None else min(balance, timer.payer_cap - (timer.bid or 0))


def _parameters(world: World) -> Parameters:
    """The parameters in force, as a user's rules read them."""
    return Parameters.from_names(world.parameters)
