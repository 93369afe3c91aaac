"""Arrival: an open loop's turns are due by the clock alone, whatever becomes of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.workloads import LoadPlan, LoadUser, Observation
from loadgen.workloads.arrival import LOOK_MS, MAX_WAITING, RETRY_MS, OpenRhythm, Schedule
from loadgen.workloads.measures import LATE_MS, Sends
from loadgen.workloads.phases import Seen
from loadgen.workloads.user import MAX_UNCONFIRMED

CHAIN_ID = "chain"
FEE = 1_000_000


def rhythm(*phases: dict[str, Any], interval_ms: int = 100, first_due_ms: int = 30, **bounds: int) -> OpenRhythm:
    plan = LoadPlan.model_validate({"phases": list(phases)})
    return OpenRhythm(Schedule(interval_ms, plan.phases, **bounds), first_due_ms)


def due_by(found: OpenRhythm, *looks_ms: int) -> list[int]:
    """The turns that are due if the user is looked at at these moments."""
    turns: list[int] = []
    for at_ms in looks_ms:
        found.advance(at_ms)
        while found.waiting:
            turns.append(found.waiting.popleft())
    return turns


# --- the schedule ---------------------------------------------------------------------------------------------------


def test_turns_are_due_an_interval_apart() -> None:
    assert due_by(rhythm(), 500) == [30, 130, 230, 330, 430]


SHAPES: list[dict[str, Any]] = [
    {"kind": "steady", "rate": 2.7, "until_ms": 3_000},
    {"kind": "ramp", "until_ms": 5_000, "to_rate": 6.0},
    {"kind": "step", "until_ms": 5_000, "to_rate": 6.0, "steps": 4},
    {"kind": "spike", "until_ms": 5_000, "rate": 9.0},
    {"kind": "sine", "from_ms": 0, "rate": 2.0, "amplitude": 2.0, "period_ms": 700},
    {"kind": "burst", "from_ms": 0, "rate": 9.0, "base_rate": 0.1, "lasts_ms": 30, "every_ms": 410},
    {"kind": "trace", "from_ms": 0, "points": [[50, 3.0], [1_000, 0.0], [1_777, 5.0]]},
    {"kind": "pause", "from_ms": 500, "until_ms": 3_000},
]


@pytest.mark.parametrize("phase", SHAPES, ids=lambda phase: phase["kind"])
@settings(deadline=None)
@given(st.lists(st.integers(1, 5_000), max_size=20))
def test_by_time_it_does_not_matter_when_a_user_is_looked_at(phase: dict[str, Any], looks_ms: list[int]) -> None:
    once = due_by(rhythm(phase, interval_ms=250), 5_000)
    assert due_by(rhythm(phase, interval_ms=250), *sorted(looks_ms), 5_000) == once
    assert once == sorted(once)


@pytest.mark.parametrize("phase", SHAPES, ids=lambda phase: phase["kind"])
def test_there_are_as_many_turns_as_the_rate_says(phase: dict[str, Any]) -> None:
    found = rhythm(phase, interval_ms=40)
    whole = sum(found.schedule.rate_milli(Seen(at_ms=at_ms)) for at_ms in range(5_000)) / 40_000
    assert len(due_by(found, *range(500, 5_001, 500))) == pytest.approx(whole, abs=1)


@pytest.mark.parametrize("phase", SHAPES, ids=lambda phase: phase["kind"])
def test_a_user_is_looked_at_when_a_turn_is_due(phase: dict[str, Any]) -> None:
    """Each turn is found in the millisecond in which it is due, with few looks in between."""
    found, now_ms, looks = rhythm(phase), 0, 0
    expected = due_by(rhythm(phase), 2_500, 5_000)
    turns = []
    while now_ms <= 5_000:
        now_ms += found.next_delay_ms(now_ms)
        looks += 1
        for due_ms in due_by(found, now_ms):
            assert due_ms == now_ms
            turns.append(due_ms)
    assert [due_ms for due_ms in turns if due_ms <= 5_000] == expected
    assert looks <= len(turns) + 5_000 // LOOK_MS + 2


def test_by_height_the_rate_is_that_of_the_height_known_before() -> None:
    found = rhythm({"kind": "steady", "rate": 2.0, "from_height": 5}, interval_ms=100, first_due_ms=100)
    found.see(Seen(4, 200))
    assert list(found.waiting) == [100, 200]
    found.see(Seen(5, 400))
    assert list(found.waiting) == [100, 200, 300, 400]
    found.see(Seen(5, 600))
    assert list(found.waiting)[4:] == [450, 500, 550, 600]


def test_feedback_changes_what_is_due() -> None:
    phase = {"kind": "feedback", "watches": "backlog", "low": 0, "high": 10, "low_rate": 4.0, "high_rate": 0.0}
    found = rhythm(phase, first_due_ms=100)
    found.see(Seen(1, 100, 0, 0))
    calm = len(due_by(found, 1_100))
    found.see(Seen(2, 1_100, 0, 10))
    assert found.is_paused and found.next_delay_ms(1_100) == LOOK_MS
    assert calm == 41 and due_by(found, 9_000) == []


def test_a_turn_that_comes_due_during_another_one_is_taken_at_once() -> None:
    found = rhythm(interval_ms=40, first_due_ms=40)
    assert due_by(found, 40) == [40]
    assert found.next_delay_ms(95) == 0, "the turn took 55 ms, and the next one is late"
    assert found.next_delay_ms(96) == RETRY_MS, "it could not be taken either"


def test_waiting_turns_are_bounded_and_the_others_are_counted() -> None:
    found = rhythm(interval_ms=10, first_due_ms=10)
    found.advance(10 * (MAX_WAITING + 7))
    assert list(found.waiting) == list(range(10, 10 * MAX_WAITING + 1, 10)), "the oldest ones"
    assert found.skipped == 7
    assert found.next_delay_ms(10 * (MAX_WAITING + 7)) == RETRY_MS


# --- users ----------------------------------------------------------------------------------------------------------


def one_user(arrival: str, sends: Sends, interval_ms: int = 100, workload: str = "transfer") -> LoadUser:
    group = {"workload": workload, "interval_ms": interval_ms, "arrival": arrival}
    (user,) = LoadPlan.model_validate({"users": [group]}).build_users(3, CHAIN_ID)
    user.measure(sends, workload, 0)
    return user


def seen(nonce: int = 0) -> Observation:
    return Observation(1, nonce, FEE, FEE, FEE)


def test_an_open_user_makes_up_for_late_turns_and_counts_from_when_they_were_due() -> None:
    sends = Sends()
    user = one_user("open", sends)
    first_ms = user.first_delay_ms
    assert len(user.next_transactions(seen(), first_ms)) == 1
    assert len(user.next_transactions(seen(1), first_ms + 950)) == 9
    found = sends.workloads["transfer"]
    assert sorted(found.due.values()) == [first_ms + 100 * number for number in range(10)]
    assert (found.sent, found.late) == (10, sum(950 - 100 * number > LATE_MS for number in range(1, 10)))


def test_a_closed_user_leaves_them_out() -> None:
    sends = Sends()
    user = one_user("closed", sends)
    assert [len(user.next_transactions(seen(), now_ms)) for now_ms in (10, 960)] == [1, 1]
    found = sends.workloads["transfer"]
    assert (sorted(found.due.values()), found.late) == ([10, 960], 0)


def test_turns_wait_for_room_and_are_late() -> None:
    sends = Sends()
    user = one_user("open", sends)
    now_ms = user.first_delay_ms + 100 * (MAX_UNCONFIRMED + 3)
    assert len(user.next_transactions(seen(), now_ms)) == MAX_UNCONFIRMED
    assert user.next_transactions(seen(), now_ms + 1) == []
    assert user.has_due_turns(now_ms + 1) and user.next_delay_ms(now_ms + 1) == RETRY_MS
    assert len(user.next_transactions(seen(MAX_UNCONFIRMED), now_ms + 60)) == 4
    assert sends.workloads["transfer"].sent == MAX_UNCONFIRMED + 4


def test_turns_that_are_never_taken_are_counted() -> None:
    sends = Sends()
    one_user("open", sends, interval_ms=1).end(MAX_WAITING + 100)
    one_user("closed", sends).end(100_000)
    assert sends.workloads["transfer"].skipped == MAX_WAITING + 100


def test_what_a_turn_has_no_room_for_is_counted() -> None:
    sends = Sends()
    user = one_user("open", sends, workload="transfer-spam")
    assert len(user.next_transactions(seen(), user.first_delay_ms)) == MAX_UNCONFIRMED
    assert len(user.next_transactions(seen(3), user.first_delay_ms + 100)) == 3, "of 16 there is room for so many"
    found = sends.workloads["transfer-spam"]
    assert (found.sent, found.unsent, len(found.due)) == (MAX_UNCONFIRMED + 3, 13, MAX_UNCONFIRMED + 3)
    closed = one_user("closed", sends, workload="transfer-spam")
    assert [len(closed.next_transactions(seen(3 * turn), 10 + turn)) for turn in range(2)] == [MAX_UNCONFIRMED, 3]
    assert found.unsent == 13, "a closed loop leaves out anyhow"


def test_lost_transactions_are_sent_again_beside_due_turns() -> None:
    sends = Sends()
    user = one_user("open", sends)
    wires = user.next_transactions(seen(), user.first_delay_ms)
    user.undelivered(wires)
    again = user.next_transactions(seen(), user.first_delay_ms + 100)
    assert again[0] == wires[0] and len(again) == 2
    found = sends.workloads["transfer"]
    assert (found.sent, sorted(found.due.values())) == (2, [user.first_delay_ms, user.first_delay_ms + 100])


def test_a_refused_transaction_counts_as_rejected_and_not_as_one_that_never_became_final() -> None:
    sends = Sends()
    user = one_user("open", sends)
    (wire,) = user.next_transactions(seen(), user.first_delay_ms)
    user.rejected(wire)
    found = sends.workloads["transfer"]
    assert (found.sent, found.rejected, found.due) == (1, 1, {})


def test_arrival_changes_nothing_about_who_the_users_are() -> None:
    first, second = one_user("open", Sends()), one_user("closed", Sends())
    assert (first.address, first.first_delay_ms) == (second.address, second.first_delay_ms)
    assert first.next_transactions(seen(), 10**6)[0] == second.next_transactions(seen(), 10**6)[0]
