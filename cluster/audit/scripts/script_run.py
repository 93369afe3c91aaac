"""The result, the use and the effects of a script's run, from the SPEC alone (§2, §4, §14)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import structs

from cluster.audit.chain_codec import (
    NO_EFFECTS,
    Cancelled,
    Effects,
    Event,
    Extended,
    Locked,
    Movement,
    Scheduled,
    Sent,
    TimerChange,
    UnwatchableKey,
    WatchableKey,
    Watching,
    keccak256,
    watched_digest,
)
from cluster.audit.scripts import limits
from cluster.audit.scripts.reading import (
    SENDER,
    AllowWatching,
    Burn,
    Cancel,
    Chosen,
    Delete,
    Emit,
    Extend,
    Fail,
    Get,
    Schedule,
    Send,
    Set,
    Transfer,
    Try,
    read_script,
)
from validator.primitives.params import Parameters
from validator.primitives.types import (
    HEIGHT_LIMIT,
    PRICE_LIMIT,
    Address,
    TimerId,
    is_name,
    is_reserved,
    parse_timer_id,
)

UNKNOWN_DIGEST: Final = b"unknown"
"""The digest of the value that a key has when timers are first allowed to watch it."""


class UnknownError(Exception):
    """The run depends on something that an observer does not know."""


WatchedKey = tuple[bytes, str]
"""An actor, and a key of its storage."""


class LiveTimer(msgspec.Struct, frozen=True, gc=False):
    actor: bytes
    expires_at: int
    fee_payer: bytes
    bid: int = 0
    """The amount that is locked for it."""
    watch: WatchedKey | None = None
    """The key that it watches, or watched until that changed."""


class State(Protocol):
    """The state that a run reads. Each method raises :class:`UnknownError` where the answer is unknown."""

    def balance(self, address: bytes) -> int: ...

    def is_actor(self, address: bytes) -> bool: ...

    def timer(self, timer_id: bytes) -> LiveTimer | None: ...

    def live_timers(self, actor: bytes) -> int: ...

    def schedule_nonce(self, actor: bytes) -> int: ...

    def next_sequence(self) -> int: ...

    def mailbox_bytes(self, actor: bytes) -> int: ...

    def watchers(self, key: WatchedKey) -> Collection[bytes] | None:
        """The timers that watch a key; ``None`` if none may."""

    def saved(self, actor: bytes, key: str) -> bytes:
        """The timer id that an actor stored as a text under a key; empty if the key holds no timer id."""


class Terms(NamedTuple):
    """What a run needs to know about its block: height, parameters and prices."""

    height: int
    parameters: Parameters
    is_auctioned: bool
    is_admission_known: bool
    """Whether it is known which fee fields a new timer may have (SPEC §4, step 9); not with prices of a user's file."""
    locks_bids: bool
    fire_cap: int
    fee_floor: int | None
    """The least ``max_fee_per_cycle`` of a timer that may fire (SPEC §4, §13); ``None`` if it is unknown."""
    p50_tip: int


class Run(msgspec.Struct, frozen=True, gc=False):
    """The input of a script's run: actor, sender, payload and limits."""

    actor: Address
    sender: bytes
    payload: bytes
    cycles_limit: int
    cells_limit: int
    base_cycles: int
    """The cycles charged for the run itself, before anything else."""
    base_cells: int = 0
    """The cells charged for the run itself, after ``base_cycles``."""
    most_messages: int = 0
    allowance: int | None = None
    """The amount that the transaction's sender allows for timers at its cost; ``None`` outside of transactions."""
    value: int = 0
    """The amount that the sender pays to the actor."""


class Outcome(msgspec.Struct, gc=False):
    """The result of a script's run: its error (empty on success), its use, its effects and its writes."""

    error: str = ""
    cycles: int = 0
    cells: int = 0
    effects: Effects = NO_EFFECTS
    payloads: tuple[bytes, ...] = ()
    """The payloads of the timers that the run scheduled, in order."""
    sent: tuple[bytes, ...] = ()
    """The payloads of the messages that the run sent, in order."""
    stored: dict[str, bytes] = {}
    """The texts that the run wrote to the actor's storage, by key; empty for deleted keys."""


class _Failed(Exception):
    """Raised to end the handler with the error ``name``. All its effects are reverted."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Rejected(_Failed):
    """Raised if a call is rejected. The operation ``try`` catches it; otherwise it ends the handler."""


def timer_id(actor: bytes, trigger_height: int, payload: bytes, schedule_nonce: int) -> TimerId:
    """The id of a timer (SPEC §4).

    It is ``keccak256(actor ‖ height ‖ payload ‖ schedule_nonce)``, with integers as eight bytes big-endian.
    """
    return TimerId(keccak256(actor + trigger_height.to_bytes(8, "big") + payload + schedule_nonce.to_bytes(8, "big")))


def outcome(run: Run, terms: Terms, state: State) -> Outcome:
    """The result of a run. Raises :class:`UnknownError` where it depends on something unknown."""
    running = _Running(run, terms, state)
    try:
        running.perform_all()
    except _Failed as failed:
        return Outcome(failed.name, running.cycles, running.cells)
    return Outcome(
        cycles=running.cycles,
        cells=running.cells,
        effects=running.made.effects(),
        payloads=tuple(running.payloads),
        sent=tuple(running.sent),
        stored=running.stored,
    )


class _Made(msgspec.Struct):
    """The effects of a run so far."""

    movements: list[Movement] = []
    scheduled: list[Scheduled] = []
    timer_changes: list[TimerChange] = []
    events: list[Event] = []
    messages: list[Sent] = []

    def effects(self) -> Effects:
        if not (self.movements or self.scheduled or self.timer_changes or self.events or self.messages):
            return NO_EFFECTS
        return Effects(
            tuple(self.movements),
            tuple(self.scheduled),
            tuple(self.timer_changes),
            tuple(self.events),
            tuple(self.messages),
        )


class _Running:
    """A run in progress: its use, and its changes on top of the state that it reads."""

    def __init__(self, run: Run, terms: Terms, state: State) -> None:
        self.run, self.terms, self.state = run, terms, state
        self.cycles = self.cells = 0
        self.allowance = run.allowance
        self.made = _Made()
        self.changes: defaultdict[bytes, int] = defaultdict(int)
        """The changes of balances so far."""
        self.payloads: list[bytes] = []
        self.sent: list[bytes] = []
        self.stored: dict[str, bytes] = {}
        self.timers: dict[bytes, LiveTimer | None] = {}
        """Timers that the run scheduled or changed, by id; ``None`` for those that it cancelled."""
        self.watchers: dict[WatchedKey, frozenset[bytes] | None] = {}
        """The timers that watch a key now, for keys where the run changed that; ``None`` if none may any more."""
        self.cancelled = 0
        """The number of timers that the run cancelled."""
        self.mailboxes: defaultdict[bytes, int] = defaultdict(int)
        """The bytes that the run's messages added to each receiver's mailbox."""

    def perform_all(self) -> None:
        run = self.run
        self.pay(run.base_cycles, run.base_cells)
        if run.value:
            self.changes[run.sender] -= run.value
            self.changes[run.actor] += run.value
            self.made.movements.append(Movement(Address(run.sender), run.actor, run.value))
        operations = read_script(run.payload)
        if operations is None:
            raise _Failed("BadScript")
        for operation in operations:
            _PERFORM[type(operation)](self, operation)

    def pay(self, cycles: int, cells: int = 0) -> None:
        if self.cycles + cycles > self.run.cycles_limit:
            self.cycles = self.run.cycles_limit
            raise _Failed("OutOfCycles")
        self.cycles += cycles
        if self.cells + cells > self.run.cells_limit:
            raise _Failed("OutOfCells")
        self.cells += cells

    def report(self, name: str, **fields: str) -> None:
        self.made.events.append(Event(name, self.run.actor, tuple(fields.items())))

    def attempt(self, attempt: Try) -> None:
        operation = attempt.operation
        try:
            _PERFORM[type(operation)](self, operation)
        except _Rejected as rejected:
            self.report("ScriptCaught", error=rejected.name)

    # --- storage, money, messages -------------------------------------------------------------------------------------

    def delete(self, key: str) -> None:
        self.pay(limits.DELETE)
        self.write(key, None)

    def emit(self, name: str, text: str) -> None:
        self.pay(limits.EMIT, len(text.encode()))
        if name and not is_name(name):
            raise _Rejected("EventNameTooLong")
        self.report(name, data=text)

    def store(self, key: str, value: str) -> None:
        data = value.encode()
        self.pay(limits.SET, len(key.encode()) + len(data))
        self.write(key, data)

    def write(self, key: str, data: bytes | None) -> None:
        """Write a value, or remove it: with a price for each timer that watches the key (SPEC §13)."""
        watchers = self.watchers_of((self.run.actor, key))
        if watchers is not None:
            self.pay(limits.WRITE_WATCHABLE + limits.TRIGGER * len(watchers))
            self.made.timer_changes.append(WatchableKey(self.run.actor, key, watched_digest(data)))
        self.stored[key] = b"" if data is None else data

    def watchers_of(self, key: WatchedKey) -> Collection[bytes] | None:
        return self.watchers[key] if key in self.watchers else self.state.watchers(key)

    def allow_watching(self, key: str, allowed: bool) -> None:
        self.pay(limits.ALLOW_WATCHING, len(key.encode()))
        self.check_watch_key(key)
        actor = self.run.actor
        if allowed == (self.watchers_of((actor, key)) is not None):
            return
        self.watchers[actor, key] = frozenset() if allowed else None
        change = WatchableKey(actor, key, UNKNOWN_DIGEST) if allowed else UnwatchableKey(actor, key)
        self.made.timer_changes.append(change)

    def transfer(self, to: Address, amount: int) -> None:
        self.pay(limits.TRANSFER)
        actor = self.run.actor
        if amount:
            if self.balance(actor) < amount:
                raise _Rejected("InsufficientBalance")
            self.changes[actor] -= amount
            self.changes[to] += amount
            self.made.movements.append(Movement(actor, to, amount))

    def send(self, send: Send) -> None:
        p = self.terms.parameters
        cycles = p.message_cycles if send.cycles is None else send.cycles
        cells = p.message_cells if send.cells is None else send.cells
        if not (limits.MIN_MESSAGE_CYCLES <= cycles <= p.message_cycles and 0 <= cells <= p.message_cells):
            self.pay(limits.SEND, len(send.payload))
            raise _Rejected("MessageLimitInvalid")
        self.pay(limits.SEND + cycles, len(send.payload) + cells)
        if len(self.made.messages) == self.run.most_messages:
            raise _Rejected("TooManyMessages")
        if send.handler and not is_name(send.handler):
            raise _Rejected("MessageHandlerInvalid")
        if not self.state.is_actor(send.to):
            raise _Rejected("UnknownActor")
        if self.state.mailbox_bytes(send.to) + self.mailboxes[send.to] + len(send.payload) > p.mailbox_bytes:
            raise _Rejected("MailboxFull")
        self.mailboxes[send.to] += len(send.payload)
        self.made.messages.append(Sent(send.to, send.handler, cycles, cells))
        self.sent.append(send.payload)

    # --- timers -------------------------------------------------------------------------------------------------------

    def schedule(self, asked: Schedule) -> None:
        """Schedule a timer. The checks are in the order of SPEC §4, and the first one that fails rejects the call."""
        actor = self.run.actor
        self.pay(limits.SCHEDULE, len(asked.payload))
        if asked.bid is not None and not (self.terms.is_auctioned or self.terms.locks_bids):
            self.report("TimerBidIgnored")
        priority = self.priority_of(asked)
        trigger = self.trigger_height_of(asked)
        self.check_sizes(asked)
        payer, cap = self.payer_of(asked)
        self.check_gas(asked.gas_limit)
        latest = self.terms.height + self.terms.parameters.max_ttl
        expires_at = latest if asked.expires_at is None else min(asked.expires_at, latest)
        if expires_at < (self.terms.height + 1 if trigger is None else trigger):
            raise _Rejected("TimerExpiryInvalid")
        if trigger is None:
            trigger = expires_at + 1
        headroom = self.headroom_of(asked)
        bid = self.lock(asked, priority, payer, cap) if self.terms.locks_bids else 0
        stored = priority if headroom is None or priority is None else min(priority, headroom)
        key = timer_id(actor, trigger, asked.payload, self.state.schedule_nonce(actor) + len(self.made.scheduled))
        if stored != priority:
            self.report("TimerPriorityClampedAtSchedule", timer_id=key.hex(), stated=str(priority), clamped=str(stored))
        if self.allowance is not None and payer != actor:
            self.allowance -= cap or 0
        sequence = self.state.next_sequence() + len(self.made.scheduled)
        bounds = (asked.gas_limit, asked.max_fee_per_cycle, stored, cap)
        self.made.scheduled.append(Scheduled(key, actor, trigger, sequence, expires_at, payer, *bounds))
        self.payloads.append(asked.payload)
        self.timers[key] = LiveTimer(actor, expires_at, payer, bid, asked.watch)
        if bid:
            self.made.timer_changes.append(Locked(key, bid))
        if asked.watch is not None:
            self.watchers[asked.watch] = frozenset(self.watchers_of(asked.watch) or ()) | {key}
            self.made.timer_changes.append(Watching(key, Address(asked.watch[0]), asked.watch[1]))
        if asked.save_as is not None:
            self.store(asked.save_as, key.hex())

    def lock(self, asked: Schedule, priority: int | None, payer: bytes, cap: int | None) -> int:
        """Lock a timer's bid: the stated one, or its priority for each cycle that it may use (SPEC §13)."""
        gas_limit = self.terms.fire_cap if asked.gas_limit is None else asked.gas_limit
        bid = (priority or 0) * gas_limit if asked.bid is None else asked.bid
        if bid >= PRICE_LIMIT:
            raise _Rejected("TimerFeeOutOfRange")
        if cap is not None and bid > cap:
            raise _Rejected("TimerFeePayerForbidden")
        if bid and self.balance(payer) < bid:
            raise _Rejected("InsufficientBalance")
        self.changes[payer] -= bid
        return bid

    def balance(self, address: bytes) -> int:
        return self.state.balance(address) + self.changes[address]

    def trigger_height_of(self, asked: Schedule) -> int | None:
        """The height at which the timer is due; ``None`` if it watches a key."""
        if asked.watch is not None:
            self.check_watch(asked.watch)
            return None
        now = self.terms.height
        trigger = now + (asked.blocks_ahead or 0) if asked.height is None else asked.height
        if trigger <= now:
            raise _Rejected("TimerHeightNotInFuture")
        if trigger >= HEIGHT_LIMIT:
            raise _Rejected("TimerHeightOutOfRange")
        return trigger

    def check_watch_key(self, key: str) -> None:
        if not self.terms.locks_bids:
            raise _Rejected("WatchUnavailable")
        if len(key.encode()) > limits.WATCHED_KEY_BYTES:
            raise _Rejected("WatchKeyInvalid")

    def check_watch(self, watch: WatchedKey) -> None:
        self.check_watch_key(watch[1])
        watchers = self.watchers_of(watch)
        if watchers is None:
            raise _Rejected("WatchNotAllowed")
        if len(watchers) >= self.terms.parameters.max_watchers_per_key:
            raise _Rejected("WatcherLimitReached")

    def check_sizes(self, asked: Schedule) -> None:
        parameters = self.terms.parameters
        if len(asked.payload) > parameters.max_timer_payload:
            raise _Rejected("TimerPayloadTooLarge")
        if not is_name(asked.handler):
            raise _Rejected("TimerHandlerInvalid")
        live = self.state.live_timers(self.run.actor) + len(self.made.scheduled) - self.cancelled
        if live >= parameters.max_timers_per_actor:
            raise _Rejected("TimerLimitReached")

    def check_gas(self, gas_limit: int | None) -> None:
        if gas_limit is not None and gas_limit < self.terms.parameters.min_gas_limit_per_timer:
            raise _Rejected("TimerGasLimitTooLow")
        if gas_limit is not None and gas_limit > self.terms.fire_cap:
            raise _Rejected("TimerGasLimitTooHigh")

    def priority_of(self, asked: Schedule) -> int | None:
        """The priority fee that a schedule requests, as a number or by a tier; ``None`` if it leaves the fee open."""
        if asked.bid is not None and self.terms.is_auctioned:
            raise _Rejected("TimerArgDeprecated")
        given = asked.max_priority_fee_per_cycle
        for price in (asked.max_fee_per_cycle, given, asked.payer_cap, asked.bid if self.terms.locks_bids else None):
            if price is not None and not 0 <= price < PRICE_LIMIT:
                raise _Rejected("TimerFeeOutOfRange")
        if asked.tier is None:
            return given
        filled = self.terms.p50_tip * self.terms.parameters.priority_tiers[asked.tier] // limits.TIER_SHARES
        if given is not None or filled >= PRICE_LIMIT:
            raise _Rejected("TimerFeeOutOfRange")
        return filled

    def payer_of(self, asked: Schedule) -> tuple[Address, int | None]:
        """The account that will pay for the fire, and the most that it pays, ``None`` if unlimited."""
        payer = self.run.sender if asked.fee_payer == SENDER else asked.fee_payer
        if payer is None or payer == self.run.actor:
            return self.run.actor, asked.payer_cap
        if self.allowance is None or payer != self.run.sender or is_reserved(self.run.sender):
            raise _Rejected("TimerFeePayerForbidden")
        cap = self.allowance if asked.payer_cap is None else asked.payer_cap
        if cap < 1 or cap > self.allowance:
            raise _Rejected("TimerFeePayerForbidden")
        return Address(self.run.sender), cap

    def headroom_of(self, asked: Schedule) -> int | None:
        """The part of the maximum fee above the fee floor, which bounds the priority fee; ``None`` if unbounded."""
        if not self.terms.is_admission_known:
            raise UnknownError
        if asked.max_fee_per_cycle is None or not self.terms.is_auctioned:
            return None
        if self.terms.fee_floor is None:
            raise UnknownError
        if asked.max_fee_per_cycle < self.terms.fee_floor:
            raise _Rejected("TimerRejectedBelowBasefee")
        return asked.max_fee_per_cycle - self.terms.fee_floor

    def chosen(self, timer: Chosen) -> bytes:
        """The id of a timer that a call names; reading it costs cycles."""
        if timer.saved is None:
            return timer.timer_id
        self.pay(limits.GET)
        stored = self.stored.get(timer.saved)
        return self.state.saved(self.run.actor, timer.saved) if stored is None else parse_timer_id(stored.decode())

    def own_timer(self, key: bytes) -> LiveTimer:
        timer = self.timers[key] if key in self.timers else self.state.timer(key)
        if timer is None:
            raise _Rejected("NotFound")
        if timer.actor != self.run.actor:
            raise _Rejected("NotOwner")
        return timer

    def cancel(self, timer: Chosen) -> None:
        key = self.chosen(timer)
        self.pay(limits.CANCEL)
        timer_now = self.own_timer(key)
        self.changes[timer_now.fee_payer] += timer_now.bid
        self.timers[key] = None
        self.cancelled += 1
        if timer_now.watch is not None:
            watchers = self.watchers_of(timer_now.watch)
            if watchers is not None and key in watchers:
                self.watchers[timer_now.watch] = frozenset(watchers) - {key}
        self.made.timer_changes.append(Cancelled(key))

    def extend(self, timer: Chosen, expires_at: int) -> None:
        key = self.chosen(timer)
        self.pay(limits.EXTEND)
        live, now = self.own_timer(key), self.terms.height
        before = live.expires_at
        after = min(expires_at, now + self.terms.parameters.max_ttl)
        if after <= before or now > before:
            raise _Rejected("TimerExpiryInvalid")
        self.timers[key] = structs.replace(live, expires_at=after)
        self.made.timer_changes.append(Extended(key, after))


def _fail(_running: _Running, _operation: Fail) -> None:
    raise _Failed("ScriptFailed")


_PERFORM: Final[Mapping[type, Callable[[_Running, Any], None]]] = {
    Burn: lambda running, burn: running.pay(burn.cycles),
    Fail: _fail,
    Get: lambda running, _: running.pay(limits.GET),
    Set: lambda running, written: running.store(written.key, written.value),
    Delete: lambda running, deleted: running.delete(deleted.key),
    AllowWatching: lambda running, allow: running.allow_watching(allow.key, allow.allowed),
    Emit: lambda running, emitted: running.emit(emitted.name, emitted.text),
    Transfer: lambda running, paid: running.transfer(paid.to, paid.amount),
    Send: _Running.send,
    Schedule: _Running.schedule,
    Cancel: lambda running, cancelled: running.cancel(cancelled.timer),
    Extend: lambda running, extended: running.extend(extended.timer, extended.expires_at),
    Try: _Running.attempt,
}
"""How each kind of operation is performed."""
