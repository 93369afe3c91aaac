"""``fifo``: timers fire by age at the cycle's basefee. It is in force under any policy up to ``ACTIVATION_HEIGHT``, and
what the other policies do not say is as here."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from spec.phase import Phase, Turn
from spec.world import Timer, World

Fees = tuple[int | None, int | None, int | None]


class Fifo:
    bids = "ignored"
    """What becomes of a bid that a schedule states: ``ignored``, ``refused`` or ``locked``."""
    has_watches = False
    """Whether timers may watch keys."""
    asks_agents = False
    """Whether agents are asked to price timers."""
    timers_first = False
    """Whether timers fire before the transactions."""
    passes_over = False
    """Whether turns go on behind a timer that does not fit."""

    fire_cap_name = "MAX_CYCLES_PER_FIRE"
    """The parameter that says the cycles of a fire at most, and of one whose timer left its gas limit open."""

    def fire_cap(self, world: World) -> int:
        return int(world.parameters[self.fire_cap_name])

    def lane_price(self, world: World) -> int:
        """What a fire pays a cycle on top of the cycle's basefee."""
        return 0

    def fee_floor(self, world: World) -> int:
        """The least max fee with which a timer may fire."""
        return 0

    def accept_fees(self, world: World, max_fee: int | None, priority: int | None) -> Fees:
        """The max fee and priority to store for a new timer, and the priority that was stated if it is clamped."""
        return max_fee, priority, None

    def next_basefee_lane(self, world: World, next_basefee_cycle: int, lane_cycles: int) -> int:
        world.reached("F-13", next_basefee_cycle != world.basefee_lane)
        return next_basefee_cycle

    def next_p50(self, world: World, fires: Sequence[tuple[int, int]]) -> int:
        return 0

    def gas_limit(self, world: World, timer: Timer) -> int:
        return self.fire_cap(world) if timer.gas_limit is None else timer.gas_limit

    def is_over_cap(self, world: World, timer: Timer) -> bool:
        return timer.gas_limit is not None and timer.gas_limit > self.fire_cap(world)

    def begin(self, world: World) -> None:
        """What the policy does at the beginning of a block."""

    def within_cap(self, phase: Phase, due: list[Timer]) -> list[Timer]:
        """The due timers that may fire: not expired, and with a gas limit up to the cap. The others wait."""
        world, found = phase.world, []
        for timer in due:
            if world.height > timer.expires_at:
                continue
            if self.is_over_cap(world, timer):
                world.reached("L-09")
                phase.waits[timer.timer_id] = "over_cap"
            else:
                found.append(timer)
        return found

    def turns(self, phase: Phase, due: list[Timer]) -> list[Turn]:
        """The timers that may fire, in the order of their turns. ``due`` is by age."""
        phase.world.reached("B-07", len(due) > 1)
        return [Turn(timer.timer_id) for timer in self.within_cap(phase, due)]

    def scan(self, phase: Phase, turns: list[Turn]) -> None:
        phase.scan(turns)

    def has_turn(self, phase: Phase, timer: Timer) -> bool:
        """Whether a timer has its turn when it comes to it."""
        return True

    def leave_out(self, phase: Phase, timer: Timer) -> None:
        """A timer finds no room in the lane, or no turn."""
        phase.world.reached("B-08", not self.passes_over and not phase.is_full())

    def turn_away(self, phase: Phase, timer: Timer, needed: int, balance: int) -> bool:
        """A timer's payer cannot pay. Returns whether the timer's turn counts."""
        return phase.destroy_insolvent(timer, needed, balance)

    def settle(self, phase: Phase) -> None:
        """What fires pay after the last turn."""

    def count_fires(self, phase: Phase) -> None:
        """Record what later blocks have to know of this block's fires."""


def in_order(phase: Phase, scored: list[tuple[int, int, Timer]]) -> list[Turn]:
    """Turns of timers with a score and a tip each: the greatest score first, then by id, or by age."""
    world = phase.world
    is_aged = world.parameters["TIE_BREAK"] == "aged"
    scored.sort(key=lambda entry: (-entry[0], entry[2].age if is_aged else entry[2].timer_id))
    for (score, tip, _), (next_score, next_tip, _) in pairwise(scored):
        world.reached("L-10" if score > next_score else "L-15" if is_aged else "L-14")
        world.reached("L-11", tip < next_tip)
    return [Turn(timer.timer_id, tip) for _, tip, timer in scored]
