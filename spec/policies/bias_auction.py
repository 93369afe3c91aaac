"""``bias_auction``: bids are locked when timers are scheduled, and whoever waits gains on whoever bids
(``docs/policies.md``)."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal, localcontext
from functools import lru_cache

from spec.encoding import BID_ESCROW, uint
from spec.fees import median_tip
from spec.phase import NO_ROOM, Phase, Turn
from spec.policies.fifo import Fifo, in_order
from spec.world import BiasRate, Timer, World

FRACTION_BITS = 32
LIMIT = 2**128
"""A bias, and a bid with its bias, in units of 2⁻³², are below this."""


@lru_cache(1_024)
def bias(waited: int, micro: int) -> int:
    """``e`` to the power of the blocks waited times λ, in units of 2⁻³², rounded down. ``micro``: λ in millionths."""
    with localcontext(Context(prec=120, Emax=10**6)):
        return min(LIMIT - 1, int(Decimal(waited * micro).scaleb(-6).exp() * 2**FRACTION_BITS))


class BiasAuction(Fifo):
    bids = "locked"
    has_watches = True
    passes_over = True
    fire_cap_name = "MAX_CYCLES_PER_FIRE_AUCTION_PHASE"

    def next_p50(self, world: World, fires: Sequence[tuple[int, int]]) -> int:
        return median_tip(world, fires)

    def begin(self, world: World) -> None:
        self.left_out: Timer | None = None
        self.rate = world.bias_rate.get("", BiasRate(world.parameters["BIAS_LAMBDA_MICRO"]))

    def bias_of(self, world: World, timer: Timer) -> int:
        return bias(world.height - timer.trigger_height, self.rate.micro)

    def strength(self, world: World, timer: Timer) -> int:
        """A bid with its bias, in units of 2⁻³²."""
        return ((timer.bid or 0) << FRACTION_BITS) + self.bias_of(world, timer)

    def turns(self, phase: Phase, due: list[Timer]) -> list[Turn]:
        world = phase.world
        world.reached("X-04", len({timer.trigger_height for timer in due}) > 1)
        return in_order(
            phase,
            [
                (min(LIMIT - 1, self.strength(world, timer)) // self.gas_limit(world, timer), 0, timer)
                for timer in self.within_cap(phase, due)
            ],
        )

    def has_turn(self, phase: Phase, timer: Timer) -> bool:
        return bool(phase.fires_of(timer.actor) < phase.world.parameters["MAX_FIRES_PER_ACTOR"])

    def leave_out(self, phase: Phase, timer: Timer) -> None:
        self.left_out = self.left_out or timer

    def scan(self, phase: Phase, turns: list[Turn]) -> None:
        phase.scan(turns)
        for turn in turns:
            timer = phase.world.timers.get(turn.timer_id)
            if timer and phase.waits.get(turn.timer_id) == NO_ROOM and not self.has_turn(phase, timer):
                phase.world.reached("X-05")
                phase.waits[turn.timer_id] = "actor_limit"

    def settle(self, phase: Phase) -> None:
        """Have each fire pay its part of its bid to the proposer, and return the rest."""
        world = phase.world
        for number, timer in enumerate(phase.fired):
            bid, fire, paid = timer.bid or 0, phase.fires[number], self.payment(world, timer)
            world.debit(BID_ESCROW, bid)
            world.credit(timer.fee_payer, bid - paid)
            phase.tips += paid
            phase.fires[number] = fire._replace(tip=uint(paid), tip_per_cycle=uint(paid // fire.cycles))

    def payment(self, world: World, timer: Timer) -> int:
        """What a fire pays of its bid: at least the reserve, and no more than the bid."""
        return min(timer.bid or 0, max(int(world.parameters["RESERVE_PRICE"]), self.due(world, timer)))

    def due(self, world: World, timer: Timer) -> int:
        """What a fire should pay of its bid, by the rule of the chain."""
        rule, left_out = world.parameters["PAYMENT_RULE"], self.left_out
        if rule == "first_price":
            world.reached("X-08")
            return timer.bid or 0
        if left_out is None:
            world.reached("X-09")
            return 0
        if rule == "vcg":
            world.reached("X-06")
            return (left_out.bid or 0) - (self.bias_of(world, timer) >> FRACTION_BITS)
        world.reached("X-07")
        gas_limit, other = self.gas_limit(world, timer), self.gas_limit(world, left_out)
        needed = -(-self.strength(world, left_out) * gas_limit // other) - self.bias_of(world, timer)
        return -(-needed >> FRACTION_BITS)

    def count_fires(self, phase: Phase) -> None:
        """Add the block's fires to the sums, and move λ at the end of an interval with fires."""
        world, rate = phase.world, self.rate
        waits = sum(world.height - timer.trigger_height for timer in phase.fired)
        bids = sum(timer.bid or 0 for timer in phase.fired)
        after = BiasRate(rate.micro, rate.fires + len(phase.fired), rate.waits + waits, rate.bids + bids)
        if after.fires and world.height % world.parameters["BIAS_INTERVAL_BLOCKS"] == 0:
            after = BiasRate(self.moved(world, after))
        if after != rate:
            world.put(world.bias_rate, "", after)

    def moved(self, world: World, rate: BiasRate) -> int:
        """λ after an interval: lower if the bias grew faster than bids lose value, both at the mean wait."""
        p, waited = world.parameters, rate.waits // rate.fires
        step = rate.micro * p["BIAS_LAMBDA_STEP_MILLI"] // 1_000
        decay = rate.bids // rate.fires // p["VALUE_LIFE_BLOCKS"]
        growth = bias(waited + 1, rate.micro) - bias(waited, rate.micro) >> FRACTION_BITS
        world.reached("X-11" if growth > decay else "X-10")
        moved = rate.micro - step if growth > decay else rate.micro + step
        return int(min(p["BIAS_LAMBDA_MAX_MICRO"], max(p["BIAS_LAMBDA_MIN_MICRO"], moved)))
