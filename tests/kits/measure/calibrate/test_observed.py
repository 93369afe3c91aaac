"""Which measurements of a live run the simulator's times are fitted to."""

from __future__ import annotations

from typing import Any

from cluster.record.finalizations import Finalization, Finalizations
from cluster.record.run import FaultRecord, RunRecord, Timings, TracedMessage, Work
from kits.measure.calibrate.observed import Observed, observed_in
from tests.cluster.records import make_record, make_scenario


def record_of(messages: list[TracedMessage], **changes: Any) -> RunRecord:
    record = make_record(scenario=make_scenario(**changes), backend="live")
    record.finalizations = Finalizations()
    record.timings = Timings([Work("build", 1, 2, 900, 800, 5.0)], messages)
    record.finalizations.append(Finalization(500.0, 0, 1))
    record.finalizations.append(Finalization(1_000.0, 0, 2))
    return record


def message(sent_ms: float, received_ms: float | None, sender: int = 0, receiver: int = 1) -> TracedMessage:
    return TracedMessage(sender, receiver, sent_ms, received_ms, "notarize", 3, 100)


def delays_in(record: RunRecord, first_firing_height: int | None = 1) -> list[int]:
    return [round(delay.delay_us / 1_000) for delay in observed_in(record, first_firing_height).delays]


def test_delays_come_with_those_of_their_links() -> None:
    record = record_of([message(600.0, 624.5)])
    (delay,) = observed_in(record, 1).delays
    assert delay == (24_500, 20_000, 5_000)
    assert observed_in(record, 1).work == [Work("build", 1, 2, 900, 800, 5.0)]


def test_messages_are_left_out_while_processes_warm_up() -> None:
    record = record_of([message(400.0, 620.0), message(600.0, 621.0), message(1_100.0, 1_122.0)])
    assert delays_in(record) == [21, 22]
    assert delays_in(record, 2) == [22]
    assert delays_in(record, None) == [220, 21, 22]


def test_messages_are_left_out_whose_ends_were_not_seen() -> None:
    assert delays_in(record_of([message(600.0, None), message(700.0, 721.0)])) == [21]


def test_messages_of_impaired_validators_are_left_out() -> None:
    kill = {"kind": "kill", "target": "validator-1", "at_ms": 900, "down_ms": 3_000}
    messages = [
        message(600.0, 621.0),  # before
        message(2_000.0, 6_000.0),  # waits for its receiver
        message(7_500.0, 7_524.0),  # right after its return
        message(8_500.0, 8_525.0),
        message(2_000.0, 2_022.0, receiver=2),  # of two others
        message(890.0, 910.0),  # on its way when the fault began
    ]
    record = record_of(messages, faults=[kill])
    record.faults = [FaultRecord("kill", "validator-1", None, 900.0, 7_000.0, impaired=("validator-1",))]
    assert delays_in(record) == [21, 25, 22]
    assert observed_in(record, 1).starts_us == [3_100_000]
    record.faults = []  # planted: the fault is not known
    assert len(delays_in(record)) == len(messages)


def test_no_message_counts_while_links_fail() -> None:
    partition = {"kind": "partition", "groups": [["validator-0"]], "at_ms": 900, "for_ms": 1_000}
    record = record_of([message(1_000.0, 1_020.0, 2, 3), message(3_500.0, 3_521.0, 2, 3)], faults=[partition])
    record.faults = [FaultRecord("partition", "", None, 900.0, 1_900.0)]
    assert delays_in(record) == [21]
    assert observed_in(record, 1).starts_us == []


def test_a_fault_that_never_ended_has_no_restart() -> None:
    kill = {"kind": "kill", "target": "validator-1", "at_ms": 900, "down_ms": 3_000}
    record = record_of([message(99_000.0, 99_021.0)], faults=[kill])
    record.faults = [FaultRecord("kill", "validator-1", None, 900.0, impaired=("validator-1",))]
    assert observed_in(record, 1) == Observed([Work("build", 1, 2, 900, 800, 5.0)], [], [])


def test_runs_are_added_up() -> None:
    first = observed_in(record_of([message(600.0, 621.0)]), 1)
    first.add(observed_in(record_of([message(700.0, 722.0)]), 1))
    assert [delay.delay_us for delay in first.delays] == [21_000, 22_000]
    assert len(first.work) == 2
