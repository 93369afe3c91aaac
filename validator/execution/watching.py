"""Timers that watch a key of an actor's storage (SPEC §13, ``bias_auction``).

An actor allows that a key of its storage is watched: the key gets a :class:`~validator.chain.records.Watchable`, with
the digest of its value and the timers that watch it. A block is checked twice for keys whose value differs from that
digest: before its timer phase, and after its last message. A timer that watches such a key becomes due, once.

Whoever writes a watchable key pays for the timers that watch it, so the work of a check is paid for before it is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from validator.chain.records import LONGEST_PLAIN_STORAGE_KEY, STORAGE, Timer, Watch, Watchable, watchable_key
from validator.primitives.codec import tagged_hash
from validator.primitives.errors import Rejection
from validator.primitives.types import address_text
from validator.state.working_set import World

NO_VALUE: Final = b""
"""The digest of a key without a value."""


def is_watch_key(key: str) -> bool:
    """Whether a key is short enough to be watched."""
    return len(key.encode()) <= LONGEST_PLAIN_STORAGE_KEY


def find(world: World, watch: Watch) -> Watchable | None:
    """The record of a watchable key; ``None`` if its actor does not allow that it is watched."""
    found: Watchable | None = world.get(watchable_key(watch.actor, watch.key)) if is_watch_key(watch.key) else None
    return found


def _find_valid(world: World, watch: Watch) -> Watchable | None:
    """As :func:`find`. Raises ``WatchKeyInvalid`` if the key is too long to be watched."""
    if not is_watch_key(watch.key):
        raise Rejection("WatchKeyInvalid")
    return find(world, watch)


def require_watchable(world: World, watch: Watch, most: int) -> None:
    """Check that one more timer may watch a key.

    Raises ``WatchKeyInvalid``, ``WatchNotAllowed`` or ``WatcherLimitReached``.
    """
    found = _find_valid(world, watch)
    if found is None:
        raise Rejection("WatchNotAllowed")
    if len(found.watchers) >= most:
        raise Rejection("WatcherLimitReached")


def change(world: World, watch: Watch, allowed: bool) -> bool:
    """Let timers watch a key from now on, or no more. Returns whether it was otherwise before.

    Timers that watch a key that is no more watchable stay pending, and only their expiry or their actor ends them.
    Raises ``WatchKeyInvalid``.
    """
    if allowed == (_find_valid(world, watch) is not None):
        return False
    key = watchable_key(watch.actor, watch.key)
    world.put(key, Watchable(_digest(world, key)) if allowed else None)
    return True


def note_write(world: World, watch: Watch) -> bytes:
    """Have the next check look at a watchable key that was written. Returns the digest of its value."""
    key = watchable_key(watch.actor, watch.key)
    world.written_watchables.add(key)
    return _digest(world, key)


def add_watcher(world: World, timer: Timer) -> None:
    """Enter a new timer among those that watch its key."""
    assert timer.watch is not None, "the timer watches a key"
    found = find(world, timer.watch)
    assert found is not None, "the key is watchable"
    key = watchable_key(timer.watch.actor, timer.watch.key)
    world.put(key, found._replace(watchers=(*found.watchers, timer.timer_id)))


def forget_watchers(world: World, timers: Sequence[Timer]) -> None:
    """Strike out timers that end while they watch a key."""
    for timer in timers:
        if timer.watch is None:
            continue
        found = find(world, timer.watch)
        if found is not None and timer.timer_id in found.watchers:
            left = tuple(each for each in found.watchers if each != timer.timer_id)
            world.put(watchable_key(timer.watch.actor, timer.watch.key), found._replace(watchers=left))


def trigger(world: World, height: int) -> bool:
    """Make timers due whose keys have changed since the check before, at ``height``. Returns whether there was any.

    A timer is due after the block that scheduled it at the earliest. One that expires before that stays as it is.
    """
    found_any = False
    for key in sorted(world.written_watchables):
        found: Watchable | None = world.get(key)
        digest = _digest(world, key)
        if found is None or found.digest == digest:
            continue
        world.put(key, Watchable(digest))
        for timer_id in found.watchers:
            timer = world.timer(timer_id)
            assert timer is not None, "a watcher is pending"
            due = replace(timer, trigger_height=max(height, timer.scheduled_at + 1))
            if due.trigger_height <= due.expires_at:
                world.put(due.key, due)
                found_any = True
    world.written_watchables.clear()
    return found_any


def watch_page(timer: Timer) -> dict[str, Any]:
    """The field ``watch`` of a timer's page: the actor and key that it watches; no field if it watches none."""
    watch = timer.watch
    return {} if watch is None else {"watch": {"actor": address_text(watch.actor), "key": watch.key}}


def _digest(world: World, key: bytes) -> bytes:
    """The digest of the value under a watchable key, given the key of its record."""
    value: bytes | None = world.get(STORAGE + key[1:])
    return NO_VALUE if value is None else tagged_hash(b"watched value", value)
