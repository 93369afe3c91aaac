"""When a network has recovered, and how far a run has to go to show it."""

from __future__ import annotations

from dataclasses import replace

from cluster.audit.books import keep_books
from cluster.checks.metrics.recovery import longest_timeouts, recovery_of
from cluster.record.finalizations import Finalizations
from cluster.record.run import RunRecord, ViewEntered
from tests.cluster.records import make_record, with_kill


def test_what_was_final_when_the_last_fault_ended_is_told_by_stamps_and_not_by_what_the_driver_had_heard() -> None:
    record = with_kill(make_record())
    fault = record.faults[0]
    assert fault.ended_ms is not None
    final = max(seen.height for seen in record.finalizations if seen.at_ms <= fault.ended_ms)
    record.faults = [replace(fault, height_when_ended=final - 1)]
    assert record.height_when_healed == final
    found = recovery_of(keep_books(record))
    assert found is not None
    assert (found.healed_height, found.took_ms is not None) == (final, True)


def test_a_run_that_ends_with_the_height_that_was_final_then_shows_no_recovery_and_one_more_height_does() -> None:
    record = with_kill(make_record())
    seen, healed = record.finalizations, record.height_when_healed
    record.finalizations = Finalizations(one for one in seen if one.height <= healed)
    ended = recovery_of(keep_books(record))
    record.finalizations = Finalizations(one for one in seen if one.height <= healed + 1)
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
    assert record.height_when_healed == later


def test_without_faults_nothing_has_to_be_finalised_above_genesis() -> None:
    assert make_record().height_when_healed == 0


# --- how long timeouts can have become --------------------------------------------------------------------------------


def seen_record() -> RunRecord:
    """A record with the views of validator 0: it enters each one a millisecond before the block is final."""
    record = with_kill(make_record())
    moments, views = record.first_finalizations, keep_books(record).views
    record.trace.views = [ViewEntered(moments[height] - 1.0, 0, views[height]) for height in sorted(views)]
    return record


def test_who_learns_late_what_is_final_saw_more_views_fail() -> None:
    """Peers keep certificates from a validator that is cut off from all others: blocks are final meanwhile."""
    record = seen_record()
    end_ms = max(seen.at_ms for seen in record.finalizations)
    assert longest_timeouts(keep_books(record), end_ms) == 1
    learns = [replace(seen, at_ms=end_ms) if seen.validator == 0 else seen for seen in record.finalizations]
    record.finalizations = Finalizations(learns)
    late = longest_timeouts(keep_books(record), end_ms)
    assert late > 1
    assert longest_timeouts(keep_books(record), end_ms - 1.0) == longest_timeouts(keep_books(record)) == 1
    record.trace.views = record.trace.views[::2]
    assert longest_timeouts(keep_books(record), end_ms) >= late / 2, "of a long run some views are known"


def test_views_that_a_validator_jumped_over_did_not_fail_for_it() -> None:
    record = seen_record()
    end_ms = max(seen.at_ms for seen in record.finalizations)
    record.finalizations = Finalizations(replace(seen, at_ms=end_ms) for seen in record.finalizations)
    record.trace.views = [*record.trace.views[:2], *record.trace.views[-1:]]
    assert longest_timeouts(keep_books(record), end_ms) == 1
