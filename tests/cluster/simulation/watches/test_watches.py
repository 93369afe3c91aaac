"""Checks that an event does not concern are left out: with all checks of all events, the watches find the same."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from cluster.record.run import MonitorRecord
from cluster.scenario import Scenario
from cluster.simulation.driver import Simulation
from cluster.simulation.watches.models.kinds import Check
from cluster.simulation.watches.watches import Watches
from consensus.interface import TimerKind
from consensus.keys import KeyedHashScheme
from consensus.messages import Certificate
from validator.chain.messages import TransactionsMessage, encode_message
from validator.node.events import (
    Append,
    Completed,
    Diverged,
    Event,
    EvidenceFound,
    Message,
    Send,
    Started,
    Synced,
    Timeout,
)
from validator.node.executor.jobs import Execute, Executed

NAMES = [f"validator-{index}" for index in range(4)]
CONSENSUS = {"block_interval_ms": 100, "leader_timeout_ms": 400, "advance_timeout_ms": 600, "rebroadcast_ms": 300}
FAULTS = [
    {"kind": "clock_skew", "at_height": 4, "target": NAMES[0], "factor": 5.0, "for_ms": 4_000},
    {"kind": "kill", "at_height": 5, "target": NAMES[1], "down_ms": 900},
    {"kind": "pause", "at_height": 12, "target": [NAMES[2]], "for_ms": 900},
]
NODES = [{"byzantine": ["conflicting-voter", "short-certificate", "silent-leader"]}]
EVERYTHING = frozenset({Append, Diverged, Execute, EvidenceFound})
SHAPES: list[tuple[type[Event], type | str]] = [
    (Started, Started),
    (Timeout, TimerKind.REBROADCAST.value),
    (Completed, Executed),
    (Message, Certificate),
]
"""Events that together concern all checks, if their validator must follow its leader and lacks blocks."""
CHECKS = (
    "_start",
    "_check_blames",
    "_check_catch_up",
    "_check_execution",
    "_check_expiry",
    "_check_forgery",
    "_check_mempool",
    "_check_votes",
)
RUNS = [("simplex", False), ("simplex", True), ("hotstuff", False), ("hotstuff", True)]
"""Protocols, and whether a validator is byzantine; otherwise there are other faults."""
concerned = Watches._concerned


def all_checks(watches: Watches) -> dict[Check, None]:
    return {check: None for shape in SHAPES for check in concerned(watches, *shape, EVERYTHING, True, True)}


def simulation_of(protocol: str, **fields: Any) -> Simulation:
    scenario = {
        "name": "watches",
        "consensus": CONSENSUS | {"protocol": protocol},
        "load": {"users": [{"workload": "flood", "count": 2, "interval_ms": 100}]},
        "stop": {"height": 24, "drain_blocks": 2, "timeout_s": 60},
    }
    return Simulation(Scenario.model_validate(scenario | fields), 7, "test", scheme=KeyedHashScheme())


def monitored(protocol: str, is_byzantine: bool) -> MonitorRecord:
    fields = {"validators": {"count": 4, "nodes": NODES}} if is_byzantine else {"faults": FAULTS}
    record = simulation_of(protocol, **fields).run()
    assert record.monitor is not None
    return record.monitor


@cache
def sound(protocol: str, is_byzantine: bool) -> MonitorRecord:
    """What is found with the checks that are chosen."""
    return monitored(protocol, is_byzantine)


@pytest.mark.parametrize(("protocol", "is_byzantine"), RUNS)
def test_all_checks_of_all_events_evaluate_and_find_the_same(
    protocol: str, is_byzantine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = sound(protocol, is_byzantine)
    monkeypatch.setattr(Watches, "_concerned", lambda watches, *_: tuple(all_checks(watches)))
    assert monitored(protocol, is_byzantine) == chosen
    rules = ["mempool", "execution", "catch_up", "repetitions", *(["blames"] if is_byzantine else [])]
    assert min(chosen.counts[rule] for rule in rules) > 0


@pytest.mark.parametrize("left_out", CHECKS)
def test_a_choice_that_leaves_a_check_out_is_seen(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(watches: Watches, *shape: Any) -> tuple[Check, ...]:
        return tuple(check for check in concerned(watches, *shape) if check.__name__ != left_out)

    whole = [sound(*run) for run in RUNS[:2]]
    monkeypatch.setattr(Watches, "_concerned", chosen)
    assert any(monitored(*run) != found for run, found in zip(RUNS, whole, strict=False))


def test_there_are_no_other_checks() -> None:
    assert sorted(check.__name__ for check in all_checks(simulation_of("simplex").watches)) == sorted(CHECKS)


def test_transactions_that_a_mempool_did_not_take_are_seen_whatever_the_event_is() -> None:
    simulation = simulation_of("simplex")
    simulation.begin()
    machine, log = simulation.machines[0], simulation.watches.monitor.log
    for content in (TransactionsMessage(()), TransactionsMessage((b"unknown",))):
        assert log.violations == []
        effects = [Send(None, encode_message(content))]
        simulation.watches.handles(machine, Synced(1), effects)
    assert [violation.split(": ")[1] for violation in log.violations] == ["mempool"]
