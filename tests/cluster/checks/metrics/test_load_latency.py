"""Latency of the load: from the intended send to the first finalization, and what was never final."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from cluster.audit.books import keep_books
from cluster.checks.metrics.load_latency import (
    WorkloadLatency,
    from_send_p99_ms,
    latencies_of,
    latency_metrics,
    latency_text,
    load_latencies,
    load_moments,
    response_times,
)
from cluster.record.finalizations import Finalization
from cluster.record.run import LoadRecord, RunRecord
from loadgen.workloads.measures import LoadTimeline, Sends, send_key
from tests.cluster.records import USER, make_record

KEY = bytes(USER.verify_key)
WAIT_MS = 1_234


def heights_of(record: RunRecord) -> list[int]:
    """Of the user's transactions, by nonce."""
    blocks = keep_books(record).ledger.blocks
    return [height for height, count in enumerate(blocks.transactions, 1) for _ in range(count)]


def with_sends(record: RunRecord, wait_ms: int = WAIT_MS) -> tuple[RunRecord, Sends]:
    """Each transaction was to be sent so long before its block was final."""
    sends = Sends()
    for nonce, height in enumerate(heights_of(record)):
        due_ms = int(record.first_finalizations[height]) - wait_ms - nonce
        sends.note("flood" if nonce % 2 else "transfer", send_key(KEY, nonce), due_ms, due_ms)
    return replace(record, load=LoadRecord(sends=sends)), sends


def found_in(record: RunRecord) -> dict[str, WorkloadLatency]:
    return {found.workload: found for found in load_latencies(keep_books(record))}


def test_latency_ends_with_the_first_finalization() -> None:
    record, _ = with_sends(make_record())
    count = len(heights_of(record))
    found = found_in(record)
    assert list(found) == ["flood", "transfer"]
    assert sorted(latency for each in found.values() for latency in each.latencies_ms) == pytest.approx(
        [WAIT_MS + nonce for nonce in range(count)], abs=1
    )
    transfer = found["transfer"]
    assert (transfer.sent, transfer.final, transfer.never_final) == (-(-count // 2), -(-count // 2), 0)
    assert transfer.quantiles_ms["p50"] == sorted(transfer.latencies_ms)[(len(transfer.latencies_ms) - 1) // 2]
    assert transfer.page["latency_max_ms"] == max(transfer.latencies_ms)


def test_the_finalization_of_a_byzantine_validator_ends_nothing() -> None:
    record, _ = with_sends(make_record(), wait_ms=1)
    honest = found_in(record)
    for height in record.first_finalizations:
        record.finalizations.append(Finalization(0.0, 3, height))
    hasty = found_in(record)
    nodes = [{}, {}, {}, {"byzantine": "garbage"}]
    scenario = record.scenario.model_validate({"name": "a", "validators": {"count": 4, "nodes": nodes}})
    assert max(hasty["flood"].latencies_ms) == 0, "it finalized before the send: the fault is planted"
    assert found_in(replace(record, scenario=scenario))["flood"].latencies_ms == honest["flood"].latencies_ms


def test_a_live_run_s_due_times_are_since_the_epoch() -> None:
    record, sends = with_sends(make_record())
    expected = found_in(record)["flood"].latencies_ms
    for each in sends.workloads.values():
        each.due = {key: due_ms + 10**12 for key, due_ms in each.due.items()}
    record.began_epoch_ms = 10.0**12
    assert found_in(record)["flood"].latencies_ms == pytest.approx(expected, abs=0.01)


def test_what_is_in_no_final_block_is_never_final() -> None:
    record, sends = with_sends(make_record())
    sends.note("flood", send_key(KEY, 999), 5, 5)
    sends.note("flood", send_key(b"x" * 32, 0), 5, 5)
    sends.note("refused", send_key(KEY, 1_000), 5, 5)
    sends.give_up("refused", send_key(KEY, 1_000))
    found = found_in(record)
    assert found["flood"].never_final == 2
    assert (found["refused"].never_final, found["refused"].rejected) == (0, 1)
    assert set(found["refused"].quantiles_ms.values()) == {None}


def test_what_was_lost_is_later_than_any_bound() -> None:
    """Else the quantiles of a load are the better, the more of its slowest part is lost."""
    found = WorkloadLatency("flood", 100, 0, 0, 0, measured=100, final=94, latencies_ms=[float(ms) for ms in range(94)])
    assert found.quantiles_ms == {"p50": 49.0, "p95": inf, "p99": inf, "max": inf}
    assert (found.page["latency_p50_ms"], found.page["latency_p95_ms"]) == (49.0, None), "JSON has no infinity"
    assert latency_metrics([found])["load_latency_p95_ms"] == inf
    assert [latency_text(each) for each in (49.0, inf, None)] == ["49", "never", "–"]
    skipping = WorkloadLatency("flood", 94, 0, 0, 6, 94, 94, found.latencies_ms, measured_skipped=6)
    assert skipping.quantiles_ms == found.quantiles_ms


def test_of_a_long_load_as_large_a_part_of_the_skipped_turns_counts() -> None:
    sends = Sends()
    for nonce in range(64):
        sends.note("flood", send_key(KEY, nonce), nonce, nonce)
    sends.skip("flood", 9)
    assert latencies_of(sends, ())[0].measured_skipped == 9
    sends.choose(2)
    (found,) = latencies_of(sends, ())
    assert (found.measured_skipped, found.skipped, found.sent) == (3, 9, 64)


def test_the_time_before_a_late_send_is_not_the_testnets() -> None:
    sends = Sends()
    sends.note("flood", send_key(KEY, 0), 1_000, 1_050)
    sends.note("flood", send_key(KEY, 1), 1_000, 1_400)
    (found,) = latencies_of(sends, [(send_key(KEY, nonce), 2_000.0) for nonce in (0, 1)])
    assert (found.latencies_ms, found.from_send_ms) == ([1_000.0, 1_000.0], [1_000.0, 600.0])
    assert from_send_p99_ms([found]) == 1_000.0
    sends.note("flood", send_key(KEY, 2), 1_000, 1_000)
    assert from_send_p99_ms(latencies_of(sends, [(send_key(KEY, 0), 2_000.0)])) == inf


def test_response_times_are_those_of_all_stretches() -> None:
    timeline = LoadTimeline()
    for at_ms in range(0, 100_000, 1_000):
        timeline.answered(at_ms, 40 if at_ms < 97_000 else 4_000)
    found = response_times(timeline)
    assert found == {"p50": pytest.approx(40, rel=1 / 16), "p95": found["p50"], "p99": pytest.approx(4_000, rel=1 / 16)}
    assert response_times(LoadTimeline()) == {}


def test_metrics_are_of_all_workloads_together() -> None:
    record, sends = with_sends(make_record())
    found = load_latencies(keep_books(record))
    everything = [latency for each in found for latency in each.latencies_ms]
    assert latency_metrics(found)["load_latency_max_ms"] == max(everything)
    sends.skip("flood", 3)
    sends.leave_out("flood", 2)
    found = load_latencies(keep_books(record))
    metrics = latency_metrics(found)
    assert metrics["load_latency_max_ms"] == inf, "a turn that was not taken is later than all that were"
    assert (metrics["load_turns_skipped"], metrics["load_transactions_late"]) == (3, 0)
    assert metrics["load_transactions_unsent"] == sum(each.page["unsent"] for each in found) == 2
    assert latency_metrics([]) == {}


def test_moments_of_a_timeline_have_no_gaps() -> None:
    timeline = LoadTimeline()
    timeline.requested(10_500)
    timeline.answered(10_500, 40)
    timeline.requested(13_000)
    timeline.failed(13_000)
    moments = load_moments(timeline, 10_000.0)
    assert [(moment.at_ms, moment.requests, moment.failures) for moment in moments] == [
        (0, 1, 0),
        (1_000, 0, 0),
        (2_000, 0, 0),
        (3_000, 1, 1),
    ]
    assert moments[0].times_ms["p99"] == pytest.approx(40, rel=1 / 16)
    assert [bool(moment.times_ms) for moment in moments] == [True, False, False, False]
    assert load_moments(LoadTimeline(), 0.0) == []
