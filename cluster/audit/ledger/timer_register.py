"""The register of a chain's timers, from the block that scheduled each to the block that ended it (SPEC §4, §6, §11).

A timer is scheduled once, for the future, on terms that are allowed. Only its own actor or a system instruction changes
it. It fires at most once, never early and never expired, only while pending, and is destroyed only for a valid reason.
No expired timer remains while there is budget to remove it.

A timer that ended is forgotten, so that a run of days fits into memory. Two rules still need it: an id is scheduled
once, and only a pending timer ends. For these :class:`~cluster.audit.ended_ids.EndedIds` keeps how each id ended;
:class:`ActorTimers` keeps the figures for metrics.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

from cluster.audit.chain_codec import (
    Bidder,
    Cancelled,
    DestroyedReceipt,
    Effects,
    Extended,
    FireReceipt,
    Locked,
    Scheduled,
    UnwatchableKey,
    WatchableKey,
    Watching,
)
from cluster.audit.ended_ids import EndedIds
from cluster.audit.ledger.accounts import Accounts
from cluster.audit.ledger.agent_queries import Agents
from cluster.audit.ledger.context import CONSERVATION, TIMERS, BlockContext, Part, short
from cluster.audit.ledger.timer_phase import EXPIRED, TimerLife, TimerState, TurnAudit
from cluster.record.rules import LedgerRule, Mechanism
from validator.primitives.params import Parameters
from validator.primitives.types import address_text

MAX_PAYLOAD_KEPT_BYTES: Final = 65_536
"""Longest timer payload kept for its fire."""
NEWEST_KEPT: Final = 256
"""The number of timers in :attr:`TimerRegister.newest` from before the newest :data:`NEWEST_HEIGHTS` heights."""
NEWEST_HEIGHTS: Final = 64
ENDED_KEPT: Final = 64
"""The number of ids kept in :attr:`TimerRegister.ended_last`."""
STATES: Final = tuple(TimerState)
_CODES: Final = {state: code for code, state in enumerate(STATES)}


@dataclass(slots=True)
class ActorTimers:
    """Statistics of one actor's timers: how many it scheduled, and how late those that came due ended."""

    scheduled: int = 0
    due: int = 0
    """The number of ended timers that had come due while they were pending."""
    fired_at: array[int] = field(default_factory=lambda: array("I"))
    """The height of each fire, ascending."""
    lateness: Counter[int] = field(default_factory=Counter)
    """The number of timers that fired or were destroyed when due, keyed by the blocks since their trigger height."""

    def end(self, life: TimerLife, state: TimerState, height: int) -> None:
        """Count one of the actor's timers that ended."""
        came_due = life.trigger_height <= height and not life.is_watching
        self.due += came_due
        if state is TimerState.FIRED:
            self.fired_at.append(height)
        if came_due and state is not TimerState.CANCELLED:
            self.lateness[height - life.trigger_height] += 1


@dataclass(slots=True)
class WatchedValue:
    """A key that timers may watch."""

    before: bytes
    """The digest of its value when the block was last checked for changes."""
    now: bytes
    watchers: dict[bytes, TimerLife] = field(default_factory=dict)


class WatchBooks:
    """The keys that timers may watch, and the timers that watch them (SPEC §13)."""

    def __init__(self) -> None:
        self.keys: dict[tuple[bytes, str], WatchedValue] = {}
        self._written: dict[tuple[bytes, str], None] = {}
        """Keys that were written since the last :meth:`take_changed`."""

    def enter(self, change: WatchableKey | UnwatchableKey) -> None:
        """Enter that a key may be watched or may not, or that it was written."""
        key = change.actor, change.key
        if isinstance(change, UnwatchableKey):
            self.keys.pop(key, None)
        elif key in self.keys:
            self.keys[key].now = change.digest
            self._written[key] = None
        else:
            self.keys[key] = WatchedValue(change.digest, change.digest)

    def forget(self, life: TimerLife) -> None:
        watched = None if life.watch is None else self.keys.get(life.watch)
        if watched is not None:
            watched.watchers.pop(life.timer_id, None)

    def take_changed(self) -> list[TimerLife]:
        """The timers whose keys have another value than at the last call. They watch them no more."""
        changed: list[TimerLife] = []
        for watched in filter(None, map(self.keys.get, self._written)):
            if watched.now != watched.before:
                changed.extend(watched.watchers.values())
                watched.before, watched.watchers = watched.now, {}
        self._written.clear()
        return changed


class TimerRegister:
    """Tracks all timers of a chain from schedule to end, and checks that schedules, changes and ends are allowed."""

    def __init__(self, turns: TurnAudit, agents: Agents, accounts: Accounts) -> None:
        self.pending: dict[bytes, TimerLife] = {}
        """Pending timers, keyed by id, in the order of scheduling."""
        self.by_actor: dict[bytes, ActorTimers] = {}
        self.newest: deque[TimerLife] = deque()
        """The timers scheduled last, pending or not, in the order of scheduling.

        They are those of the newest :data:`NEWEST_HEIGHTS` heights and up to :data:`NEWEST_KEPT` before them.
        """
        self.ended_last: deque[bytes] = deque(maxlen=ENDED_KEPT)
        """The ids of the timers that ended last, in order."""
        self.states: Counter[TimerState] = Counter()
        self.live: Counter[bytes] = Counter()
        """Number of pending timers by actor."""
        self.schedule_nonces: Counter[bytes] = Counter()
        """The number of timers that each actor has scheduled: its next schedule nonce (SPEC §4)."""
        self.next_sequence = 0
        self.watches = WatchBooks()
        self._turns = turns
        self._agents = agents
        self._accounts = accounts
        self._ended = EndedIds()
        self._expiring: dict[int, dict[bytes, None]] = {}
        """Pending timers, keyed by the height at which they expire, in the order in which that was set."""

    @property
    def scheduled(self) -> int:
        """The number of timers ever scheduled."""
        return self.states.total()

    @property
    def fires(self) -> int:
        return self.states[TimerState.FIRED]

    @property
    def backlog(self) -> int:
        """The number of pending timers whose trigger height has passed."""
        return self._turns.due

    def by_tier(self, height: int, parameters: Parameters) -> dict[str, int]:
        """The number of pending timers after block ``height``, by the tier of the calendar that holds them (SPEC §5).

        ``due`` is the backlog, which the ring holds. A timer that watches a key counts as ``ring``. Each call looks at
        every pending timer; another thread may enter blocks meanwhile.
        """
        current = height // parameters.epoch_length
        found = dict.fromkeys(("due", "ring", "epoch", "overflow"), 0)
        for life in list(self.pending.values()):
            epoch = life.trigger_height // parameters.epoch_length
            is_direct = life.trigger_height < life.scheduled_at + parameters.ring_buffer_size
            if life.is_watching:
                found["ring"] += 1
            elif life.trigger_height <= height:
                found["due"] += 1
            elif is_direct or epoch <= current or life.trigger_height == height + 1:
                found["ring"] += 1
            else:
                found["epoch" if epoch <= current + parameters.epoch_horizon else "overflow"] += 1
        return found

    def has_ended(self, timer_id: bytes) -> bool:
        """Whether a timer with this id fired, or ended otherwise."""
        return timer_id in self._ended

    # --- schedules and changes --------------------------------------------------------------------------------------

    def enter(
        self,
        context: BlockContext,
        effects: Effects,
        actor: bytes | None,
        payloads: Sequence[bytes] | None = None,
    ) -> None:
        """Enter the timers that a run scheduled and changed.

        ``actor`` is the actor that ran; ``None`` if it is unknown, or if the run may change any actor's timers.
        ``payloads`` are those of the scheduled timers, if they are known.
        """
        if not effects.scheduled and not effects.timer_changes:
            return
        watching = {change.timer_id for change in effects.timer_changes if isinstance(change, Watching)}
        for item, payload in zip(effects.scheduled, payloads or repeat(None), strict=False):
            timer = _timer(context, item.timer_id)
            _check_owner(timer, item.actor, actor, "scheduled")
            self._schedule(timer, item, payload, item.timer_id in watching)
        for change in effects.timer_changes:
            if isinstance(change, Bidder):
                self._enter_bidder(context, change, effects, actor)
                continue
            if isinstance(change, Locked):
                self._lock(_timer(context, change.timer_id), change, effects)
                continue
            if isinstance(change, Watching | WatchableKey | UnwatchableKey):
                self._enter_watch(context, change, effects, actor)
                continue
            life = self.pending.get(change.timer_id)
            if life is not None:
                _check_owner(_timer(context, change.timer_id), life.actor, actor, "changed")
            if isinstance(change, Cancelled):
                context.reach(Mechanism.TIMERS_CANCELLED)
                self._end(context, change.timer_id, TimerState.CANCELLED)
            else:
                self._extend(context, change)

    def _enter_bidder(self, context: BlockContext, change: Bidder, effects: Effects, actor: bytes | None) -> None:
        """Check and enter a change of agent, for a timer that the run scheduled or for its actor's timers (SPEC §9)."""
        owners = {item.timer_id: item.actor for item in effects.scheduled}
        if actor is None and not change.timer_id:
            return  # the run's actor is unknown
        owner = owners.get(change.timer_id) if change.timer_id else actor
        if owner is None or owner in self._accounts.scripts:
            what = f"an agent was named for {short(change.timer_id) or 'the timers of an actor'} by who must not"
            context.found(TIMERS, what)
            return
        Part(context, address_text(owner)).found(TIMERS, *self._agents.named(owner, change))

    def _lock(self, timer: Part, change: Locked, effects: Effects) -> None:
        """Check and enter the bid of a timer that the run scheduled (SPEC §13)."""
        life = self.pending.get(change.timer_id)
        if life is None or not _is_new(effects, change.timer_id) or life.bid or not timer.context.policy.locks_bids:
            timer.found(CONSERVATION, f"had {change.amount} locked where none was due")
            return
        life.bid = change.amount
        self._accounts.lock(life.terms.fee_payer, change.amount)

    def _enter_watch(
        self,
        context: BlockContext,
        change: Watching | WatchableKey | UnwatchableKey,
        effects: Effects,
        actor: bytes | None,
    ) -> None:
        """Check and enter a key that timers may watch or may not, or a new timer that watches one (SPEC §13)."""
        if not context.policy.locks_bids:
            context.found(TIMERS, f"a key of {address_text(change.actor)} was watched, which this policy does not have")
        if not isinstance(change, Watching):
            if actor is not None and actor != change.actor:
                context.found(TIMERS, f"a key of {address_text(change.actor)} was changed by {address_text(actor)}")
            self.watches.enter(change)
            return
        timer, life = _timer(context, change.timer_id), self.pending.get(change.timer_id)
        watched = self.watches.keys.get((change.actor, change.key))
        if life is None or life.watch is not None or not _is_new(effects, change.timer_id):
            timer.found(TIMERS, "watches a key, but was not scheduled for that")
            return
        life.watch = change.actor, change.key
        if watched is None:
            timer.found(TIMERS, "watches a key that its actor does not allow to be watched")
            return
        watched.watchers[life.timer_id] = life
        if len(watched.watchers) > context.parameters.max_watchers_per_key:
            timer.found(TIMERS, f"watches a key as the {len(watched.watchers)}th")

    def trigger(self, context: BlockContext, height: int) -> None:
        """Have the timers due at ``height`` whose keys have changed since the call before (SPEC §13).

        None is due in the block that scheduled it. One that expires before it would be due stays as it is.
        """
        for life in self.watches.take_changed():
            due = max(height, life.scheduled_at + 1)
            if due <= life.expires_at:
                context.reach(Mechanism.WATCHES_TRIGGERED)
                life.trigger_height = due
                self._turns.scheduled(life)

    def _schedule(self, timer: Part, item: Scheduled, payload: bytes | None, watches: bool) -> None:
        height = timer.context.height
        self.schedule_nonces[item.actor] += 1
        if item.timer_id in self.pending or item.timer_id in self._ended:
            timer.found(TIMERS, "was scheduled a second time")
            return
        if item.trigger_height <= height:
            timer.found(TIMERS, f"was scheduled for height {item.trigger_height}")
        if watches and (item.trigger_height != item.expires_at + 1 or item.expires_at <= height):
            timer.found(TIMERS, f"watches a key to {item.expires_at}, with the trigger height {item.trigger_height}")
        elif not watches and item.expires_at < item.trigger_height:
            timer.found(TIMERS, "was scheduled to expire before its trigger height")
        _check_end(timer, item.expires_at)
        if item.sequence < self.next_sequence:
            timer.found(TIMERS, f"has sequence {item.sequence} after {self.next_sequence - 1}")
        else:
            self.next_sequence = item.sequence + 1
        kept = payload if payload is not None and len(payload) <= MAX_PAYLOAD_KEPT_BYTES else None
        _check_terms(timer, item)
        life = TimerLife(
            item.timer_id, item.actor, height, item.trigger_height, item.sequence, item.expires_at, item, payload=kept
        )
        self.pending[item.timer_id] = life
        self.live[item.actor] += 1
        self.newest.append(life)
        self._turns.scheduled(life)
        of_actor = self.by_actor.get(item.actor)
        if of_actor is None:
            of_actor = self.by_actor[item.actor] = ActorTimers()
        of_actor.scheduled += 1
        self.states[TimerState.PENDING] += 1
        self._expiring.setdefault(item.expires_at, {})[item.timer_id] = None

    def _extend(self, context: BlockContext, change: Extended) -> None:
        timer, life = _timer(context, change.timer_id), self.pending.get(change.timer_id)
        if life is None:
            timer.found(TIMERS, "was extended, but is not pending")
            return
        if change.expires_at <= life.expires_at:
            timer.found(TIMERS, "was extended to an earlier end")
        _check_end(timer, change.expires_at)
        self._expires_no_more(life)
        was_watching = life.is_watching
        life.expires_at = change.expires_at
        if was_watching:
            life.trigger_height = life.expires_at + 1
            self._turns.scheduled(life)
        self._expiring.setdefault(change.expires_at, {})[change.timer_id] = None

    def _expires_no_more(self, life: TimerLife) -> None:
        expiring = self._expiring.get(life.expires_at)
        if expiring is not None:
            expiring.pop(life.timer_id, None)
            if not expiring:
                del self._expiring[life.expires_at]

    # --- ends -------------------------------------------------------------------------------------------------------

    def fire(self, part: Part, fire: FireReceipt) -> bytes | None:
        """Enter a fire. Returns the timer's payload if it is known."""
        context, pending = part.context, self.pending.get(fire.timer_id)
        payload = None if pending is None else pending.payload
        life = self._end(context, fire.timer_id, TimerState.FIRED)
        if life is not None:
            self._check_fire_time(context, fire, life)
            if fire.fee_payer != life.terms.fee_payer:
                payer = address_text(fire.fee_payer)
                part.found(CONSERVATION, f"was paid by {payer}, its schedule names another")
        return payload

    def _check_fire_time(self, context: BlockContext, fire: FireReceipt, life: TimerLife) -> None:
        context.evaluate(LedgerRule.FIRE_TIMES)
        if not life.trigger_height <= context.height <= life.expires_at:
            _timer(context, fire.timer_id).found(TIMERS, _why_not_at(context.height, life))
        if (fire.actor, fire.trigger_height, fire.sequence) != (life.actor, life.trigger_height, life.sequence):
            what = "fired with another actor, trigger height or sequence than it was scheduled with"
            _timer(context, fire.timer_id).found(TIMERS, what)

    def destroy(self, context: BlockContext, destroyed: DestroyedReceipt) -> None:
        """Enter a timer that was destroyed."""
        is_expired = destroyed.reason == EXPIRED
        state = TimerState.EXPIRED if is_expired else TimerState.INSUFFICIENT_FUNDS
        life = self._end(context, destroyed.timer_id, state)
        if life is None:
            return
        timer = _timer(context, life.timer_id)
        if context.height < life.trigger_height:
            timer.found(TIMERS, f"was destroyed before its trigger height {life.trigger_height}")
        if is_expired and context.height <= life.expires_at:
            timer.found(TIMERS, f"was destroyed as expired, but lives to {life.expires_at}")

    def _end(self, context: BlockContext, key: bytes, state: TimerState) -> TimerLife | None:
        """Remove a timer from the pending ones. ``None``, and a violation, if it is not pending."""
        life = self.pending.pop(key, None)
        if life is None:
            ended = self._ended.get(key)
            before = "was never scheduled"
            if ended is not None:
                before = f"had {_ENDS[STATES[ended.outcome]][1]} at height {ended.height}"
            _timer(context, key).found(TIMERS, f"{_ENDS[state][0]}, but {before}")
            return None
        life.state, life.ended_at, life.payload = state, context.height, None
        if life.bid and state is not TimerState.FIRED:
            self._accounts.lock(life.terms.fee_payer, -life.bid)
        self.watches.forget(life)
        self.live[life.actor] -= 1
        self._turns.ended(key)
        self._agents.ended(key)
        self._expires_no_more(life)
        self._ended.add(key, _CODES[state], context.height)
        self.ended_last.append(key)
        self.by_actor[life.actor].end(life, state, context.height)
        self.states[TimerState.PENDING] -= 1
        self.states[state] += 1
        return life

    def end_block(self, context: BlockContext) -> None:
        """End a block, once all of it is entered: check that expired timers are gone, and trim :attr:`newest`."""
        self._check_expired_are_gone(context)
        while len(self.newest) > NEWEST_KEPT and self.newest[NEWEST_KEPT].scheduled_at <= (
            context.height - NEWEST_HEIGHTS
        ):
            self.newest.popleft()

    def _check_expired_are_gone(self, context: BlockContext) -> None:
        """Check that no expired timer is still pending, unless the budget for removals ran out (SPEC §6)."""
        height = context.height
        forgotten = [
            key
            for key in self._expiring.pop(height - 1, ())
            if (life := self.pending.get(key)) is not None and life.expires_at < height
        ]
        if not forgotten:
            return
        parameters = context.parameters
        budget = parameters.timer_gc_cycles - parameters.scan_limit * parameters.gc_cycles_per_removal
        if context.receipts.gc_cycles + parameters.gc_cycles_per_removal > budget:
            self._expiring.setdefault(height, {}).update(dict.fromkeys(forgotten))
            context.reach(Mechanism.EXPIRED_CARRIED_OVER)
            return
        context.evaluate(LedgerRule.EXPIRED_GONE, len(forgotten))
        for key in forgotten:
            expired_at = self.pending[key].expires_at
            _timer(context, key).found(TIMERS, f"was forgotten: it expired at {expired_at} and is still pending")


_ENDS: Final = {
    TimerState.FIRED: ("fired", "fired"),
    TimerState.CANCELLED: ("was cancelled", "been cancelled"),
    TimerState.EXPIRED: ("was destroyed", "expired"),
    TimerState.INSUFFICIENT_FUNDS: ("was destroyed", "been destroyed for insufficient funds"),
}
"""How a timer ended, in words: first as the predicate of a sentence, then as a participle that follows "had"."""


def _is_new(effects: Effects, timer_id: bytes) -> bool:
    """Whether the run with these effects scheduled a timer."""
    return any(item.timer_id == timer_id for item in effects.scheduled)


def _timer(context: BlockContext, key: bytes) -> Part:
    return Part(context, "timer", key)


def _why_not_at(height: int, life: TimerLife) -> str:
    """The reason why a timer may not fire at a height, in words."""
    if life.is_watching:
        return "fired, though the key that it watches had not changed"
    if height < life.trigger_height:
        return f"fired {life.trigger_height - height} blocks before its trigger height {life.trigger_height}"
    return f"fired after it expired at {life.expires_at}"


def _check_owner(timer: Part, owner: bytes, actor: bytes | None, verb: str) -> None:
    if actor is not None and actor != owner:
        timer.found(TIMERS, f"of {address_text(owner)} was {verb} by {address_text(actor)}")


def _check_end(timer: Part, expires_at: int) -> None:
    if expires_at > timer.context.latest_end:
        timer.found(TIMERS, f"was given the end {expires_at}, the latest is {timer.context.latest_end}")


def _check_terms(timer: Part, item: Scheduled) -> None:
    """Check that the gas limit and maximum fee of a scheduled timer are allowed (SPEC §4, steps 7 and 9)."""
    context, max_fee = timer.context, item.max_fee_per_cycle
    least_gas, least = context.parameters.min_gas_limit_per_timer, context.fee_floor
    if item.gas_limit is not None and not least_gas <= item.gas_limit <= context.fire_cap:
        timer.found(TIMERS, f"was scheduled with a gas limit of {item.gas_limit}")
    least += item.max_priority_fee_per_cycle or 0
    if context.is_auctioned and context.is_priced and max_fee is not None and max_fee < least:
        timer.found(TIMERS, f"was scheduled with {max_fee} a cycle, where the least fee and priority take {least}")
