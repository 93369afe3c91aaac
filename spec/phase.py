"""The timer phase of a block: what is due expires, has its turn and fires, or waits (``docs/protocol.md``, *Turns and
fires*). Which timers have turns, in which order and at which price is the policy's part (:mod:`spec.policies`)."""

from __future__ import annotations

from typing import NamedTuple

from spec.agents import Bidding
from spec.encoding import Address, DestroyedReceipt, FireReceipt, Hash, address_text, uint
from spec.host import Host
from spec.programs import run_charged
from spec.runs import Meter
from spec.scripts import open_envelope
from spec.timers import end_unfired
from spec.world import Timer, World

NO_ROOM = "lane_full"
"""Why a timer waits that had no room in the lane, or no turn before the phase ended."""


class Turn(NamedTuple):
    """A due timer that may fire, and its tip a cycle."""

    timer_id: Hash
    tip: int = 0


class Phase:
    """One block's timer phase."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.bidding = Bidding(world)
        self.fires: list[FireReceipt] = []
        self.fired: list[Timer] = []
        self.destroyed: list[DestroyedReceipt] = []
        self.max_fees: dict[Hash, int] = {}
        """The max fees a cycle of the timers that reach the fee floor, where timers offer fees."""
        self.waits: dict[Hash, str] = {}
        """Why timers wait, those included that a later fire cancelled."""
        self.cycles = self.cells = self.gc_cycles = 0
        self.burned_cycle = self.burned_lane = self.tips = 0

    def run(self) -> None:
        world, policy = self.world, self.world.policy
        due = self.expire(world.due_timers())
        if policy.asks_agents:
            self.bidding.run(due)
        policy.scan(self, policy.turns(self, due))
        policy.settle(self)
        self.waits = {timer_id: reason for timer_id, reason in self.waits.items() if timer_id in world.timers}

    def expire(self, due: list[Timer]) -> list[Timer]:
        """Destroy expired timers, as far as the budget reaches; returns the others and those that it did not reach."""
        world, p = self.world, self.world.parameters
        budget, left = p["TIMER_GC_CYCLES"] - p["SCAN_LIMIT"] * p["GC_CYCLES_PER_REMOVAL"], []
        for timer in due:
            if world.height <= timer.expires_at:
                left.append(timer)
            elif self.gc_cycles + p["GC_CYCLES_PER_REMOVAL"] > budget:
                world.reached("L-02")
                self.waits[timer.timer_id] = "gc_budget"
                left.append(timer)
            else:
                world.reached("L-01")
                self.destroy(timer, "expired", "TimerExpired")
        return left

    def destroy(self, timer: Timer, reason: str, event: str, **fields: str) -> None:
        end_unfired(self.world, timer)
        self.gc_cycles += self.world.parameters["GC_CYCLES_PER_REMOVAL"]
        reported = self.world.event(event, timer.actor, timer_id=timer.timer_id.hex(), **fields)
        self.destroyed.append(DestroyedReceipt(timer.timer_id, reason, reported))

    def is_full(self) -> bool:
        """Whether the lane has no room for any timer."""
        world, p = self.world, self.world.parameters
        for rule, is_used_up in (
            ("L-16", self.cycles + p["MIN_GAS_LIMIT_PER_TIMER"] > p["LANE_TIMER_CYCLES"]),
            ("L-17", self.cells >= p["LANE_TIMER_CELLS"]),
            ("L-19", len(self.fires) >= p["MAX_FIRES_PER_BLOCK"]),
        ):
            if is_used_up:
                world.reached(rule)
                return True
        return False

    def scan(self, turns: list[Turn]) -> None:
        """Give the timers their turns, in order, up to the limits of the lane and of the scan."""
        world, policy, p = self.world, self.world.policy, self.world.parameters
        looked_at = 0
        for place, turn in enumerate(turns):
            timer = world.timers.get(turn.timer_id)
            if timer is None:
                continue  # a fire has cancelled it
            if not policy.has_turn(self, timer):
                self.waits[timer.timer_id] = NO_ROOM
                continue
            world.reached("L-18", looked_at >= p["SCAN_LIMIT"])
            gas_limit = policy.gas_limit(world, timer)
            is_over = self.is_full() or looked_at >= p["SCAN_LIMIT"]
            if is_over or self.cycles + gas_limit > p["LANE_TIMER_CYCLES"]:
                policy.leave_out(self, timer)
                if is_over or not policy.passes_over:
                    self.waits.update((turn.timer_id, NO_ROOM) for turn in turns[place:])
                    return
                world.reached("L-20")
                self.waits[timer.timer_id] = NO_ROOM
                looked_at += 1
            elif self.fire_or_turn_away(timer, turn.tip, gas_limit):
                looked_at += 1

    def fire_or_turn_away(self, timer: Timer, tip: int, gas_limit: int) -> bool:
        """Fire a timer whose payer can pay. Returns whether the turn counts: that of a destroyed timer does not."""
        needed, balance = self.max_cost(gas_limit, tip), self.available(timer)
        if balance >= needed:
            self.fire(timer, tip, gas_limit, needed)
            return True
        return bool(self.world.policy.turn_away(self, timer, needed, balance))

    def max_cost(self, gas_limit: int, tip: int) -> int:
        """The most that a fire may cost."""
        world = self.world
        price = world.basefee_cycle + world.lane_price + tip
        return int(gas_limit * price + world.parameters["MAX_CELLS_PER_FIRE"] * world.basefee_cell)

    def available(self, timer: Timer) -> int:
        """What a timer's payer can pay for its fire."""
        world = self.world
        balance = world.balance.get(timer.fee_payer, 0)
        if timer.payer_cap is not None and timer.payer_cap - (timer.bid or 0) < balance:
            world.reached("L-22")
            balance = timer.payer_cap - (timer.bid or 0)
        return balance

    def destroy_insolvent(self, timer: Timer, needed: int, balance: int) -> bool:
        """Destroy a timer whose payer cannot pay, if the budget reaches. Returns whether it is still there."""
        p = self.world.parameters
        if self.gc_cycles + p["GC_CYCLES_PER_REMOVAL"] > p["TIMER_GC_CYCLES"]:
            self.world.reached("L-23")
            self.waits[timer.timer_id] = "gc_budget"
            return True
        self.world.reached("L-21")
        fields = {"fee_payer": address_text(timer.fee_payer), "needed": str(needed), "balance": str(balance)}
        self.destroy(timer, "insufficient_funds", "TimerCancelledInsufficientFunds", **fields)
        return False

    def fire(self, timer: Timer, tip: int, gas_limit: int, needed: int) -> None:
        """Remove a timer, take what it may cost at most, run its handler and return the rest."""
        world, p = self.world, self.world.parameters
        world.reached("R-06")
        world.remove_timer(timer)
        world.debit(timer.fee_payer, needed)
        meter = Meter(world, gas_limit, p["MAX_CELLS_PER_FIRE"])
        handler, payload = open_envelope(timer.handler, timer.payload)
        world.reached("L-28", payload is not timer.payload)
        world.reached("L-29", payload is timer.payload and b"_handler" in payload)
        ended = run_charged(Host(world, meter, timer.actor, timer.actor), p["FIRE_BASE_CYCLES"], handler, payload)
        world.reached("L-24", timer.fee_payer != timer.actor)
        world.reached("L-25", not ended.ok)
        world.reached("L-26", ended.error == "OutOfCycles")
        world.reached("L-27", ended.error == "OutOfCells")
        burned_cycle = meter.cycles * world.basefee_cycle + meter.cells * world.basefee_cell
        burned_lane, tips = meter.cycles * world.lane_price, meter.cycles * tip
        world.credit(timer.fee_payer, needed - burned_cycle - burned_lane - tips)
        self.cycles += meter.cycles
        self.cells += meter.cells
        self.burned_cycle += burned_cycle
        self.burned_lane += burned_lane
        self.tips += tips
        self.fired.append(timer)
        whose = timer.timer_id, timer.actor, timer.trigger_height, timer.sequence, timer.fee_payer
        paid = uint(burned_cycle + burned_lane), uint(tips), uint(tip)
        self.fires.append(FireReceipt(*whose, *ended[:4], *paid, ended.effects))

    def fires_of(self, actor: Address) -> int:
        return sum(timer.actor == actor for timer in self.fired)
