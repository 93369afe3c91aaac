"""Timers that watch a key of an actor's storage (``docs/policies.md``, *Watching keys*)."""

from __future__ import annotations

from spec.encoding import Hash, tagged
from spec.world import Watch, World

MAX_KEY_BYTES = 256


def digest(world: World, watch: Watch) -> bytes:
    """The digest of a key's value; empty if it has none."""
    value = world.storage.get((watch.actor, watch.key))
    return b"" if value is None else tagged(b"watched value", value)


def _check_key(world: World, key: str) -> None:
    world.refuse("Y-03", "WatchUnavailable", not world.policy.has_watches)
    world.refuse("Y-04", "WatchKeyInvalid", len(key.encode()) > MAX_KEY_BYTES)


def allow(world: World, watch: Watch, allowed: bool) -> bool:
    """Let timers watch a key, or no more. Returns whether that changes anything."""
    _check_key(world, watch.key)
    if allowed == (watch in world.watchable):
        return False
    if allowed:
        world.reached("Y-01")
        world.put(world.watchable, watch, (digest(world, watch), ()))
    else:
        world.reached("Y-02")
        world.drop(world.watchable, watch)
    return True


def require(world: World, watch: Watch) -> None:
    """Raises the error for which a new timer may not watch a key, if there is one."""
    _check_key(world, watch.key)
    if watch not in world.watchable:
        raise world.refusal("Y-05", "WatchNotAllowed")
    watchers = world.watchable[watch][1]
    world.refuse("Y-06", "WatcherLimitReached", len(watchers) >= world.parameters["MAX_WATCHERS_PER_KEY"])


def add(world: World, watch: Watch, timer_id: Hash) -> None:
    seen, watchers = world.watchable[watch]
    world.put(world.watchable, watch, (seen, (*watchers, timer_id)))


def remove(world: World, watch: Watch, timer_id: Hash) -> None:
    seen, watchers = world.watchable.get(watch, (b"", ()))
    if timer_id in watchers:
        world.put(world.watchable, watch, (seen, tuple(each for each in watchers if each != timer_id)))


def look(world: World, height: int) -> None:
    """Make the timers due at ``height`` whose keys have another value than at the look before.

    A timer is due after the block that scheduled it. One that expires before that stays as it is.
    """
    for watch in sorted(world.written_keys):
        now = digest(world, watch)
        if watch not in world.watchable or world.watchable[watch][0] == now:
            continue
        world.reached("Y-07")
        watchers = world.watchable[watch][1]
        world.put(world.watchable, watch, (now, ()))
        for timer_id in watchers:
            timer = world.timers[timer_id]
            due = max(height, timer.scheduled_at + 1)
            if due <= timer.expires_at:
                world.reached("Y-08" if due == world.height else "Y-09")
                world.move_timer(timer._replace(trigger_height=due))
    world.written_keys.clear()
