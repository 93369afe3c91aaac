"""The working set of one block: decoded records over the parent's state, with exact undo.

Records are immutable: a change puts a new record under a key, and undoing it puts the former record back. A handler
that fails is rolled back to the checkpoint taken before it. The changes that remain at the end of the block are its
batch. The child state is derived from the batch, and the scheduler's indexes are advanced by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from validator.chain.records import (
    GLOBALS,
    LONG_PUBLISHED,
    LONG_STORAGE,
    LONGEST_INLINE_PAYLOAD,
    PYTHON_CODE,
    Account,
    Actor,
    Globals,
    Timer,
    account_key,
    actor_key,
    code_key,
    decode_record,
    encode_record,
    long_storage_entry,
    long_storage_value,
    published_key,
    storage_key,
    timer_key,
    timer_payload_key,
)
from validator.primitives.cache import SizedCache
from validator.primitives.errors import Rejection
from validator.primitives.limits import MAX_LOADED_CYCLES
from validator.primitives.types import HASH_BYTES
from validator.state.interface import View

Record = Any
_HASHED: Final = (LONG_STORAGE, LONG_PUBLISHED)
"""Kinds of storage and published entries whose state keys have a hash instead of the key. Their records contain the
key."""


class Change(NamedTuple):
    """One key's record before and after a block."""

    key: bytes
    before: Record | None
    after: Record | None


def batch_of(changes: Sequence[Change]) -> dict[bytes, bytes | None]:
    """Encode changes as a batch for the state: the new value by key, ``None`` for a removed record."""
    return {key: None if after is None else encode_record(key, after) for key, _, after in changes}


class World:
    """The working set of one block: it reads records from the parent's view, and collects the block's changes."""

    def __init__(self, parent: View) -> None:
        self._parent = parent
        self._original: dict[bytes, Record | None] = {}
        self._current: dict[bytes, Record | None] = {}
        self._journal: list[tuple[bytes, Record | None]] = []
        self._written: set[bytes] = set()
        """Keys under which something was put, undone or not."""
        self.written_watchables: set[bytes] = set()
        """Keys of the records of watchable keys that were written since the last check for changes, undone or not."""
        self.loaded_programs: SizedCache[int] = SizedCache(MAX_LOADED_CYCLES)
        """The most recently used Python programs whose loading this block has paid for: the price by the actor's code.
        They stay paid if the handler is undone."""

    # --- records ----------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> Record | None:
        """The record under a key, including this block's changes."""
        if key in self._current:
            return self._current[key]
        data = self._parent.get(key)
        record = None if data is None else decode_record(key, data)
        self._original[key] = self._current[key] = record
        return record

    def put(self, key: bytes, record: Record | None) -> None:
        """Put a record under a key; ``None`` removes it."""
        self._journal.append((key, self._current[key] if key in self._current else self.get(key)))
        self._written.add(key)
        self._current[key] = record

    def is_removed(self, key: bytes) -> bool:
        """Whether this block removed the record under a key, or looked for it and found none.

        It reads nothing from the state.
        """
        return key in self._current and self._current[key] is None

    def changes_under(self, prefix: bytes) -> list[Change]:
        """The block's changes so far of one kind of records, keys ascending. ``prefix`` is their first byte."""
        return self._changes_of(key for key in self._written if key[:1] == prefix)

    def checkpoint(self) -> int:
        """A mark to which :meth:`revert` can go back."""
        return len(self._journal)

    def revert(self, checkpoint: int) -> None:
        """Undo every change made since the checkpoint."""
        while len(self._journal) > checkpoint:
            key, record = self._journal.pop()
            self._current[key] = record

    def changes(self) -> list[Change]:
        """The block's changes, keys ascending."""
        return self._changes_of(self._written)

    def changes_since(self, checkpoint: int) -> list[Change]:
        """The changes since a checkpoint, keys ascending. Their ``before`` is the record at the checkpoint."""
        before: dict[bytes, Record | None] = {}
        for key, record in self._journal[checkpoint:]:
            before.setdefault(key, record)
        pairs = (Change(key, before[key], self._current[key]) for key in sorted(before))
        return [change for change in pairs if change.before != change.after]

    def _changes_of(self, keys: Iterable[bytes]) -> list[Change]:
        pairs = (Change(key, self._original[key], self._current[key]) for key in sorted(keys))
        return [change for change in pairs if change.before != change.after]

    # --- accounts ---------------------------------------------------------------------------------------------------

    def account(self, address: bytes) -> Account:
        account: Account | None = self.get(account_key(address))
        return Account() if account is None else account

    def balance(self, address: bytes) -> int:
        return self.account(address).balance

    def credit(self, address: bytes, amount: int) -> None:
        if not amount:
            return  # an account is not created by receiving nothing
        account = self.account(address)
        self.put(account_key(address), Account(account.balance + amount, account.nonce))

    def debit(self, address: bytes, amount: int) -> None:
        """Subtract an amount from an account. Raises ``InsufficientBalance`` if the balance is lower."""
        if not amount:
            return  # nor by paying nothing
        account = self.account(address)
        if account.balance < amount:
            raise Rejection("InsufficientBalance")
        self.put(account_key(address), Account(account.balance - amount, account.nonce))

    def raise_nonce(self, address: bytes) -> None:
        account = self.account(address)
        self.put(account_key(address), replace(account, nonce=account.nonce + 1))

    # --- actors -----------------------------------------------------------------------------------------------------

    def actor(self, address: bytes) -> Actor | None:
        actor: Actor | None = self.get(actor_key(address))
        return actor

    def put_actor(self, address: bytes, actor: Actor) -> None:
        self.put(actor_key(address), actor)

    def source(self, code: str) -> str:
        """The source of the Python program that an actor's ``code`` names."""
        source: str | None = self.get(code_key(bytes.fromhex(code.removeprefix(PYTHON_CODE))))
        assert source is not None, "a program exists as long as an actor runs it"
        return source

    def storage_get(self, address: bytes, key: str) -> bytes | None:
        state_key = storage_key(address, key)
        return _entry_value(state_key, self.get(state_key))

    def storage_set(self, address: bytes, key: str, value: bytes) -> None:
        state_key = storage_key(address, key)
        self.put(state_key, _entry_record(state_key, key, value))

    def published_get(self, address: bytes, key: str) -> bytes | None:
        state_key = published_key(address, key)
        return _entry_value(state_key, self.get(state_key))

    def published_set(self, address: bytes, key: str, value: bytes) -> None:
        state_key = published_key(address, key)
        self.put(state_key, _entry_record(state_key, key, value))

    def storage_delete(self, address: bytes, key: str) -> None:
        self.put(storage_key(address, key), None)

    # --- timers -----------------------------------------------------------------------------------------------------

    def timer(self, timer_id: bytes) -> Timer | None:
        """The live timer with this id; bytes that cannot be an id cause no read of the state."""
        timer: Timer | None = self.get(timer_key(timer_id)) if len(timer_id) == HASH_BYTES else None
        return timer

    def add_timer(self, timer: Timer, payload: bytes) -> None:
        """Store a new timer with its payload, and count it for its actor and the chain: as scheduled and as live."""
        if len(payload) > LONGEST_INLINE_PAYLOAD:
            self.put(timer_payload_key(timer.timer_id), payload)
        else:
            timer = replace(timer, payload=payload)
        self.put(timer.key, timer)
        actor, chain = self._counts(timer.actor)
        nonce, sequence = actor.schedule_nonce + 1, chain.next_sequence + 1
        self.put_actor(timer.actor, replace(actor, schedule_nonce=nonce, live_timers=actor.live_timers + 1))
        self.globals = replace(chain, next_sequence=sequence, live_timers=chain.live_timers + 1)

    def payload_of(self, timer: Timer) -> bytes:
        """The payload of a live timer."""
        if timer.payload is not None:
            return timer.payload
        payload: bytes | None = self.get(timer_payload_key(timer.timer_id))
        assert payload is not None, "a long payload lives as long as its timer"
        return payload

    def remove_timers(self, timers: Sequence[Timer]) -> None:
        """Remove timers, and subtract them from the counts of their actors and the chain."""
        for timer in timers:
            self.put(timer.key, None)
            if timer.payload is None:
                self.put(timer_payload_key(timer.timer_id), None)
            actor, chain = self._counts(timer.actor)
            self.put_actor(timer.actor, replace(actor, live_timers=actor.live_timers - 1))
            self.globals = replace(chain, live_timers=chain.live_timers - 1)

    def _counts(self, address: bytes) -> tuple[Actor, Globals]:
        """The records that count the timers of an actor."""
        actor = self.actor(address)
        assert actor is not None, "a timer's actor exists"
        return actor, self.globals

    # --- the chain --------------------------------------------------------------------------------------------------

    @property
    def globals(self) -> Globals:
        record: Globals | None = self.get(GLOBALS)
        assert record is not None, "the genesis state holds the chain's counters"
        return record

    @globals.setter
    def globals(self, record: Globals) -> None:
        self.put(GLOBALS, record)


def _entry_value(state_key: bytes, record: Record | None) -> bytes | None:
    """The value of a storage or published entry."""
    if record is not None and state_key[:1] in _HASHED:
        return long_storage_entry(record)[1]
    value: bytes | None = record
    return value


def _entry_record(state_key: bytes, key: str, value: bytes) -> Record:
    return long_storage_value(key, value) if state_key[:1] in _HASHED else value
