"""Measures of a load: bounded, and the same whether one process notes everything or several do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.workloads import measures
from loadgen.workloads.measures import (
    FIRST_WIDTH_MS,
    MAX_BUCKETS,
    LoadTimeline,
    Sends,
    send_key,
    slot_ms,
    time_slot,
)

KEY = b"k" * 32


def filled(nonces: range) -> Sends:
    sends = Sends()
    for nonce in nonces:
        sends.note("transfer" if nonce % 3 else "flood", send_key(KEY, nonce), nonce, nonce)
    return sends


def test_due_times_are_bounded_and_chosen_by_the_key_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "MAX_KEPT", 64)
    whole = filled(range(1_000))
    kept = [each.due for each in whole.workloads.values()]
    assert 16 <= sum(map(len, kept)) <= 64
    assert sum(each.sent for each in whole.workloads.values()) == 1_000, "counts are of all"
    parts = [filled(range(start, 1_000, 4)) for start in range(4)]
    total = Sends()
    for part in parts:
        total = total.plus(part)
    assert total == whole
    backwards = filled(range(999, -1, -1))
    assert backwards == whole


def test_a_few_are_kept_all() -> None:
    sends = filled(range(100))
    assert sends.chosen_bits == 0
    assert sum(len(each.due) for each in sends.workloads.values()) == 100


def test_a_transaction_that_is_given_up_is_not_waited_for() -> None:
    sends = filled(range(2))
    sends.give_up("transfer", send_key(KEY, 1))
    sends.skip("transfer", 5)
    sends.leave_out("transfer", 4)
    found = sends.workloads["transfer"]
    assert (found.due, found.waited_ms, found.rejected, found.skipped, found.unsent) == ({}, {}, 1, 5, 4)
    assert found.sent == 1
    both = sends.plus(sends).workloads["transfer"]
    assert (both.rejected, both.skipped, both.unsent, both.sent) == (2, 10, 8, 2)


def test_a_nonce_that_is_sent_again_counts_from_the_first_time() -> None:
    sends, key = Sends(), send_key(KEY, 1)
    assert [sends.note("a", key, due_ms, due_ms) for due_ms in (5, 9)] == [False, True]
    sends.give_up("a", key, is_last=False)
    found = sends.workloads["a"]
    assert (found.due, found.sent, found.rejected) == ({key: 5}, 2, 1)
    sends.give_up("a", key)
    assert not sends.note("a", key, 12, 12)
    assert (found.due, found.rejected) == ({key: 12}, 2)


def test_late_is_more_than_the_limit_after_the_due_time() -> None:
    sends = Sends()
    for late_ms in (0, 100, 101):
        sends.note("a", send_key(KEY, late_ms), 1_000, 1_000 + late_ms)
    assert (sends.workloads["a"].late, sends.late) == (1, 1)
    assert sends.workloads["a"].waited_ms == {send_key(KEY, 101): 101}
    assert sends.plus(Sends()) == sends
    sends.choose(64)
    assert sends.workloads["a"].waited_ms == {}, "it is kept of what is chosen"
    sends.choose(0)
    sends.note("a", send_key(KEY, 7), 0, 500)
    assert sends.workloads["a"].waited_ms == {send_key(KEY, 7): 500}
    sends.give_up("a", send_key(KEY, 7))
    assert sends.workloads["a"].waited_ms == {}, "its nonce goes to another transaction"


# --- over time ------------------------------------------------------------------------------------------------------


def test_requests_are_counted_where_they_happen() -> None:
    timeline = LoadTimeline()
    timeline.requested(999.9)
    timeline.requested(1_000)
    timeline.failed(1_500)
    timeline.answered(1_600, 7.0)
    first, second = timeline.buckets[0], timeline.buckets[1]
    assert (first.requests, first.failures, second.requests, second.failures) == (1, 0, 1, 1)
    assert second.times == {time_slot(7.0): 1}


def test_a_load_of_days_stays_bounded_and_loses_nothing() -> None:
    timeline, seconds = LoadTimeline(), 3 * 86_400
    for second in range(0, seconds, 20):
        timeline.requested(1_000.0 * second)
        timeline.answered(1_000.0 * second, second % 50)
    assert MAX_BUCKETS // 4 <= len(timeline.buckets) <= MAX_BUCKETS
    assert timeline.width_ms == FIRST_WIDTH_MS * 2 ** (timeline.width_ms // FIRST_WIDTH_MS).bit_length() // 2
    assert sum(bucket.requests for bucket in timeline.buckets.values()) == seconds // 20
    assert sum(sum(bucket.times.values()) for bucket in timeline.buckets.values()) == seconds // 20
    assert len(timeline.model_dump_json()) < 200_000


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2_000_000), st.integers(0, 2), st.integers(0, 9_000)), max_size=80))
def test_several_processes_make_the_same_timeline(events: list[tuple[int, int, int]]) -> None:
    def of(some: list[tuple[int, int, int]]) -> LoadTimeline:
        timeline = LoadTimeline()
        for at_ms, kind, took_ms in some:
            if kind == 0:
                timeline.requested(at_ms)
            elif kind == 1:
                timeline.failed(at_ms)
            else:
                timeline.answered(at_ms, took_ms)
        return timeline

    assert of(events[::2]).plus(of(events[1::2])) == of(events)
    assert LoadTimeline.model_validate_json(of(events).model_dump_json()) == of(events)


@settings(deadline=None)
@given(st.floats(0, 10**8))
def test_a_slot_is_close_to_its_times(took_ms: float) -> None:
    assert slot_ms(time_slot(took_ms)) == pytest.approx(took_ms, rel=1 / 16, abs=0.11)


@settings(deadline=None)
@given(st.floats(0, 10**7), st.floats(0, 10**7))
def test_slots_are_in_the_order_of_their_times(first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert time_slot(low) <= time_slot(high)
    assert slot_ms(time_slot(low)) <= slot_ms(time_slot(high))
