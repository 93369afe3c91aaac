"""Checks each run of ``builtin:script``: its result, its use and all its effects.

A script's input and the state that it reads determine its run. The input follows from the chain: from a transaction,
or from the script that scheduled the timer or sent the message. If a Python actor sent it, it is unknown, and so is the
script's storage until it is written again. Runs that depend on unknown data are not judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final, Protocol

from cluster.audit.chain_codec import (
    Call,
    Effects,
    FireReceipt,
    MessageReceipt,
    TimerChange,
    TransactionBody,
    TransactionReceipt,
    WatchableKey,
)
from cluster.audit.fee_market import Basefees
from cluster.audit.ledger.accounts import Accounts
from cluster.audit.ledger.context import CHAIN, BlockContext, Part
from cluster.audit.ledger.messages import MessageBooks
from cluster.audit.ledger.timer_phase import Offer
from cluster.audit.ledger.timer_register import TimerRegister
from cluster.audit.scripts.limits import MESSAGES_A_DEFERRED_RUN, MESSAGES_A_TRANSACTION
from cluster.audit.scripts.reading import handler_input
from cluster.audit.scripts.script_run import (
    UNKNOWN_DIGEST,
    LiveTimer,
    Outcome,
    Run,
    Terms,
    UnknownError,
    WatchedKey,
    outcome,
)
from cluster.record.rules import LedgerRule
from validator.primitives.types import Address, parse_timer_id

LEAST_SWEPT: Final = 10_000
"""The minimum number of key writes between two calls of :meth:`ScriptRuns._sweep`."""


class _Receipt(Protocol):
    """The fields that the receipts of transactions, fires, callbacks and messages have in common."""

    @property
    def ok(self) -> bool: ...

    @property
    def error(self) -> str: ...

    @property
    def cycles(self) -> int: ...

    @property
    def cells(self) -> int: ...

    @property
    def effects(self) -> Effects: ...


class ScriptRuns:
    """Checks the runs of scripts: computes each expected outcome from the known storage, and compares the receipt."""

    def __init__(self, accounts: Accounts, timers: TimerRegister, mailboxes: MessageBooks) -> None:
        self.unjudged = 0
        """Runs that could not be judged, because too little is known."""
        self._accounts = accounts
        self._timers = timers
        self._mailboxes = mailboxes
        self._stored: dict[bytes, dict[str, bytes]] = {}
        """The timer ids in scripts' storage, keyed by actor, then by storage key.

        Other texts are left out; for an actor in ``_unknown`` they are present as empty bytes.
        """
        self._until_sweep = LEAST_SWEPT
        """Keys that may be written until the next sweep."""
        self._unknown: set[bytes] = set()
        """The actors that had a run with unknown effects. Their storage is known only for the keys in ``_stored``."""
        self._is_blind = False
        """Whether a transaction was entered without its body. No run is judged from then on."""
        self._paid_ahead: tuple[bytes, int | None] | None = None
        """The payer of the current run, and the amount taken before it, ``None`` if unknown.

        The pair is ``None`` if nothing is taken.
        """
        self._terms: tuple[BlockContext, Terms] | None = None

    # --- runs ---------------------------------------------------------------------------------------------------------

    def transaction(self, part: Part, receipt: TransactionReceipt, body: TransactionBody | None) -> Outcome | None:
        """Check a transaction that calls a script. Call it before the transaction's effects are entered.

        Returns the expected outcome, or ``None`` if it is unknown, differs, or no script was called.
        """
        self._is_blind |= body is None
        call = None if body is None else body.action
        if body is None or not isinstance(call, Call) or call.to not in self._accounts.scripts:
            return None
        run = Run(
            actor=Address(call.to),
            sender=receipt.sender,
            payload=call.payload,
            cycles_limit=body.gas_limit,
            cells_limit=body.cells_limit,
            base_cycles=part.context.parameters.tx_base_cycles,
            base_cells=len(call.payload),
            most_messages=MESSAGES_A_TRANSACTION,
            allowance=body.timer_allowance,
            value=body.value,
        )
        ahead = None if part.context.header is None else _paid_ahead(body, part.context.basefees)
        return self._judge(part, run, receipt, (receipt.sender, ahead))

    def fire(self, part: Part, fire: FireReceipt, payload: bytes | None, offer: Offer | None) -> Outcome | None:
        """Check the fire of a script's timer. Call it before the fire is charged and its effects are entered.

        Returns the expected outcome, or ``None`` if it is unknown, differs, or the actor is no script.
        """
        if fire.actor not in self._accounts.scripts:
            return None
        if payload is None or offer is None:
            self._lose(fire.actor, fire)
            return None
        p = part.context.parameters
        run = Run(
            actor=Address(fire.actor),
            sender=fire.actor,
            payload=handler_input(payload),
            cycles_limit=offer.gas_limit,
            cells_limit=p.max_cells_per_fire,
            base_cycles=p.fire_base_cycles,
            most_messages=MESSAGES_A_DEFERRED_RUN,
        )
        ahead = offer.max_cost if part.context.is_priced else None
        return self._judge(part, run, fire, (fire.fee_payer, ahead))

    def message(self, part: Part, message: MessageReceipt) -> Outcome | None:
        """Check the run of a message to a script. Call it before the run's effects are entered.

        Returns the expected outcome, or ``None`` if it is unknown, differs, or the actor is no script.
        """
        if message.to not in self._accounts.scripts:
            return None
        queued = self._mailboxes.running
        if queued is None or queued.payload is None:
            self._lose(message.to, message)
            return None
        run = Run(
            actor=Address(message.to),
            sender=message.sender,
            payload=queued.payload,
            cycles_limit=queued.sent.cycles,
            cells_limit=queued.sent.cells,
            base_cycles=part.context.parameters.message_base_cycles,
            most_messages=MESSAGES_A_DEFERRED_RUN,
        )
        return self._judge(part, run, message)

    def _judge(
        self, part: Part, run: Run, receipt: _Receipt, paid_ahead: tuple[bytes, int | None] | None = None
    ) -> Outcome | None:
        """Compute a run's expected outcome, and report differences of the receipt from it.

        Returns the outcome, or ``None`` if it is unknown or differs. ``paid_ahead``: payer, and amount taken before.
        """
        self._paid_ahead = paid_ahead
        try:
            if self._is_blind:
                raise UnknownError
            expected = outcome(run, self._terms_of(part.context), self)
        except UnknownError:
            self._lose(run.actor, receipt)
            return None
        part.context.evaluate(LedgerRule.SCRIPTS)
        if not _is_as_expected(expected, receipt):
            part.found(CHAIN, *_problems(expected, receipt))
            self._lose(run.actor, receipt)
            return None
        if expected.stored:
            self._store(run.actor, expected.stored)
        return expected

    def _terms_of(self, context: BlockContext) -> Terms:
        """What runs need to know about a block; that of the newest block is remembered."""
        if self._terms is None or self._terms[0] is not context:
            self._terms = context, _terms(context)
        return self._terms[1]

    def _lose(self, actor: bytes, receipt: _Receipt) -> None:
        """Enter a run whose effects on the script's storage are unknown: forget what is known of the storage."""
        self.unjudged += 1
        if receipt.ok:
            self._unknown.add(actor)
            self._stored.pop(actor, None)

    def _store(self, actor: bytes, written: dict[str, bytes]) -> None:
        kept, is_unknown = self._stored.setdefault(actor, {}), actor in self._unknown
        for key, text in written.items():
            named = parse_timer_id(text.decode())
            if named or is_unknown:
                kept[key] = named
            else:
                kept.pop(key, None)
        self._until_sweep -= len(written)
        if self._until_sweep <= 0:
            self._sweep()

    def _sweep(self) -> None:
        """Forget the ids of timers that ended: a script can do nothing with them."""
        for actor, kept in self._stored.items():
            for key in [key for key, timer_id in kept.items() if self._timers.has_ended(timer_id)]:
                if actor in self._unknown:
                    kept[key] = b""
                else:
                    del kept[key]
        self._until_sweep = max(LEAST_SWEPT, sum(map(len, self._stored.values())))

    # --- what a run finds ---------------------------------------------------------------------------------------------

    def balance(self, address: bytes) -> int:
        ahead = 0
        if self._paid_ahead is not None and self._paid_ahead[0] == address:
            ahead = _known(self._paid_ahead[1])
        return self._accounts.balances[address] - ahead

    def is_actor(self, address: bytes) -> bool:
        return address in self._accounts.actors

    def timer(self, timer_id: bytes) -> LiveTimer | None:
        life = self._timers.pending.get(timer_id)
        if life is None:
            return None
        return LiveTimer(life.actor, life.expires_at, life.terms.fee_payer, life.bid, life.watch)

    def watchers(self, key: WatchedKey) -> Collection[bytes] | None:
        watched = self._timers.watches.keys.get(key)
        return None if watched is None else watched.watchers

    def live_timers(self, actor: bytes) -> int:
        return self._timers.live[actor]

    def schedule_nonce(self, actor: bytes) -> int:
        return self._timers.schedule_nonces[actor]

    def next_sequence(self) -> int:
        return self._timers.next_sequence

    def mailbox_bytes(self, actor: bytes) -> int:
        return _known(self._mailboxes.waiting_bytes(actor))

    def saved(self, actor: bytes, key: str) -> bytes:
        kept = self._stored.get(actor, {})
        if key not in kept and actor in self._unknown:
            raise UnknownError
        return kept.get(key, b"")


def _known(amount: int | None) -> int:
    if amount is None:
        raise UnknownError
    return amount


def _paid_ahead(body: TransactionBody, basefees: Basefees) -> int:
    """The amount taken from a transaction's sender before it runs, in addition to its value (SPEC §2)."""
    tip = min(body.max_priority_fee_per_cycle, body.max_fee_per_cycle - basefees.cycle)
    return body.gas_limit * (basefees.cycle + tip) + body.cells_limit * basefees.cell


def _terms(context: BlockContext) -> Terms:
    return Terms(
        height=context.height,
        parameters=context.parameters,
        is_auctioned=context.is_auctioned,
        is_admission_known=context.policy.is_price_known,
        locks_bids=context.policy.locks_bids,
        fire_cap=context.fire_cap,
        fee_floor=context.fee_floor if context.is_priced else None,
        p50_tip=context.receipts.p50_tip,
    )


def _is_as_expected(expected: Outcome, receipt: _Receipt) -> bool:
    """Whether a receipt says what the script's expected outcome is, but for digests of values that are unknown."""
    used = expected.cycles, expected.cells, expected.error, expected.effects
    if receipt.ok == (not expected.error) and used == (receipt.cycles, receipt.cells, receipt.error, receipt.effects):
        return True
    return next(_problems(expected, receipt), None) is None


def _problems(expected: Outcome, receipt: _Receipt) -> Iterator[str]:
    """The differences between a receipt and the script's expected outcome."""
    said = (receipt.ok, receipt.error)
    if said != (not expected.error, expected.error):
        yield f"ended with {receipt.error[:40] or 'success'}, its script gives {expected.error or 'success'}"
    for name in ("cycles", "cells"):
        took, given = getattr(receipt, name), getattr(expected, name)
        if took != given:
            yield f"used {took} {name}, its script gives {given}"
    for name in Effects._fields:
        given = getattr(expected.effects, name)
        if name == "timer_changes":
            given = _with_digests(given, receipt.effects.timer_changes)
        yield from _differences(name, getattr(receipt.effects, name), given)


def _with_digests(given: Sequence[TimerChange], said: Sequence[TimerChange]) -> tuple[TimerChange, ...]:
    """Expected changes, with the digests of values that are unknown taken from the receipt."""
    return tuple(
        change._replace(digest=other.digest)
        if isinstance(change, WatchableKey) and change.digest == UNKNOWN_DIGEST and isinstance(other, WatchableKey)
        else change
        for change, other in zip_longest(given, said[: len(given)])
    )


def _differences(name: str, said: Sequence[Any], given: Sequence[Any]) -> Iterator[str]:
    """The first item in which two lists of effects differ, and its first differing field."""
    if said == given:
        return
    if len(said) != len(given):
        yield f"has {len(said)} {name.replace('_', ' ')}, its script gives {len(given)}"
        return
    number, one, other = next((i, *pair) for i, pair in enumerate(zip(said, given, strict=True)) if pair[0] != pair[1])
    where = f"{name}[{number}]"
    if type(one) is not type(other):
        yield f"has a {type(one).__name__} for {where}, its script gives a {type(other).__name__}"
        return
    field = next(each for each in one._fields if getattr(one, each) != getattr(other, each))
    yield f"has {where}.{field} {_word(getattr(one, field))}, its script gives {_word(getattr(other, field))}"


def _word(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else repr(value)[:100]
