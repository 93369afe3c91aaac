"""``gba_auction``: the timers fire before the transactions, by tip and earned weight, in slices of the lane
(``docs/policies.md``)."""

from __future__ import annotations

from spec.encoding import Address, FireReceipt
from spec.phase import Phase, Turn
from spec.policies.cip1 import ONE, Auction
from spec.policies.fifo import in_order
from spec.world import EarnedWeight, Timer, World

WEIGHT_BITS = 32
"""A score has the weight in its low bits, and the tip above them."""


def fixed_point(milli: int) -> int:
    return ONE * milli // 1_000


class GbaAuction(Auction):
    timers_first = True

    def fee_floor(self, world: World) -> int:
        """[W-02] The cycle's basefee, of which the lane's is an alias."""
        return world.basefee_lane

    def turns(self, phase: Phase, due: list[Timer]) -> list[Turn]:
        world = phase.world
        scored = [
            (tip << WEIGHT_BITS | self.weight_of(world, timer), tip, timer) for tip, timer in self.tips(phase, due)
        ]
        return in_order(phase, scored)

    def scan(self, phase: Phase, turns: list[Turn]) -> None:
        """Two passes: without the actors that have used their slices, then with these alone."""
        self.first_pass = True
        phase.scan(turns)
        self.first_pass = False
        closed = [turn for turn in turns if self.has_used_slice(phase, phase.world.timers.get(turn.timer_id))]
        if closed:
            phase.world.reached("W-03")
            phase.scan(closed)
        phase.waits |= dict.fromkeys(self.unpaid, "insufficient_funds")

    def begin(self, world: World) -> None:
        self.unpaid: list[bytes] = []
        self.first_pass = True

    def has_turn(self, phase: Phase, timer: Timer) -> bool:
        return not self.first_pass or not self.has_used_slice(phase, timer)

    def has_used_slice(self, phase: Phase, timer: Timer | None) -> bool:
        """Whether the fires of a timer's actor have used its slice of the lane."""
        if timer is None:
            return False
        world, p = phase.world, phase.world.parameters
        share: int = p["LANE_TIMER_CYCLES"] * self.earned(world, timer.actor) // (ONE * p["BUDGET_SLICES"])
        return sum(fire.cycles for fire in phase.fires if fire.actor == timer.actor) >= max(1, share)

    def turn_away(self, phase: Phase, timer: Timer, needed: int, balance: int) -> bool:
        phase.world.reached("W-04")
        self.unpaid.append(timer.timer_id)
        phase.waits[timer.timer_id] = "insufficient_funds"
        return True

    def epoch(self, world: World) -> int:
        return int(world.height // world.parameters["EPOCH_LENGTH"])

    def earned(self, world: World, actor: Address) -> int:
        """The weight of an actor in this epoch: from the record of its last fires, epoch by epoch."""
        p = world.parameters
        least, most = fixed_point(p["WEIGHT_MIN_MILLI"]), fixed_point(p["WEIGHT_MAX_MILLI"])
        record = world.weights.get(actor)
        if record is None:
            return least
        weight, mean, part = record.weight, record.scores // record.fires, p["WEIGHT_LAMBDA_MILLI"]
        for _ in range(record.epoch, self.epoch(world)):
            if not mean and weight == least:
                break
            world.reached("W-06")
            weight, mean = min(most, max(least, ((1_000 - part) * weight + part * mean) // 1_000)), 0
        return weight

    def weight_of(self, world: World, timer: Timer) -> int:
        """The weight of a timer: its actor's, and at least that of those who starve."""
        p, weight = world.parameters, self.earned(world, timer.actor)
        if world.height - timer.trigger_height < p["STARVATION_BLOCKS"]:
            return weight
        world.reached("W-07")
        return max(weight, fixed_point(p["STARVATION_FLOOR_MILLI"]))

    def count_fires(self, phase: Phase) -> None:
        """Add the scores of the block's fires to the records of their actors."""
        world, epoch = phase.world, self.epoch(phase.world)
        for actor in {timer.actor for timer in phase.fired}:
            world.reached("W-05")
            scores = [self.score(world, fire) for fire in phase.fires if fire.actor == actor]
            record = world.weights.get(actor)
            if record is None or record.epoch != epoch:
                record = EarnedWeight(epoch, self.earned(world, actor), 0, 0)
            added = record._replace(scores=record.scores + sum(scores), fires=record.fires + len(scores))
            world.put(world.weights, actor, added)

    def score(self, world: World, fire: FireReceipt) -> int:
        """The mean of four figures from 0 to 1: tip, outcome, lateness, and what was left of the lane, rounded up."""
        p, tip = world.parameters, int.from_bytes(fire.tip_per_cycle, "big")
        late, lane = world.height - fire.trigger_height, p["LANE_TIMER_CYCLES"]
        world.reached("W-08", ONE * fire.cycles % lane)
        of_tip = ONE * tip // (tip + world.p50) if tip + world.p50 else ONE // 2
        of_lateness = ONE * late // (late + p["STARVATION_BLOCKS"])
        return int(of_tip + ONE * fire.ok + of_lateness + ONE - ONE * fire.cycles // lane) // 4
