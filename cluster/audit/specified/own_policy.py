"""A user's policy for the specification: its prices are computed by its own rules, and its order is an input.

Only the policy knows what it decides. Rules of its prices (:class:`~validator.execution.lane_rules.LaneRules`)
depend on their arguments alone, so they are executed. The timers that had a turn, and what fires paid, are taken from
the receipts. Both only as far as the class says that it ``replaces`` them: all else is as in the policy from which it
is derived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from spec.block import POLICIES
from spec.encoding import DestroyedReceipt, FireReceipt, Hash, Receipts
from spec.phase import NO_ROOM, Phase, Turn
from spec.policies.fifo import Fees, Fifo
from spec.world import Refusal, Timer, World
from validator.chain.genesis import Genesis, PolicyFile, Replaces
from validator.execution.lane_rules import Offer
from validator.execution.timer_phase import TimerPhase
from validator.policies.own import PolicyError, phase_of_file
from validator.primitives.errors import Rejection
from validator.primitives.params import Parameters
from validator.primitives.user_file import one_line

INSUFFICIENT_FUNDS = "insufficient_funds"
MAX_DIGITS = 100
"""More than any amount has."""


class NotAllowed(Exception):
    """What no policy may do. ``field`` is where the receipts say it; then what they say, and what is right."""

    def __init__(self, field: str, said: str, expected: str) -> None:
        super().__init__(f"{field} is {said}, expected {expected}")
        self.field, self.said, self.expected = field, said, expected


class OwnPolicy(Fifo):
    """What users' policies share that replace something. Each chain has another class (:func:`own_policy`)."""

    file: ClassVar[PolicyFile]
    its_phase: ClassVar[type[TimerPhase]]
    told: ClassVar[Receipts]
    """The receipts of the block that is being executed."""
    is_price_told: ClassVar[bool] = False

    def scan(self, phase: Phase, turns: list[Turn]) -> None:
        """Fire what the receipts say, in their order, and judge what no policy may do."""
        if not self.is_price_told and Replaces.ORDER not in self.file.replaces:
            self._check_order(phase, turns)
        offers = {turn.timer_id: turn for turn in turns}
        may_fire = {timer.timer_id for timer in self.within_cap(phase, phase.world.due_timers())}
        least = {timer_id: phase.available(phase.world.timers[timer_id]) for timer_id in may_fire}
        unpaid = [each for each in self.told.destroyed if each.reason == INSUFFICIENT_FUNDS]
        for place, fire in enumerate(self.told.fires):
            self._destroy_unpaid(phase, unpaid, place)
            offer = offers.get(fire.timer_id)
            if offer is not None and not self.is_price_told and self.bids != "locked":
                self._check_tip(place, fire, offer)
            self._fire(phase, place, fire, may_fire)
            for timer_id in least.keys() & phase.world.timers.keys():
                least[timer_id] = min(least[timer_id], phase.available(phase.world.timers[timer_id]))
        self._destroy_unpaid(phase, unpaid, len(self.told.fires))
        self._check_nothing_waits(phase, [offers[key] for key in may_fire if key in offers], least)
        phase.waits.update((key, NO_ROOM) for key in offers if key in phase.world.timers)

    def payment(self, world: World, timer: Timer) -> int:
        """What a fire pays of its locked bid."""
        told = next(_number(fire.tip) for fire in self.told.fires if fire.timer_id == timer.timer_id)
        least = 0 if self.is_price_told else world.parameters["RESERVE_PRICE"]
        return min(timer.bid or 0, max(least, told))

    # --- a turn -------------------------------------------------------------------------------------------------------

    def _fire(self, phase: Phase, place: int, told: FireReceipt, may_fire: set[Hash]) -> None:
        world, p, field = phase.world, phase.world.parameters, f"receipts.fires[{place}].timer_id"
        timer = world.timers.get(told.timer_id)
        if timer is None or told.timer_id not in may_fire:
            raise NotAllowed(field, told.timer_id.hex(), "a timer that is due and may fire")
        gas_limit = self.gas_limit(world, timer)
        if phase.is_full() or phase.cycles + gas_limit > p["LANE_TIMER_CYCLES"]:
            raise NotAllowed(field, told.timer_id.hex(), f"none: the lane has no room for its {gas_limit} cycles")
        tip = 0 if self.bids == "locked" else _number(told.tip_per_cycle)
        needed, available = phase.max_cost(gas_limit, tip), phase.available(timer)
        if needed > available and not self.is_price_told:
            raise NotAllowed(field, told.timer_id.hex(), f"none: it may cost {needed}, its payer has {available}")
        most = min(needed, available)
        phase.fire(timer, tip, gas_limit, most)
        if self.bids == "locked":
            burned = _number(phase.fires[-1].burned)
            if burned > most:
                field = f"receipts.fires[{len(phase.fires) - 1}].burned"
                raise NotAllowed(field, str(burned), f"at most {most}, what its payer can pay")
        elif self.is_price_told:
            self._charge(phase, told)

    def _charge(self, phase: Phase, told: FireReceipt) -> None:
        """Have the last fire burn and tip what the receipts say."""
        world, fire, number = phase.world, phase.fires[-1], len(phase.fires) - 1
        more_burned, more_tip = (_number(told.burned) - _number(fire.burned), _number(told.tip) - _number(fire.tip))
        more = more_burned + more_tip
        if more > world.balance.get(fire.fee_payer, 0):
            raise NotAllowed(f"receipts.fires[{number}].burned", str(_number(told.burned)), "what its payer has")
        world.put(world.balance, fire.fee_payer, world.balance.get(fire.fee_payer, 0) - more)
        phase.burned_lane += more_burned
        phase.tips += more_tip
        phase.fires[-1] = fire._replace(burned=told.burned, tip=told.tip)

    def _destroy_unpaid(self, phase: Phase, unpaid: list[DestroyedReceipt], place: int) -> None:
        """Before the fire at this place, destroy the next timers whose payers could not pay, as the receipts say.

        Receipts do not say between which fires. It is done once no later fire changes the timer and the payer has the
        balance that they name, and after the last fire.
        """
        later = self.told.fires[place:]
        while unpaid:
            timer_id, said = unpaid[0].timer_id, dict(unpaid[0].event.fields)
            needed, balance = said.get("needed", ""), said.get("balance", "")
            timer = phase.world.timers.get(timer_id)
            is_said = all(text.isdecimal() and len(text) <= MAX_DIGITS for text in (needed, balance))
            if timer is None or not is_said or self.timers_first:
                raise NotAllowed("receipts.destroyed", timer_id.hex(), "a timer that was due and could not pay")
            is_changed = any(timer_id in change for fire in later for change in fire.effects.timer_changes)
            if later and (is_changed or str(phase.available(timer)) != balance):
                return
            if phase.destroy_insolvent(timer, int(needed), int(balance)):
                raise NotAllowed("receipts.destroyed", timer_id.hex(), "none: the budget for removals is used up")
            unpaid.pop(0)

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
    def _check_tip(place: int, fire: FireReceipt, offer: Turn) -> None:
        """Check that a fire tips what its timer's terms and the prices give."""
        tip = _number(fire.tip_per_cycle)
        if tip != offer.tip:
            raise NotAllowed(f"receipts.fires[{place}].tip_per_cycle", str(tip), str(offer.tip))

    def _check_nothing_waits(self, phase: Phase, offers: list[Turn], least: dict[Hash, int]) -> None:
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
            gas_limit = self.gas_limit(world, timer)
            tip = 0 if self.bids == "locked" else turn.tip
            is_closed = self.bids == "locked" and phase.fires_of(timer.actor) >= p["MAX_FIRES_PER_ACTOR"]
            if least[timer.timer_id] >= phase.max_cost(gas_limit, tip) and not is_closed:
                waits = f"without timer {timer.timer_id.hex()}, which was due and passed over"
                raise NotAllowed(
                    "receipts.fires",
                    waits,
                    f"its fire: the lane has room for its {gas_limit} cycles, used {phase.cycles}",
                )


class OwnPrices(OwnPolicy):
    """What users' policies share that replace prices, too: the user's rules are executed."""

    is_price_told = True

    def __init__(self) -> None:
        self._names: object = None
        self._parameters_read: Parameters

    def _parameters(self, world: World) -> Parameters:
        """The parameters in force, as a user's rules read them."""
        if self._names is not world.parameters:
            self._names, self._parameters_read = world.parameters, Parameters.from_names(world.parameters)
        return self._parameters_read

    def lane_price(self, world: World) -> int:
        return self._price("lane_price", world.basefee_lane, self._parameters(world))

    def fee_floor(self, world: World) -> int:
        return self._price("fee_floor", world.basefee_lane, self._parameters(world))

    def accept_fees(self, world: World, max_fee: int | None, priority: int | None) -> Fees:
        try:
            fees = self._of_rule("admit", Offer(max_fee, priority), world.fee_floor, refusals=(Rejection,))
        except Rejection as refused:
            raise Refusal(refused.name) from None
        if not isinstance(fees, Offer) or not all(fee is None or _is_price(fee) for fee in fees):
            raise NotAllowed("admit of the policy", repr(fees), "an offer")
        return fees

    def next_basefee_lane(self, world: World, next_basefee_cycle: int, lane_cycles: int) -> int:
        given = world.basefee_lane, next_basefee_cycle, lane_cycles
        return self._price("next_basefee_lane", *given, self._parameters(world))

    def next_p50(self, world: World, fires: Sequence[tuple[int, int]]) -> int:
        return self._price("next_p50_tip", fires, self._parameters(world))

    def _price(self, rule: str, *given: object) -> int:
        price = self._of_rule(rule, *given)
        if not _is_price(price):
            raise NotAllowed(f"{rule} of the policy", repr(price), "a price")
        return int(price)

    def _of_rule(self, rule: str, *given: object, refusals: tuple[type[Exception], ...] = ()) -> Any:
        """What a user's rule says. Raises :class:`NotAllowed` for an exception of the rule that is no refusal."""
        try:
            with one_line(self.file.file, PolicyError, refusals):
                return getattr(self.its_phase.rules, rule)(*given)
        except PolicyError as error:
            raise NotAllowed(f"{rule} of the policy", str(error), "no exception") from None


def own_policy(genesis: Genesis) -> type[Fifo] | None:
    """A class for the user's policy of a chain; ``None`` if it has none. One that replaces nothing is as specified.

    Raises :class:`~validator.policies.own.PolicyError`.
    """
    file = genesis.policy_file
    if file is None:
        return None
    told = OwnPrices if Replaces.PRICES in file.replaces else OwnPolicy if file.replaces else Fifo
    phase = phase_of_file(file)
    bases = (told, POLICIES[genesis.policy.value]) if told is not Fifo else (POLICIES[genesis.policy.value],)
    return type("Own", bases, {"file": file, "its_phase": phase, "asks_agents": phase.asks_agents})


def _is_price(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def _number(amount: bytes) -> int:
    return int.from_bytes(amount, "big")
