"""SPEC §2, §4, §6 to §10 once more, as plainly as can be: lists, dicts, whole copies, no index, no undo.

Written from the text and not from the code that it is compared with. Scripts are Python lists instead of bytes; what
makes a payload a bad one is tested elsewhere.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from validator.chain.transactions import Call, Transaction, Transfer
from validator.primitives.codec import keccak256
from validator.primitives.params import Parameters
from validator.primitives.types import Address

COSTS = {
    "burn": 0,
    "get": 10,
    "set": 200,
    "del": 200,
    "emit": 50,
    "fail": 0,
    "transfer": 200,
    "schedule": 1_000,
    "cancel": 500,
    "extend": 500,
}


class Failed(Exception):
    """The handler ends."""


class Refused(Failed):
    """A rejection, which ``try`` catches."""


class Rejected(Exception):
    """The transaction may not stand in the block."""


@dataclass
class NaiveTimer:
    """A live timer."""

    id: str
    actor: Address
    trigger: int
    seq: int
    script: list[Any]
    payer: Address
    gas: int | None
    expires: int
    max_fee: int | None
    priority: int | None
    cap: int | None
    default_fee: int | None = None


@dataclass
class Books:
    """Everything that a failed handler puts back."""

    balances: dict[Address, int] = field(default_factory=dict)
    nonces: dict[Address, int] = field(default_factory=dict)
    storage: dict[tuple[Address, str], str] = field(default_factory=dict)
    timers: list[NaiveTimer] = field(default_factory=list)
    schedules: dict[Address, int] = field(default_factory=dict)
    """Schedule nonces; their keys are the actors."""
    seq: int = 0
    allowance: int = 0
    events: list[tuple[str, Any]] = field(default_factory=list)


@dataclass
class Run:
    """One handler's run."""

    actor: Address
    sender: Address
    payer: Address | None
    """The transaction's sender, in the transaction phase."""
    cycles_limit: int
    cells_limit: int
    cycles: int = 0
    cells: int = 0

    def charge(self, cycles: int, cells: int = 0) -> None:
        if self.cycles + cycles > self.cycles_limit:
            self.cycles = self.cycles_limit
            raise Failed("OutOfCycles")
        self.cycles += cycles
        if self.cells + cells > self.cells_limit:
            raise Failed("OutOfCells")
        self.cells += cells


@dataclass
class NaiveBlock:
    """What an observer saw of a block."""

    transactions: list[tuple[str, int, int, int, int, list[Any]]] = field(default_factory=list)
    """Error, cycles, cells, burned, tip, events."""
    fires: list[tuple[str, str, int, int, int, int, int, list[Any]]] = field(default_factory=list)
    """Id, error, cycles, cells, burned, tip, tip per cycle, events."""
    destroyed: list[tuple[str, str]] = field(default_factory=list)
    carried: dict[str, str] = field(default_factory=dict)
    gc_cycles: int = 0


class NaiveChain:
    """Blocks one after the other."""

    def __init__(self, parameters: Parameters, accounts: dict[Address, int], actors: dict[Address, int]) -> None:
        self.p = parameters
        self.books = Books(balances={**accounts, **actors}, schedules=dict.fromkeys(actors, 0))
        self.height = 0
        self.burned = 0
        self.cycle_fee = self.cell_fee = self.lane_fee = parameters.initial_basefee
        self.p50 = 0
        self.fire_log: list[tuple[int, Address]] = []

    # --- a block ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Before the first transaction of the next block."""
        self.height += 1
        self.price = self.lane_fee * self.p.lane_fee_multiplier_milli // 1_000
        self.seen = NaiveBlock()
        self.user_cycles = self.user_cells = self.lane_cycles = self.lane_cells = self.tips = 0

    def offer(self, transaction: Transaction) -> str:
        """Execute a transaction; why it may not stand in the block, empty where it does."""
        try:
            tip = self.admit(transaction)
        except Rejected as rejected:
            return str(rejected)
        self.transact(transaction, tip)
        return ""

    def finish(self, proposer: Address) -> NaiveBlock:
        """After the last transaction."""
        self.credit(proposer, self.tips)
        self.tips = 0
        self.timer_phase()
        self.credit(proposer, self.tips)
        self.end()
        return self.seen

    def end(self) -> None:
        p, cycles, cells = self.p, self.user_cycles + self.lane_cycles, self.user_cells + self.lane_cells
        self.cycle_fee = self.next_fee(self.cycle_fee, cycles, p.block_cycles_target, 8)
        self.cell_fee = self.next_fee(self.cell_fee, cells, p.block_cells_target, 8)
        self.lane_fee = self.next_fee(self.lane_fee, self.lane_cycles, p.lane_timer_cycles // 2, p.lane_basefee_slope)
        tips = sorted((fire[6], fire[2]) for fire in self.seen.fires)
        self.p50 = 0
        if tips and p.p50_weight == "fires":
            self.p50 = tips[(len(tips) - 1) // 2][0]
        elif tips:
            spread = [tip for tip, used in tips for _ in range(used // 10)]
            assert all(used % 10 == 0 for _, used in tips), "burns are multiples of ten here"
            self.p50 = spread[(len(spread) + 1) // 2 - 1]

    def next_fee(self, fee: int, used: int, target: int, slope: int) -> int:
        """At most an eighth away; ``slope`` 8 reaches it at twice the target, 1 at an eighth off the target."""
        share = min(Fraction(abs(used - target), target * slope), Fraction(1, 8))
        step = int(fee * share)
        if used > target:
            return min(fee + max(step, 1), self.p.max_basefee)
        return max(self.p.min_basefee, fee - step) if used < target else fee

    def credit(self, address: Address, amount: int) -> None:
        if amount:
            self.books.balances[address] = self.books.balances.get(address, 0) + amount

    # --- transactions -----------------------------------------------------------------------------------------------

    def transact(self, t: Transaction, tip: int) -> None:
        upfront = t.gas_limit * (self.cycle_fee + tip) + t.cells_limit * self.cell_fee
        self.books.nonces[t.sender] = t.nonce + 1
        self.books.balances[t.sender] -= upfront
        self.books.allowance = t.timer_allowance
        target = t.action.to if isinstance(t.action, Transfer | Call) else b""
        run = Run(Address(target), t.sender, t.sender, t.gas_limit, t.cells_limit)
        error, events = self.perform(run, lambda: self.body(run, t))
        self.books.allowance = 0
        burned = run.cycles * self.cycle_fee + run.cells * self.cell_fee
        self.credit(t.sender, upfront - burned - run.cycles * tip)
        self.burned += burned
        self.tips += run.cycles * tip
        self.user_cycles += run.cycles
        self.user_cells += run.cells
        self.seen.transactions.append((error, run.cycles, run.cells, burned, run.cycles * tip, events))

    def admit(self, t: Transaction) -> int:
        """The tip; the order of the checks is §17's."""
        if t.nonce != self.books.nonces.get(t.sender, 0):
            raise Rejected("BadNonce")
        if t.max_fee_per_cycle < self.cycle_fee or t.max_fee_per_cell < self.cell_fee:
            raise Rejected("FeeTooLow")
        if t.gas_limit < self.p.tx_base_cycles:
            raise Rejected("GasTooLow")
        if self.user_cycles + t.gas_limit > self.p.lane_user_cycles:
            raise Rejected("LaneFull")
        if self.user_cells + t.cells_limit > self.p.lane_user_cells:
            raise Rejected("LaneFull")
        tip = min(t.max_priority_fee_per_cycle, t.max_fee_per_cycle - self.cycle_fee)
        cost = t.value + t.gas_limit * (self.cycle_fee + tip) + t.cells_limit * self.cell_fee
        if self.books.balances.get(t.sender, 0) < cost:
            raise Rejected("InsufficientFunds")
        return tip

    def body(self, run: Run, t: Transaction) -> None:
        run.charge(self.p.tx_base_cycles)
        if isinstance(t.action, Transfer):
            self.move(t.sender, run.actor, t.value)
        elif isinstance(t.action, Call):
            run.charge(0, len(t.action.payload))
            self.move(t.sender, run.actor, t.value)
            if run.actor not in self.books.schedules:
                raise Refused("UnknownActor")
            self.execute(run, json.loads(t.action.payload))

    # --- handlers ---------------------------------------------------------------------------------------------------

    def perform(self, run: Run, body: Any) -> tuple[str, list[Any]]:
        before = copy.deepcopy(self.books)
        self.books.events = []
        try:
            body()
        except Failed as failure:
            self.books = before
            return str(failure), []
        events, self.books.events = self.books.events, []
        return "", events

    def move(self, source: Address, target: Address, amount: int) -> None:
        if self.books.balances.get(source, 0) < amount:
            raise Refused("InsufficientBalance")
        if amount:
            self.books.balances[source] -= amount
            self.credit(target, amount)

    def execute(self, run: Run, operations: list[Any]) -> None:
        for operation in operations:
            self.operate(run, operation)

    def operate(self, run: Run, operation: list[Any]) -> None:
        name, *arguments = operation
        if name == "try":
            try:
                self.operate(run, arguments[0])
            except Refused as refused:
                self.books.events.append(("ScriptCaught", str(refused)))
            return
        getattr(self, f"do_{name}")(run, *arguments)

    def do_burn(self, run: Run, cycles: int) -> None:
        run.charge(cycles)

    def do_get(self, run: Run, _key: str) -> None:
        run.charge(COSTS["get"])

    def do_set(self, run: Run, key: str, value: str) -> None:
        run.charge(COSTS["set"], len(key.encode()) + len(value.encode()))
        self.books.storage[run.actor, key] = value

    def do_del(self, run: Run, key: str) -> None:
        run.charge(COSTS["del"])
        self.books.storage.pop((run.actor, key), None)

    def do_emit(self, run: Run, name: str, text: str) -> None:
        run.charge(COSTS["emit"], len(text.encode()))
        self.books.events.append((name, text))

    def do_fail(self, _run: Run, _text: str) -> None:
        raise Failed("ScriptFailed")

    def do_transfer(self, run: Run, given: dict[str, Any]) -> None:
        run.charge(COSTS["transfer"])
        self.move(run.actor, Address(bytes.fromhex(given["to"][2:])), given["amount"])

    def find(self, run: Run, given: dict[str, Any], cost: int) -> NaiveTimer:
        wanted = given.get("id")
        if "saved" in given:
            run.charge(COSTS["get"])
            wanted = self.books.storage.get((run.actor, given["saved"]))
        run.charge(cost)
        for timer in self.books.timers:
            if timer.id == wanted:
                if timer.actor != run.actor:
                    raise Refused("NotOwner")
                return timer
        raise Refused("NotFound")

    def do_cancel(self, run: Run, given: dict[str, Any]) -> None:
        self.books.timers.remove(self.find(run, given, COSTS["cancel"]))

    def do_extend(self, run: Run, given: dict[str, Any]) -> None:
        timer = self.find(run, given, COSTS["extend"])
        new = min(given["expires_at"], self.height + self.p.max_ttl)
        if new <= timer.expires or self.height > timer.expires:
            raise Refused("TimerExpiryInvalid")
        timer.expires = new

    def do_schedule(self, run: Run, given: dict[str, Any]) -> None:
        payload = json.dumps(given["payload"], separators=(",", ":")).encode()
        run.charge(COSTS["schedule"], len(payload))
        height = given.get("height", self.height + given.get("in", 0))
        priority = given.get("max_priority_fee_per_cycle")
        if "bid" in given:
            raise Refused("TimerArgDeprecated")
        if any(
            not 0 <= given.get(k, 0) < 2**96 for k in ("max_fee_per_cycle", "max_priority_fee_per_cycle", "payer_cap")
        ):
            raise Refused("TimerFeeOutOfRange")
        if "tier" in given:
            if priority is not None:
                raise Refused("TimerFeeOutOfRange")
            factor = dict(zip(("economy", "standard", "fast", "urgent"), self.p.priority_tiers, strict=True))
            priority = self.p50 * factor[given["tier"]] // 10
            if priority >= 2**96:
                raise Refused("TimerFeeOutOfRange")
        if height <= self.height:
            raise Refused("TimerHeightNotInFuture")
        if len(payload) > self.p.max_timer_payload:
            raise Refused("TimerPayloadTooLarge")
        if sum(timer.actor == run.actor for timer in self.books.timers) >= self.p.max_timers_per_actor:
            raise Refused("TimerLimitReached")
        payer, cap = self.payer(run, given)
        self.store(run, given, payload, height, payer, cap, priority)

    def payer(self, run: Run, given: dict[str, Any]) -> tuple[Address, int | None]:
        named = given.get("fee_payer", "self")
        payer = {"self": run.actor, "sender": run.sender}.get(named) or Address(bytes.fromhex(named[2:]))
        cap = given.get("payer_cap")
        if payer == run.actor:
            return payer, cap
        if run.payer is None or payer != run.payer:
            raise Refused("TimerFeePayerForbidden")
        cap = self.books.allowance if cap is None else cap
        if cap < 1 or cap > self.books.allowance:
            raise Refused("TimerFeePayerForbidden")
        return payer, cap

    def store(
        self, run: Run, given: Any, payload: bytes, height: int, payer: Address, cap: int | None, priority: int | None
    ) -> None:
        """Checks 7 to 9, and the new timer."""
        gas, max_fee = given.get("gas_limit"), given.get("max_fee_per_cycle")
        if gas is not None and gas < self.p.min_gas_limit_per_timer:
            raise Refused("TimerGasLimitTooLow")
        if gas is not None and gas > self.p.max_cycles_per_fire_auction_phase:
            raise Refused("TimerGasLimitTooHigh")
        expires = min(given.get("expires_at", 2**63), self.height + self.p.max_ttl)
        if expires < height:
            raise Refused("TimerExpiryInvalid")
        if max_fee is not None and max_fee < self.price:
            raise Refused("TimerRejectedBelowBasefee")
        nonce = self.books.schedules[run.actor]
        timer_id = keccak256(run.actor + height.to_bytes(8, "big") + payload + nonce.to_bytes(8, "big")).hex()
        if max_fee is not None and priority is not None and priority > max_fee - self.price:
            fields = {"timer_id": timer_id, "stated": str(priority), "clamped": str(max_fee - self.price)}
            self.books.events.append(("TimerPriorityClampedAtSchedule", fields))
            priority = max_fee - self.price
        if payer != run.actor:
            assert cap is not None
            self.books.allowance -= cap
        timer = NaiveTimer(
            timer_id, run.actor, height, self.books.seq, given["payload"], payer, gas, expires, max_fee, priority, cap
        )
        self.books.timers.append(timer)
        self.books.schedules[run.actor] += 1
        self.books.seq += 1
        if "save_as" in given:
            self.do_set(run, given["save_as"], timer_id)

    # --- the timer phase --------------------------------------------------------------------------------------------

    def timer_phase(self) -> None:
        due = sorted((t for t in self.books.timers if t.trigger <= self.height), key=lambda t: (t.trigger, t.seq))
        reasons: dict[str, str] = {}
        alive: list[str] = []
        cost, reserve = self.p.gc_cycles_per_removal, self.p.scan_limit * self.p.gc_cycles_per_removal
        for timer in due:
            if self.height <= timer.expires:
                alive.append(timer.id)
            elif self.seen.gc_cycles + cost <= self.p.timer_gc_cycles - reserve:
                self.destroy(timer, "expired")
            else:
                reasons[timer.id] = "gc_budget"
        ranked = self.rank(alive, reasons)
        self.fire_all(ranked, reasons)
        living = {timer.id for timer in self.books.timers}
        self.seen.carried = {timer_id: reason for timer_id, reason in reasons.items() if timer_id in living}

    def live(self, timer_id: str) -> NaiveTimer | None:
        return next((timer for timer in self.books.timers if timer.id == timer_id), None)

    def destroy(self, timer: NaiveTimer, reason: str) -> None:
        self.books.timers.remove(timer)
        self.seen.gc_cycles += self.p.gc_cycles_per_removal
        self.seen.destroyed.append((timer.id, reason))

    def rank(self, alive: list[str], reasons: dict[str, str]) -> list[tuple[str, int]]:
        """Ids and tips of the timers that pass the gate, best first."""
        ranked = []
        for timer_id in alive:
            timer = self.live(timer_id)
            assert timer is not None
            max_fee, priority = timer.max_fee, timer.priority
            if max_fee is None:
                timer.default_fee = min(2 * self.price, 2**96 - 1) if timer.default_fee is None else timer.default_fee
                max_fee = timer.default_fee
            if priority is None:
                limit = self.price // self.p.default_tip_cap if self.p.default_tip_cap else 2**200
                priority = min(self.p50, limit)
            if max_fee < self.price:
                reasons[timer_id] = "below_basefee"
            elif timer.gas is not None and timer.gas > self.p.max_cycles_per_fire_auction_phase:
                reasons[timer_id] = "over_cap"
            else:
                tip = min(priority, max_fee - self.price)
                score = (tip + self.p.priority_floor) * self.weight(timer.actor)
                order: Any = timer.id if self.p.tie_break == "id" else (timer.trigger, timer.seq)
                ranked.append((-score, order, timer_id, tip))
        return [(timer_id, tip) for _, _, timer_id, tip in sorted(ranked)]

    def weight(self, actor: Address) -> Fraction:
        """2 for an actor that did not fire, falling to 1 at the median of those that did."""
        first = self.height - self.p.fairness_window_blocks
        recent: dict[Address, int] = {}
        for height, fired in self.fire_log:
            if first <= height < self.height:
                recent[fired] = recent.get(fired, 0) + 1
        counts = sorted(recent.values())
        middle = counts[(len(counts) - 1) // 2] + counts[len(counts) // 2] if counts else 0
        divisor = max(2, middle)
        return Fraction(2 * divisor - min(2 * recent.get(actor, 0), divisor))

    def fire_all(self, ranked: list[tuple[str, int]], reasons: dict[str, str]) -> None:
        looked, lane = 0, self.p.lane_timer_cycles
        for timer_id, tip in ranked:
            timer = self.live(timer_id)
            if timer is None:
                continue
            is_full = self.lane_cycles + self.p.min_gas_limit_per_timer > lane
            if is_full or self.lane_cells >= self.p.lane_timer_cells or looked >= self.p.scan_limit:
                reasons[timer_id] = "lane_full"
                continue
            looked += 1
            gas = self.p.max_cycles_per_fire_auction_phase if timer.gas is None else timer.gas
            if self.lane_cycles + gas > lane:
                reasons[timer_id] = "lane_full"
                continue
            needed = gas * (self.cycle_fee + self.price + tip) + self.p.max_cells_per_fire * self.cell_fee
            funds = self.books.balances.get(timer.payer, 0)
            if min(funds, funds if timer.cap is None else timer.cap) >= needed:
                self.fire(timer, gas, tip, needed)
            elif self.seen.gc_cycles + self.p.gc_cycles_per_removal <= self.p.timer_gc_cycles:
                self.destroy(timer, "insufficient_funds")
                looked -= 1
            else:
                reasons[timer_id] = "gc_budget"

    def fire(self, timer: NaiveTimer, gas: int, tip: int, needed: int) -> None:
        self.books.timers.remove(timer)
        self.books.balances[timer.payer] -= needed
        run = Run(timer.actor, timer.actor, None, gas, self.p.max_cells_per_fire)

        def body() -> None:
            run.charge(self.p.fire_base_cycles)
            self.execute(run, timer.script)

        error, events = self.perform(run, body)
        burned = run.cycles * (self.cycle_fee + self.price) + run.cells * self.cell_fee
        self.credit(timer.payer, needed - burned - run.cycles * tip)
        self.burned += burned
        self.tips += run.cycles * tip
        self.lane_cycles += run.cycles
        self.lane_cells += run.cells
        self.fire_log.append((self.height, timer.actor))
        self.seen.fires.append((timer.id, error, run.cycles, run.cells, burned, run.cycles * tip, tip, events))
