"""When a network has recovered, and how far a run has to go to show it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cluster.audit.books import keep_books
from cluster.checks.metrics.recovery import longest_timeouts, recovery_of
from cluster.common.interrupts import Interrupts
from cluster.live.driver.driver import _LiveRun
from cluster.live.driver.supervised_host import Phase
from cluster.live.web.addresses import ON_THE_LOOPBACK
from cluster.record.finalizations import Finalization, Finalizations
from cluster.record.run import UNOBSERVED, FaultRecord, RunRecord, RunRequest, ViewEntered
from cluster.scenario import Scenario
from cluster.simulation.driver import Simulation
from tests.cluster.records import make_record, with_kill
from validator.node.events import BlockFinal
from validator.primitives.types import Hash, Height


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


# --- runs end where a recovery can be seen ----------------------------------------------------------------------------

LITTLE = Scenario.model_validate(
    {
        "name": "little",
        "consensus": {"block_interval_ms": 100, "signatures": "keyed-hash"},
        "stop": {"height": 5, "drain_blocks": 1},
    }
)


def fault_that_ended(at_ms: float, heard_height: int) -> FaultRecord:
    return FaultRecord("pause", "validator-0", 1, 1.0, at_ms, True, "", 1, heard_height)


def test_a_simulated_run_goes_on_to_a_height_above_what_was_final_when_the_last_fault_ended() -> None:
    simulation = Simulation(LITTLE, 1, "test")
    record = simulation.run()
    assert simulation._is_over()
    last_ms = max(seen.at_ms for seen in record.finalizations)
    record.faults.append(fault_that_ended(last_ms, heard_height=1))
    assert not simulation._is_over(), "everything was final by then"
    record.faults[0].ended_ms = min(seen.at_ms for seen in record.finalizations if seen.height == 6) - 1.0
    assert simulation._is_over()


def test_a_live_run_goes_on_to_a_height_above_what_was_final_when_the_last_fault_ended(tmp_path: Path) -> None:
    def host_at(height: int) -> SimpleNamespace:
        states = {0: SimpleNamespace(height=height, diverged=None)}
        reports = SimpleNamespace(states=states)
        return SimpleNamespace(phase=Phase.UP, reports=reports, is_started=lambda goal: True)

    with Interrupts() as interrupts:
        run = _LiveRun(RunRequest(LITTLE, 1, "test", tmp_path), UNOBSERVED, interrupts, ON_THE_LOOPBACK)
    for height in range(1, 8):
        run.record.finalizations.append(Finalization(100.0 * height, 0, height))
    run._watch._newest = BlockFinal(Height(7), 7, Hash(b""), Hash(b""), 0, 0, 0, 0, 0, 0, 0, 0)
    hosts: Any = SimpleNamespace(all=[host_at(7)])
    assert run._is_over(hosts)
    run.record.faults.append(fault_that_ended(750.0, heard_height=5))
    assert not run._is_over(hosts), "the driver had heard of height 5, and 7 was final"
    run.record.faults[0].ended_ms = 650.0
    assert run._is_over(hosts)
    hosts.all.append(host_at(6))
    assert not run._is_over(hosts), "one of them has not got so far"


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
