"""``cip1``: an auction in a lane that has its own basefee, by tips and fairness weights.

``docs/protocol.md`` has it in *Turns and fires*, ``docs/policies.md`` has its candidates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from spec.encoding import Address
from spec.fees import median_tip, next_basefee
from spec.parameters import DEFAULTS
from spec.phase import Phase, Turn
from spec.policies.fifo import Fees, Fifo, in_order
from spec.world import Timer, World

ONE = 2**16
"""The fixed-point number 1.0 of weights, where they are not exact."""
ROUNDING = ("MEDIAN_SMOOTHING_MILLI", "WEIGHT_CLIP_MIN_MILLI", "WEIGHT_CLIP_MAX_MILLI")
"""The parameters with which weights are not exact, unless they have their defaults."""


class Auction(Fifo):
    """What auctions by fees share: timers bid, by themselves or by agents, and must reach the fee floor."""

    bids = "refused"
    asks_agents = True
    passes_over = True
    fire_cap_name = "MAX_CYCLES_PER_FIRE_AUCTION_PHASE"

    def accept_fees(self, world: World, max_fee: int | None, priority: int | None) -> Fees:
        if max_fee is None:
            return None, priority, None
        if max_fee < world.fee_floor:
            raise world.refusal("T-18", "TimerRejectedBelowBasefee")
        if priority is None or priority <= max_fee - world.fee_floor:
            return max_fee, priority, None
        return max_fee, max_fee - world.fee_floor, priority

    def next_p50(self, world: World, fires: Sequence[tuple[int, int]]) -> int:
        return median_tip(world, fires)

    def tips(self, phase: Phase, due: list[Timer]) -> list[tuple[int, Timer]]:
        """The timers that reach the fee floor and may fire, with their tips a cycle."""
        world, found = phase.world, []
        may_fire = {timer.timer_id for timer in self.within_cap(phase, due)}
        for timer, max_fee, priority in phase.bidding.prices(due):
            if max_fee < world.fee_floor and world.height <= timer.expires_at:
                world.reached("L-08" if timer.max_fee is not None else "G-09")
                world.reached("W-02", self.timers_first)
                phase.waits[timer.timer_id] = "below_basefee"
            elif timer.timer_id in may_fire:
                world.reached("L-07", priority > max_fee - world.fee_floor)
                phase.max_fees[timer.timer_id] = max_fee
                found.append((min(priority, max_fee - world.fee_floor), timer))
        return found


class Cip1(Auction):
    def lane_price(self, world: World) -> int:
        world.reached("F-12", world.parameters["LANE_FEE_MULTIPLIER_MILLI"] != 1_000)
        return int(world.basefee_lane * world.parameters["LANE_FEE_MULTIPLIER_MILLI"] // 1_000)

    def fee_floor(self, world: World) -> int:
        return self.lane_price(world)

    def next_basefee_lane(self, world: World, next_basefee_cycle: int, lane_cycles: int) -> int:
        p = world.parameters
        target = p["LANE_TIMER_CYCLES"] // 2
        world.reached("F-05" if lane_cycles > target else "F-06", lane_cycles != target)
        return next_basefee(world, world.basefee_lane, lane_cycles, target, p["LANE_BASEFEE_SLOPE"])

    def begin(self, world: World) -> None:
        """Drop the fires that have left the window, and move a smoothed median."""
        first = world.height - world.parameters["FAIRNESS_WINDOW_BLOCKS"]
        while world.fires and (height := next(iter(world.fires))) < first:
            world.reached("L-13")
            world.reached("R-12")
            for account, fires in world.fires[height]:
                world.recent[account] -= fires
                if not world.recent[account]:
                    del world.recent[account]
            world.drop(world.fires, height)
        share = world.parameters["MEDIAN_SMOOTHING_MILLI"]
        if share < 1_000 and world.recent:
            world.reached("K-02")
            newest = ONE * _divisor(world) // 2
            before = world.median.get("", newest)
            world.reached("R-19")
            world.put(world.median, "", (share * newest + (1_000 - share) * before) // 1_000)

    def counts_for(self, world: World, actor: Address) -> Address:
        """The account for which an actor's fires count."""
        if world.parameters["WEIGHT_PARTY"] == "actor":
            return actor
        world.reached("K-01")
        return world.actors[actor].deployer

    def weights(self, world: World) -> Callable[[int], int]:
        """The weight of an actor by the fires in the window for its account: exact, or in units of 1 / 65,536."""
        p, divisor = world.parameters, _divisor(world)
        if all(p[name] == DEFAULTS[name] for name in ROUNDING):
            return lambda fires: 2 * divisor - min(2 * fires, divisor)
        median = world.median.get("", ONE * divisor // 2)
        least, most = ONE * p["WEIGHT_CLIP_MIN_MILLI"] // 1_000, ONE * p["WEIGHT_CLIP_MAX_MILLI"] // 1_000

        def rounded(fires: int) -> int:
            weight = max(0, 2 * ONE + -fires * ONE * ONE // median)
            world.reached("K-03", weight < least)
            world.reached("K-04", weight > most)
            return int(min(most, max(least, weight)))

        return rounded

    def turns(self, phase: Phase, due: list[Timer]) -> list[Turn]:
        world = phase.world
        weight, floor = self.weights(world), world.parameters["PRIORITY_FLOOR"]
        scored = []
        for tip, timer in self.tips(phase, due):
            fires = world.recent.get(self.counts_for(world, timer.actor), 0)
            scored.append(((tip + floor) * weight(fires), tip, timer))
        world.reached("L-12", floor and len(scored) > 1)
        return in_order(phase, scored)

    def count_fires(self, phase: Phase) -> None:
        world = phase.world
        counts = Counter(self.counts_for(world, timer.actor) for timer in phase.fired)
        for account, fires in counts.items():
            world.recent[account] = world.recent.get(account, 0) + fires
        if counts:
            world.reached("R-11")
            world.put(world.fires, world.height, sorted(counts.items()))


def _divisor(world: World) -> int:
    """Twice the median of the fires in the window by account, at least 2. The middle of an odd number counts twice."""
    counts = sorted(world.recent.values())
    return max(2, counts[(len(counts) - 1) // 2] + counts[len(counts) // 2]) if counts else 2
