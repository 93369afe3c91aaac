"""Looks at resources: bounded, evenly apart, of every validator."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cluster.record.resources import FIRST_INTERVAL_MS, MAX_LOOKS, ResourceLog
from cluster.record.run import Resources, RunRecord
from tests.cluster.records import make_genesis, make_scenario


def test_looks_are_bounded_and_evenly_apart_however_long_a_run_lasts() -> None:
    record = RunRecord(make_scenario(), "live", 1, "0123456789ab", make_genesis())
    log = ResourceLog(record)
    for number in range(10 * MAX_LOOKS):
        at_ms = number * FIRST_INTERVAL_MS / 2
        for validator in (0, 3):
            log.note(Resources(at_ms, validator, number, number))
    for validator in (0, 3):
        moments = [look.at_ms for look in record.resources if look.validator == validator]
        gaps = {later - earlier for earlier, later in pairwise(moments)}
        assert MAX_LOOKS / 3 < len(moments) <= MAX_LOOKS
        assert moments[0] == 0.0
        assert len(gaps) == 1
        assert moments[-1] + gaps.pop() >= at_ms


def test_a_look_that_comes_too_soon_is_left_out() -> None:
    record = RunRecord(make_scenario(), "live", 1, "0123456789ab", make_genesis())
    log = ResourceLog(record)
    log.note(Resources(0.0, 1, 5, 5))
    log.note(Resources(FIRST_INTERVAL_MS - 1, 1, 6, 6))
    assert not log.is_due(FIRST_INTERVAL_MS - 1, 1)
    assert log.is_due(FIRST_INTERVAL_MS - 1, 2)
    assert [look.disk_bytes for look in record.resources] == [5]


@pytest.mark.parametrize("peak", [100, 101, 102, 103])
def test_a_peak_outlives_the_thinning(peak: int) -> None:
    record = RunRecord(make_scenario(), "live", 1, "0123456789ab", make_genesis())
    log = ResourceLog(record)
    for number in range(3 * MAX_LOOKS):
        high = 1_000 if number == peak else 10
        log.note(Resources(number * FIRST_INTERVAL_MS, 0, high, number, high, float(number), high))
    (seen,) = [look for look in record.resources if look.memory_bytes == 1_000]
    assert seen.open_files == seen.disk_bytes == 1_000
    assert [look.messages_sent for look in record.resources] == sorted(look.messages_sent for look in record.resources)
