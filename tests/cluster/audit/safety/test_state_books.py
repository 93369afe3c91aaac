"""The records of a state: those of a right one agree, and each one that is changed, missing or left over is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from cluster.audit.safety.state_books import contradictions
from validator.chain import records
from validator.chain.records import (
    Account,
    Actor,
    ActorJobs,
    Completion,
    Fires,
    Globals,
    Job,
    JobCounters,
    JobEnd,
    QueuedMessage,
    Timer,
    Watch,
    Watchable,
)
from validator.primitives.codec import tagged_hash
from validator.primitives.types import Address, Hash, TimerId

ACTOR = Address(b"\x01" * 20)
OTHER = Address(b"\x02" * 20)
RUNNERS = (Address(b"\x03" * 20), Address(b"\x04" * 20))
SHORT, LONG = TimerId(b"\x11" * 32), TimerId(b"\x12" * 32)
OPEN, COMPLETE, CONSUMED = Hash(b"\x21" * 32), Hash(b"\x22" * 32), Hash(b"\x23" * 32)
WATCHED = records.watchable_key(OTHER, "k")
CODE, SOURCE = records.python_code("class Nothing(Actor):\n    pass\n")


def timer(timer_id: TimerId, payload: bytes | None) -> Timer:
    return Timer(timer_id, ACTOR, 40, 7, "", payload, ACTOR, None, 90, None, None, None, None, 20)


def watching(timer_id: TimerId) -> Timer:
    """A timer with a short payload that watches a key; it is due after its expiry while the key has not changed."""
    return replace(timer(timer_id, b"short"), watch=Watch(OTHER, "k"), trigger_height=91, bid=0)


def job(*runners: Address, consumed: bool = False) -> Job:
    return Job(ACTOR, "done", 2, 60, runners, consumed)


def right() -> dict[bytes, Any]:
    """Records that agree: two timers, two messages, and a job of each kind."""
    numbers = dict.fromkeys(Globals.__struct_fields__, 0)
    numbers |= {"first_message": 4, "next_message": 6, "live_timers": 2, "minted": 100, "burned_user": 30}
    return {
        records.GLOBALS: Globals(**numbers),
        records.account_key(ACTOR): Account(60, 1),
        records.account_key(OTHER): Account(10, 0),
        records.actor_key(ACTOR): Actor(CODE, OTHER, 0, 2, 3),
        SOURCE: "class Nothing(Actor):\n    pass\n",
        records.timer_key(SHORT): timer(SHORT, b"short"),
        records.timer_key(LONG): timer(LONG, None),
        records.timer_payload_key(LONG): b"long",
        records.supply_key(40): 5,
        records.fires_key(12): Fires(((ACTOR, 1),)),
        records.message_key(4): QueuedMessage(ACTOR, OTHER, "take", b"a", 1, 1),
        records.message_key(5): QueuedMessage(ACTOR, OTHER, "take", b"bc", 1, 1),
        records.job_key(OPEN): job(RUNNERS[0]),
        records.job_payload_key(OPEN): b"work",
        records.job_result_key(OPEN, RUNNERS[0]): b"one",
        records.job_key(COMPLETE): job(*RUNNERS),
        records.job_result_key(COMPLETE, RUNNERS[0]): b"one",
        records.job_result_key(COMPLETE, RUNNERS[1]): b"two",
        records.completion_key(8): Completion(COMPLETE, 20),
        records.job_key(CONSUMED): job(*RUNNERS, consumed=True),
        records.job_end_key(2): JobEnd(OPEN, 60),
        records.job_end_key(3): JobEnd(COMPLETE, 60),
        records.job_end_key(4): JobEnd(CONSUMED, 60),
        records.JOB_COUNTERS: JobCounters(8, 9, 2, 5),
        records.actor_jobs_key(ACTOR): ActorJobs(9, 2),
        records.actor_jobs_key(OTHER): ActorJobs(1, 0),
    }


def told(state: Mapping[bytes, Any], first_priced: int = 1) -> list[str]:
    items = ((key, records.encode_record(key, value)) for key, value in state.items() if value is not None)
    return contradictions(items, first_priced, window_begins=12)


def test_a_right_state_has_no_contradiction() -> None:
    assert told(right()) == []


def watched() -> dict[bytes, Any]:
    """Records that agree, of which a timer watches a key."""
    digest = tagged_hash(b"watched value", b"v")
    return right() | {
        records.timer_key(SHORT): watching(SHORT),
        records.storage_key(OTHER, "k"): b"v",
        WATCHED: Watchable(digest, (SHORT,)),
    }


def test_a_timer_that_watches_a_key_contradicts_nothing() -> None:
    assert told(watched()) == []
    unheeded = watched()[WATCHED]._replace(watchers=())
    assert told(watched() | {WATCHED: unheeded}) == []
    assert told(watched() | {WATCHED: None}) == []


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (records.storage_key(OTHER, "k"), b"w", "other values of the watched keys 02020202"),
        (records.storage_key(OTHER, "k"), None, "other values of the watched keys 02020202"),
        (WATCHED, Watchable(b"", (SHORT,)), "other values of the watched keys 02020202"),
        (records.timer_key(SHORT), timer(SHORT, b"short"), "watchers of keys that do not watch them: 11111111"),
        (
            records.timer_key(SHORT),
            replace(watching(SHORT), trigger_height=40),
            "watchers of keys that do not watch them: 11111111",
        ),
        (records.timer_key(SHORT), None, "watchers of keys that do not watch them: 11111111"),
    ],
)
def test_a_watch_that_is_wrong_or_left_over_is_told(key: bytes, value: Any, expected: str) -> None:
    found = told(watched() | {key: value})
    assert any(what.startswith(expected) for what in found), found


def test_timers_that_were_due_before_any_was_priced_stand_by_the_first_supply() -> None:
    state = right() | {records.supply_key(40): None, records.supply_key(50): 5}
    assert told(state) == ["supplied fees of heights [50], of which no timer is live"]
    assert told(state, first_priced=50) == []


def test_an_empty_chain_has_none() -> None:
    assert told({records.GLOBALS: replace(right()[records.GLOBALS], next_message=4, live_timers=0, minted=30)}) == []


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (records.fires_key(11), Fires(((ACTOR, 1),)), "fires of height 11, and the window begins at 12"),
        (records.timer_payload_key(LONG), None, "payloads of timers: 12121212"),
        (records.timer_payload_key(SHORT), b"left", "payloads of timers: 11111111"),
        (records.supply_key(41), 5, "supplied fees of heights [41], of which no timer is live"),
        (records.timer_key(SHORT), None, "2 live timers are counted, and there are 1"),
        (records.actor_key(ACTOR), Actor(CODE, OTHER, 0, 1, 3), "timers and mailbox bytes of actors: "),
        (records.actor_key(ACTOR), Actor(CODE, OTHER, 0, 2, 4), "timers and mailbox bytes of actors: "),
        (records.actor_key(ACTOR), None, "timers and mailbox bytes of actors: "),
        (SOURCE, None, "no source of the programs"),
        (records.job_payload_key(COMPLETE), b"left", "payloads of jobs: 22222222"),
        (records.job_payload_key(OPEN), None, "payloads of jobs: 21212121"),
        (records.job_result_key(CONSUMED, RUNNERS[0]), b"left", "results of jobs: 23232323"),
        (records.job_result_key(OPEN, RUNNERS[0]), None, "results of jobs: 21212121"),
        (records.actor_jobs_key(ACTOR), ActorJobs(9, 3), "unsettled jobs: "),
        (records.completion_key(8), Completion(OPEN, 20), "callbacks that wait: 21212121"),
        (records.job_end_key(2), JobEnd(COMPLETE, 60), "jobs without an end: 21212121"),
        (records.message_key(4), None, "messages are numbered [5] …, not from 4 to 6"),
        (records.completion_key(9), Completion(COMPLETE, 20), "callbacks are numbered [8, 9] …, not from 8 to 9"),
        (records.job_end_key(5), JobEnd(OPEN, 60), "ends of jobs are numbered [2, 3, 4] …, not from 2 to 5"),
        (
            records.timer_key(SHORT),
            replace(timer(SHORT, b"short"), bid=9),
            "0 are locked, and the bids of live timers are 9",
        ),
        (records.account_key(OTHER), Account(11, 0), "71 are held and 30 burned of 100 minted"),
    ],
)
def test_a_record_that_is_wrong_missing_or_left_over_is_told(key: bytes, value: Any, expected: str) -> None:
    found = told(right() | {key: value})
    assert any(what.startswith(expected) for what in found), found
