"""Watches that an event does not concern are left out: with all watches of all events, they find the same."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from cluster.record.run import MonitorRecord
from cluster.scenario import Scenario
from cluster.watches.watch import Broadcast, Choice, Watch, broadcast_of, kinds_of, subject_of
from cluster.watches.watched_simulation import WatchedSimulation
from consensus.interface import TimerKind
from consensus.keys import KeyedHashScheme
from consensus.messages import Certificate
from tests.consensus.bench import NULLIFY, Bench
from validator.chain.messages import TransactionsMessage, encode_message, read_message
from validator.node.events import Completed, Effect, Message, Run, Send, SetTimer, Started, Synced, Timeout, TimerName
from validator.node.executor.jobs import Executed, ReadBlocks
from validator.primitives.types import ZERO_HASH

NAMES = [f"validator-{index}" for index in range(4)]
CONSENSUS = {"block_interval_ms": 100, "leader_timeout_ms": 400, "advance_timeout_ms": 600, "rebroadcast_ms": 300}
FAULTS = [
    {"kind": "clock_skew", "at_height": 4, "target": NAMES[0], "factor": 5.0, "for_ms": 4_000},
    {"kind": "kill", "at_height": 5, "target": NAMES[1], "down_ms": 900},
    {"kind": "pause", "at_height": 12, "target": [NAMES[2]], "for_ms": 900},
]
NODES = [{"byzantine": ["conflicting-voter", "short-certificate", "silent-leader"]}]
WATCHES = ("BlameWatch", "CatchUpWatch", "ExecutionWatch", "MempoolWatch", "PacingWatch")
RUNS = [("simplex", False), ("simplex", True), ("hotstuff", False), ("hotstuff", True)]
"""Protocols, and whether a validator is byzantine; otherwise there are other faults."""
concerned = Choice.concerned


def simulation_of(protocol: str, **fields: Any) -> WatchedSimulation:
    scenario = {
        "name": "watches",
        "consensus": CONSENSUS | {"protocol": protocol},
        "load": {"users": [{"workload": "flood", "count": 2, "interval_ms": 100}]},
        "stop": {"height": 24, "drain_blocks": 2, "timeout_s": 60},
    }
    return WatchedSimulation(Scenario.model_validate(scenario | fields), 7, "test", scheme=KeyedHashScheme())


def monitored(protocol: str, is_byzantine: bool) -> MonitorRecord:
    fields = {"validators": {"count": 4, "nodes": NODES}} if is_byzantine else {"faults": FAULTS}
    record = simulation_of(protocol, **fields).run()
    assert record.monitor is not None
    return record.monitor


@cache
def sound(protocol: str, is_byzantine: bool) -> MonitorRecord:
    """What is found with the watches that are chosen."""
    return monitored(protocol, is_byzantine)


@pytest.mark.parametrize(("protocol", "is_byzantine"), RUNS)
def test_all_watches_of_all_events_evaluate_and_find_the_same(
    protocol: str, is_byzantine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = sound(protocol, is_byzantine)
    monkeypatch.setattr(Choice, "concerned", lambda choice, *_: tuple(choice._watches))
    assert monitored(protocol, is_byzantine) == chosen
    rules = ["mempool", "execution", "catch_up", "repetitions", *(["blames"] if is_byzantine else [])]
    assert min(chosen.counts[rule] for rule in rules) > 0


@pytest.mark.parametrize("left_out", WATCHES)
def test_a_choice_that_leaves_a_watch_out_is_seen(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(choice: Choice, *shape: Any) -> tuple[Watch, ...]:
        return tuple(watch for watch in concerned(choice, *shape) if type(watch).__name__ != left_out)

    whole = [sound(*run) for run in RUNS[:2]]
    monkeypatch.setattr(Choice, "concerned", chosen)
    assert any(monitored(*run) != found for run, found in zip(RUNS, whole, strict=False))


def test_there_are_no_other_watches() -> None:
    watches = simulation_of("simplex").watches.choice._watches
    assert sorted(type(watch).__name__ for watch in watches) == sorted(WATCHES)


def test_transactions_that_a_mempool_did_not_take_are_seen_whatever_the_event_is() -> None:
    simulation = simulation_of("simplex")
    simulation.begin()
    machine, log = simulation.machines[0], simulation.watches.monitor.log
    for content in (TransactionsMessage(()), TransactionsMessage((b"unknown",))):
        assert log.violations == []
        simulation.watches.choice.handles(machine, Synced(1), [Send(None, encode_message(content))])
    assert [violation.split(": ")[1] for violation in log.violations] == ["mempool"]


def test_what_an_event_is_about_and_the_kinds_of_its_effects() -> None:
    certificate, timer = Bench().certificate(NULLIFY, 1), TimerName(TimerKind.LEADER.value, 3)
    events = (Message(1, b"", certificate), Timeout(timer), Completed(Executed(ZERO_HASH, None)), Started())
    assert [subject_of(event) for event in events] == [Certificate, "leader", Executed, Started]
    message = encode_message(TransactionsMessage(()))
    effects: list[Effect] = [Send(None, message), Send(2, b"noise"), Run(ReadBlocks(1, 1, 1)), SetTimer(timer, 5)]
    assert kinds_of(effects) == {Broadcast, Send, ReadBlocks, SetTimer}
    assert broadcast_of(effects, read_message) == [TransactionsMessage(())]
