"""The host that a running handler calls (SPEC §2): every call charges first, then checks, then acts.

A caller whose arguments may be of any type, as those of programs, charges the call's price with
:meth:`HandlerContext.prepay` before it reads them; the call itself then charges the rest.

A :class:`HandlerContext` is one run of one handler. The effects of the run (movements, timers, events) are collected
here. If the handler fails, :func:`run_handler` discards them together with all its changes of the world.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import msgspec

from validator.chain.block import (
    Bidder,
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
)
from validator.chain.records import QueuedMessage, Timer, Watch
from validator.execution import jobs, mailbox, watching
from validator.execution import timer_calls as scheduling
from validator.execution.lane_rules import Bids
from validator.execution.timer_calls import Allowance, SchedulingTerms
from validator.primitives import costs
from validator.primitives.codec import pack_uint
from validator.primitives.errors import HandlerFailure, Rejection
from validator.primitives.meter import Meter
from validator.primitives.types import ZERO_HASH, Address, Hash, TimerId, is_name, parse_timer_id
from validator.pvm.runtime.host import ScheduleRequest
from validator.state.working_set import World


@dataclass(slots=True)
class HandlerContext:
    """One run of a handler of ``actor``, called by ``sender``.

    The fields are in three groups: the block and the call (``world`` to ``terms``), allowances and payments
    (``allowance`` to ``cycles_prepaid``), and the five lists of :class:`Effects`.
    """

    world: World
    meter: Meter
    actor: Address
    sender: Address
    terms: SchedulingTerms
    allowance: Allowance | None = None
    """The transaction's timer allowance; ``None`` outside the transaction phase."""
    messages_left: int = 0
    """Number of messages and jobs that the run may still queue (SPEC §2)."""
    cycles_reserved: int = 0
    """Cycles reserved so far for queued messages and requested jobs."""
    callback_of: bytes = b""
    """The job whose callback this run is; empty otherwise."""
    value: int = 0
    """The amount that the transaction pays to the actor."""
    origin: Hash = ZERO_HASH
    """The hash of the transaction that started the run, through messages too; zero if none did."""
    cycles_prepaid: int = 0
    """Cycles already charged for the next call."""
    movements: list[Movement] = field(default_factory=list)
    scheduled: list[Scheduled] = field(default_factory=list)
    timer_changes: list[TimerChange] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    messages: list[Sent] = field(default_factory=list)

    @property
    def height(self) -> int:
        return self.terms.height

    def effects(self) -> Effects:
        """The effects of the run so far."""
        return Effects(*map(tuple, self._collected))

    def clear_effects(self) -> None:
        for collected in self._collected:
            collected.clear()

    @property
    def _collected(self) -> tuple[list[Any], ...]:
        """The lists of effects, in the order of the fields of :class:`Effects`."""
        return self.movements, self.scheduled, self.timer_changes, self.events, self.messages

    def move(self, source: Address, target: Address, amount: int) -> None:
        """Move an amount between accounts. Raises ``InsufficientBalance``."""
        self.world.debit(source, amount)
        self.world.credit(target, amount)
        if amount:
            self.movements.append(Movement(source, target, pack_uint(amount)))

    def report(self, name: str, *fields: tuple[str, str]) -> None:
        """Add an event, free of charge."""
        self.events.append(Event(name, self.actor, fields))

    # --- host calls -------------------------------------------------------------------------------------------------

    def prepay(self, cycles: int) -> None:
        """Charge the part of the next call's cost that does not depend on its arguments, before they are read."""
        self.meter.charge(cycles)
        self.cycles_prepaid = cycles

    def _pay(self, cycles: int, cells: int = 0) -> None:
        """Charge a call's cost, less the prepaid part."""
        cycles -= self.cycles_prepaid
        self.cycles_prepaid = 0
        self.meter.charge(cycles, cells)

    def burn(self, cycles: int) -> None:
        self.meter.charge(cycles)

    def kv_get(self, key: str) -> bytes | None:
        self._pay(costs.KV_GET_CYCLES)
        return self.world.storage_get(self.actor, key)

    def kv_set(self, key: str, value: bytes) -> None:
        self._pay(costs.KV_SET_CYCLES, len(key.encode()) + len(value))
        self._write(key, value)

    def kv_delete(self, key: str) -> None:
        self._pay(costs.KV_DELETE_CYCLES)
        self._write(key, None)

    def _write(self, key: str, value: bytes | None) -> None:
        """Write a value, or remove it. A write to a watchable key is charged for the timers that watch it."""
        watchable = watching.find(self.world, Watch(self.actor, key)) if self.terms.rules.has_watches else None
        if watchable is not None:
            self.meter.charge(costs.WRITE_WATCHABLE_CYCLES + costs.TRIGGER_CYCLES * len(watchable.watchers))
        if value is None:
            self.world.storage_delete(self.actor, key)
        else:
            self.world.storage_set(self.actor, key, value)
        if watchable is not None:
            self._note_write(key)

    def _note_write(self, key: str) -> None:
        """Have a watchable key that was written checked for a change."""
        digest = watching.note_write(self.world, Watch(self.actor, key))
        self.timer_changes.append(WatchableKey(self.actor, key, digest))

    def allow_watching(self, key: str, allowed: bool) -> None:
        self._pay(costs.ALLOW_WATCHING_CYCLES, len(key.encode()))
        if not self.terms.rules.has_watches:
            raise Rejection("WatchUnavailable")
        watch = Watch(self.actor, key)
        if not watching.change(self.world, watch, allowed):
            return
        if allowed:
            self._note_write(key)
        else:
            self.timer_changes.append(UnwatchableKey(self.actor, key))

    def publish(self, key: str, value: bytes) -> None:
        self._pay(costs.PUBLISH_CYCLES, len(key.encode()) + len(value))
        self.world.published_set(self.actor, key, value)

    def published(self, address: Address, key: str) -> bytes | None:
        self._pay(costs.PUBLISHED_CYCLES)
        return self.world.published_get(address, key)

    def set_bidding_agent(self, agent: Address | None) -> None:
        self._pay(costs.SET_BIDDING_AGENT_CYCLES)
        scheduling.name_agent(self.world, self.actor, agent)
        self.timer_changes.append(Bidder(b"", agent or b""))

    def emit(self, name: str, data: str) -> None:
        self._pay(costs.EMIT_CYCLES, len(data.encode()))
        if not is_name(name, may_be_empty=True):
            raise Rejection("EventNameTooLong")
        self.report(name, ("data", data))

    def transfer(self, to: Address, amount: int) -> None:
        self._pay(costs.TRANSFER_CYCLES)
        self.move(self.actor, to, amount)

    def schedule_timer(self, request: ScheduleRequest) -> TimerId:
        self._pay(costs.SCHEDULE_TIMER_CYCLES, len(request.payload))
        if request.bid is not None and self.terms.rules.bids is Bids.IGNORED:
            self.report("TimerBidIgnored")
        accepted = scheduling.schedule(self.world, self.actor, request, self.terms, self.allowance)
        timer = accepted.timer
        if accepted.clamped_from is not None:
            self.report(
                "TimerPriorityClampedAtSchedule",
                ("timer_id", timer.timer_id.hex()),
                ("stated", str(accepted.clamped_from)),
                ("clamped", str(timer.max_priority_fee_per_cycle)),
            )
        self.scheduled.append(_scheduled(timer))
        if timer.bidding_agent is not None:
            self.timer_changes.append(Bidder(timer.timer_id, timer.bidding_agent))
        if timer.bid:
            self.timer_changes.append(Locked(timer.timer_id, pack_uint(timer.bid)))
        if timer.watch is not None:
            self.timer_changes.append(Watching(timer.timer_id, *timer.watch))
        return timer.timer_id

    def cancel_timer(self, timer_id: bytes) -> None:
        self._pay(costs.CANCEL_TIMER_CYCLES)
        scheduling.cancel(self.world, self.actor, timer_id)
        self.timer_changes.append(Cancelled(timer_id))

    def extend_timer(self, timer_id: bytes, expires_at: int) -> None:
        self._pay(costs.EXTEND_TIMER_CYCLES)
        timer = scheduling.extend(self.world, self.actor, timer_id, expires_at, self.height, self.terms.parameters)
        self.timer_changes.append(Extended(timer_id, timer.expires_at))

    def is_pending(self, timer_id: bytes) -> bool:
        """Whether the actor has this timer pending: it has not fired or ended, and can be cancelled."""
        self._pay(costs.PENDING_CYCLES)
        return scheduling.is_own(self.world, self.actor, timer_id)

    def send(self, to: Address, handler: str, payload: bytes, cycles: int | None, cells: int | None) -> None:
        """Queue a message and pay for its run in full (SPEC §14). ``None`` reserves the most cycles or cells."""
        parameters = self.terms.parameters
        cycles = parameters.message_cycles if cycles is None else cycles
        cells = parameters.message_cells if cells is None else cells
        if not mailbox.within_limits(cycles, cells, parameters):
            self._pay(costs.SEND_CYCLES, len(payload))
            raise Rejection("MessageLimitInvalid")
        self._pay(costs.SEND_CYCLES + cycles, len(payload) + cells)
        if self.messages_left == 0:
            raise Rejection("TooManyMessages")
        message = QueuedMessage(to, self.actor, handler, payload, cycles, cells, self.origin)
        mailbox.enqueue(self.world, message, parameters)
        self.messages.append(Sent(to, handler, cycles, cells))
        self.messages_left -= 1
        self.cycles_reserved += cycles

    def request_job(self, payload: bytes, results_needed: int, handler: str) -> Hash:
        """Ask the runners for results and pay for the callback's run in full (SPEC §14); returns the job's id."""
        parameters = self.terms.parameters
        self._pay(costs.REQUEST_JOB_CYCLES + parameters.message_cycles, len(payload) + parameters.message_cells)
        if self.messages_left == 0:
            raise Rejection("TooManyMessages")
        job_id = jobs.request(self.world, self.actor, payload, results_needed, handler, self.height)
        self.messages_left -= 1
        self.cycles_reserved += parameters.message_cycles
        self.report(
            "JobRequested", ("job_id", job_id.hex()), ("handler", handler), ("results_needed", str(results_needed))
        )
        return job_id

    def consume_result(self, job_id: bytes) -> None:
        """Settle a job and mark it as consumed, in its callback. Succeeds once (SPEC §14)."""
        self._pay(costs.CONSUME_RESULT_CYCLES)
        jobs.consume(self.world, self.actor, job_id, self.callback_of, self.height)
        self.report("JobConsumed", ("job_id", job_id.hex()))

    def saved_timer(self, key: str) -> bytes:
        """The timer id that ``save_as`` stored under ``key``; empty if no id is stored."""
        return parse_timer_id((self.kv_get(key) or b"").decode("utf-8", "replace"))


def _scheduled(timer: Timer) -> Scheduled:
    """The entry of a new timer in a receipt."""
    prices = (timer.max_fee_per_cycle, timer.max_priority_fee_per_cycle, timer.payer_cap)
    return Scheduled(
        timer.timer_id,
        timer.actor,
        timer.trigger_height,
        timer.sequence,
        timer.expires_at,
        timer.fee_payer,
        timer.gas_limit,
        *(None if price is None else pack_uint(price) for price in prices),
    )


class ReadOnlyContext(HandlerContext):
    """A run that may change nothing: every call that would do so fails after its price is charged (SPEC §9)."""

    def kv_set(self, key: str, value: bytes) -> None:
        self._refuse(costs.KV_SET_CYCLES)

    def kv_delete(self, key: str) -> None:
        self._refuse(costs.KV_DELETE_CYCLES)

    def publish(self, key: str, value: bytes) -> None:
        self._refuse(costs.PUBLISH_CYCLES)

    def set_bidding_agent(self, agent: Address | None) -> None:
        self._refuse(costs.SET_BIDDING_AGENT_CYCLES)

    def allow_watching(self, key: str, allowed: bool) -> None:
        self._refuse(costs.ALLOW_WATCHING_CYCLES)

    def emit(self, name: str, data: str) -> None:
        self._refuse(costs.EMIT_CYCLES)

    def transfer(self, to: Address, amount: int) -> None:
        self._refuse(costs.TRANSFER_CYCLES)

    def schedule_timer(self, request: ScheduleRequest) -> TimerId:
        self._refuse(costs.SCHEDULE_TIMER_CYCLES)

    def cancel_timer(self, timer_id: bytes) -> None:
        self._refuse(costs.CANCEL_TIMER_CYCLES)

    def extend_timer(self, timer_id: bytes, expires_at: int) -> None:
        self._refuse(costs.EXTEND_TIMER_CYCLES)

    def send(self, to: Address, handler: str, payload: bytes, cycles: int | None, cells: int | None) -> None:
        self._refuse(costs.SEND_CYCLES)

    def request_job(self, payload: bytes, results_needed: int, handler: str) -> Hash:
        self._refuse(costs.REQUEST_JOB_CYCLES + self.terms.parameters.message_cycles)

    def consume_result(self, job_id: bytes) -> None:
        self._refuse(costs.CONSUME_RESULT_CYCLES)

    def _refuse(self, cycles: int) -> NoReturn:
        self._pay(cycles)
        raise HandlerFailure("ReadOnly")


class RunResult(msgspec.Struct, frozen=True):
    """How a handler's run ended; ``error`` is empty if it returned."""

    error: str
    effects: Effects
    cycles_reserved: int = 0
    """Cycles that the run reserved for messages and callbacks; a part of the cycles it used."""

    @property
    def ok(self) -> bool:
        return not self.error


def run_handler(context: HandlerContext, body: Callable[[HandlerContext], None]) -> RunResult:
    """Run a handler; if it fails, revert all its effects (SPEC §2) except the cycles and cells it used."""
    checkpoint = context.world.checkpoint()
    allowance_before = context.allowance.left if context.allowance is not None else 0
    try:
        body(context)
    except HandlerFailure as failure:
        context.world.revert(checkpoint)
        context.clear_effects()
        if context.allowance is not None:
            context.allowance.left = allowance_before
        return RunResult(failure.name, Effects())
    return RunResult("", context.effects(), context.cycles_reserved)
