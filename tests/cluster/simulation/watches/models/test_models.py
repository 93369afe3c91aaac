"""Events that no model needs are left out: with all events, each model says and counts the same."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.record.run import MonitorRecord
from cluster.scenario import Scenario
from cluster.simulation.driver import Simulation
from cluster.simulation.watches.models import models
from cluster.simulation.watches.models.kinds import Broadcast, kinds_of, subject_of
from consensus.keys import KeyedHashScheme
from validator.chain.messages import BlocksPruned
from validator.node.events import CancelTimer, Completed, Effect, Event, Message, Run, Send, Started, Timeout, TimerName
from validator.node.executor.jobs import BlocksRead, ReadBlocks

SCENARIO: dict[str, Any] = {
    "name": "models",
    "consensus": {"block_interval_ms": 100, "leader_timeout_ms": 400, "advance_timeout_ms": 600, "rebroadcast_ms": 300},
    "load": {"users": [{"workload": "flood", "count": 2, "interval_ms": 100}]},
    "faults": [
        {"kind": "kill", "at_height": 5, "target": "validator-1", "down_ms": 900},
        {"kind": "pause", "at_height": 12, "target": ["validator-2"], "for_ms": 900},
    ],
    "stop": {"height": 24, "drain_blocks": 2, "timeout_s": 60},
}


def monitored(protocol: str) -> MonitorRecord:
    fields = SCENARIO | {"consensus": SCENARIO["consensus"] | {"protocol": protocol}}
    simulation = Simulation(Scenario.model_validate(fields), 7, "test", scheme=KeyedHashScheme())
    record = simulation.run()
    assert record.monitor is not None
    return record.monitor


@pytest.mark.parametrize("protocol", ["simplex", "hotstuff"])
def test_models_of_all_events_evaluate_and_find_the_same(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = monitored(protocol)
    monkeypatch.setattr(models, "_concerned", lambda *_: models._Concerned(True, True, True))
    assert monitored(protocol) == chosen
    assert min(chosen.counts[rule] for rule in ("mempool", "execution", "catch_up")) > 0


def test_a_choice_that_leaves_out_too_much_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = monitored("simplex")
    monkeypatch.setattr(models, "_concerned", lambda *_: models._Concerned(False, True, True))
    assert monitored("simplex") != chosen


def test_an_event_is_about_what_it_brings_and_an_effect_about_its_job() -> None:
    timeout = Timeout(TimerName("sync"))
    read = Completed(BlocksRead(1, (), (), b""))
    events: list[Event] = [Started(), Message(0, b"", BlocksPruned(7)), timeout, read]
    assert list(map(subject_of, events)) == [Started, BlocksPruned, "sync", BlocksRead]
    effects: list[Effect] = [Send(None, b""), Run(ReadBlocks(0, 1, 1)), CancelTimer(TimerName("sync"))]
    assert kinds_of(effects) == {Broadcast, ReadBlocks, CancelTimer}
    assert kinds_of([Send(1, b"")]) == {Send}
    assert kinds_of([]) == frozenset()
