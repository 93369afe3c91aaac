"""When a network has recovered, and how far a run has to go to show it."""

from __future__ import annotations

from dataclasses import replace

from cluster.books import keep_books
from cluster.recovery import height_when_healed, recovery_of
from tests.cluster.records import make_record, with_kill


def test_what_was_final_when_the_last_fault_ended_is_told_by_stamps_and_not_by_what_the_driver_had_heard() -> None:
    record = with_kill(make_record())
    fault = record.faults[0]
    assert fault.ended_ms is not None
    final = max(seen.height for seen in record.finalizations if seen.at_ms <= fault.ended_ms)
    record.faults = [replace(fault, height_when_ended=final - 1)]
    assert height_when_healed(record) == final
    found = recovery_of(keep_books(record))
    assert found is not None
    assert (found.healed_height, found.took_ms is not None) == (final, True)


def test_a_run_that_ends_with_the_height_that_was_final_then_shows_no_recovery_and_one_more_height_does() -> None:
    record = with_kill(make_record())
    seen, healed = record.finalizations, height_when_healed(record)
    record.finalizations = [one for one in seen if one.height <= healed]
    ended = recovery_of(keep_books(record))
    record.finalizations = [one for one in seen if one.height <= healed + 1]
    went_on = recovery_of(keep_books(record))
    assert ended is not None
    assert ended.took_ms is None
    assert went_on is not None
    assert went_on.took_ms is not None


def test_of_several_faults_the_last_one_counts_and_those_under_way_do_not() -> None:
    record = with_kill(make_record())
    first = record.faults[0]
    assert first.ended_ms is not None
    record.faults += [replace(first, ended_ms=first.ended_ms + 1_000.0), replace(first, ended_ms=None)]
    later = max(seen.height for seen in record.finalizations if seen.at_ms <= first.ended_ms + 1_000.0)
    assert height_when_healed(record) == later


def test_without_faults_nothing_has_to_be_finalised_above_genesis() -> None:
    assert height_when_healed(make_record()) == 0
