"""Finds contradictions within one state, without knowing the chain that led to it.

Every count, queue and reference must be right, and records of ended items must be gone. The table of records is in
:mod:`validator.chain.records`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from spec.watches import digest_of
from validator.chain import records
from validator.chain.records import Account, Actor, Globals, Job, JobCounters, Timer, Watchable
from validator.primitives.types import BID_ESCROW_ADDRESS, HASH_BYTES

MOST: Final = 3
"""The most wrong records of one kind that a contradiction names."""

Records = Mapping[bytes, Any]
"""The decoded records of one kind, by their state key without the kind's prefix."""


def contradictions(items: Iterable[tuple[bytes, bytes]], first_priced: int, window_begins: int) -> list[str]:
    """The contradictions in a whole state, in words. ``items`` are the state's keys and values.

    ``first_priced``: the first height at which timers are priced. ``window_begins``: the oldest height whose fires are
    in the fairness window.
    """
    state: dict[bytes, dict[bytes, Any]] = {}
    for key, value in items:
        state.setdefault(key[:1], {})[key[1:]] = records.decode_record(key, value)
    return [
        *_window(state, window_begins),
        *_timers(state, first_priced),
        *_watches(state),
        *_actors(state),
        *_jobs(state),
        *_queues(state),
        *_money(state),
    ]


def _window(state: Mapping[bytes, Records], begins: int) -> Iterator[str]:
    heights = _numbers(state, records.FIRES)
    if heights and heights[0] < begins:
        yield f"fires of height {heights[0]:,}, and the window begins at {begins:,}"


def _timers(state: Mapping[bytes, Records], first_priced: int) -> Iterator[str]:
    timers: Mapping[bytes, Timer] = state.get(records.TIMER, {})
    long = {key for key, timer in timers.items() if timer.payload is None}
    yield from _same("payloads of timers", set(state.get(records.TIMER_PAYLOAD, ())), long)
    supplied = {max(timer.trigger_height, first_priced) for timer in timers.values()}
    if idle := [height for height in _numbers(state, records.SUPPLY) if height not in supplied]:
        yield f"supplied fees of heights {idle[:MOST]}, of which no timer is live"
    total = _globals(state).live_timers
    if total != len(timers):
        yield f"{total:,} live timers are counted, and there are {len(timers):,}"


def _watches(state: Mapping[bytes, Records]) -> Iterator[str]:
    """Check that each watched key has its value's digest, and that its watchers are live timers that watch it."""
    timers: Mapping[bytes, Timer] = state.get(records.TIMER, {})
    values: Mapping[bytes, bytes] = state.get(records.STORAGE, {})
    watchables: Mapping[bytes, Watchable] = state.get(records.WATCHABLE, {})
    stale = {key for key, found in watchables.items() if found.digest != digest_of(values.get(key))}
    if stale:
        yield f"other values of the watched keys {_named(stale)} than when they were last checked"
    waiting = {
        (timer.watch.actor + timer.watch.key.encode(), timer_id)
        for timer_id, timer in timers.items()
        if timer.watch is not None and timer.is_watching
    }
    listed = {(key, bytes(timer_id)) for key, found in watchables.items() for timer_id in found.watchers}
    if listed - waiting:
        yield f"watchers of keys that do not watch them: {_named({timer_id for _, timer_id in listed - waiting})}"


def _actors(state: Mapping[bytes, Records]) -> Iterator[str]:
    actors: Mapping[bytes, Actor] = state.get(records.ACTOR, {})
    timers = Counter(bytes(timer.actor) for timer in state.get(records.TIMER, {}).values())
    mailboxes: Counter[bytes] = Counter()
    for message in state.get(records.MESSAGE, {}).values():
        mailboxes[bytes(message.to)] += len(message.payload)
    counted = {key: (actor.live_timers, actor.mailbox_bytes) for key, actor in actors.items()}
    found = {key: (timers[key], mailboxes[key]) for key in {*actors, *timers, *mailboxes}}
    yield from _same("timers and mailbox bytes of actors", set(counted.items()), set(found.items()))
    programs = {actor.code.removeprefix(records.PYTHON_CODE) for actor in actors.values()}
    sources = {key.hex() for key in state.get(records.CODE, ())}
    if missing := {code for code in programs if len(code) == 2 * HASH_BYTES} - sources:
        yield f"no source of the programs {sorted(missing)[:MOST]}"


def _jobs(state: Mapping[bytes, Records]) -> Iterator[str]:
    jobs: Mapping[bytes, Job] = state.get(records.JOB, {})
    open_jobs = {key for key, job in jobs.items() if not job.is_complete}
    yield from _same("payloads of jobs", set(state.get(records.JOB_PAYLOAD, ())), open_jobs)
    given = {key + bytes(runner) for key, job in jobs.items() if not job.consumed for runner in job.runners}
    yield from _same("results of jobs", set(state.get(records.JOB_RESULT, ())), given)
    unsettled = Counter(bytes(job.actor) for job in jobs.values() if not job.consumed)
    counted = {key: mine.unsettled for key, mine in state.get(records.ACTOR_JOBS, {}).items() if mine.unsettled}
    yield from _same("unsettled jobs", set(counted.items()), set(unsettled.items()))
    waiting = {bytes(each.job_id) for each in state.get(records.COMPLETION, {}).values()}
    awaiting = {key for key, job in jobs.items() if job.awaits_callback}
    yield from _same("callbacks that wait", waiting, awaiting)
    ending = {bytes(end.job_id) for end in state.get(records.JOB_END, {}).values()}
    if endless := set(jobs) - ending - awaiting:
        yield f"jobs without an end: {_named(endless)}"


def _queues(state: Mapping[bytes, Records]) -> Iterator[str]:
    """Check that the messages, callbacks and job ends in queues are numbered without gaps, as the counters say."""
    ends = _globals(state)
    counters: JobCounters = state.get(records.JOB_COUNTERS, {}).get(b"", JobCounters())
    for what, prefix, first, beyond in (
        ("messages", records.MESSAGE, ends.first_message, ends.next_message),
        ("callbacks", records.COMPLETION, counters.first_completion, counters.next_completion),
        ("ends of jobs", records.JOB_END, counters.first_end, counters.next_end),
    ):
        numbers = _numbers(state, prefix)
        if numbers != list(range(first, beyond)):
            yield f"{what} are numbered {numbers[:MOST]} …, not from {first:,} to {beyond:,}"


def _money(state: Mapping[bytes, Records]) -> Iterator[str]:
    """Check that balances and burned amounts are what was minted, and that all bids are locked."""
    ends = _globals(state)
    held = sum(account.balance for account in state.get(records.ACCOUNT, {}).values())
    if held + ends.burned != ends.minted:
        yield f"{held:,} are held and {ends.burned:,} burned of {ends.minted:,} minted"
    escrow: Account = state.get(records.ACCOUNT, {}).get(BID_ESCROW_ADDRESS, Account())
    locked = sum(timer.bid or 0 for timer in state.get(records.TIMER, {}).values())
    if escrow.balance < locked:  # others may pay into it, too
        yield f"{escrow.balance:,} are locked, and the bids of live timers are {locked:,}"


def _numbers(state: Mapping[bytes, Records], prefix: bytes) -> list[int]:
    """The heights or numbers in the keys of a kind, ascending."""
    return sorted(int.from_bytes(key, "big") for key in state.get(prefix, ()))


def _globals(state: Mapping[bytes, Records]) -> Globals:
    found: Globals = state[records.GLOBALS][b""]
    return found


def _same(what: str, found: set[Any], expected: set[Any]) -> Iterator[str]:
    if found - expected:
        yield f"{what}: {_named(found - expected)} too much"
    if expected - found:
        yield f"{what}: {_named(expected - found)} missing"


def _named(keys: Iterable[Any]) -> str:
    return ", ".join(sorted(key.hex() if isinstance(key, bytes) else str(key) for key in keys)[:MOST])
