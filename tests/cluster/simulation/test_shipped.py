"""The scenarios that ship pass in the simulator, with either protocol, and what they are named for comes about."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from cluster.checks.metrics.metrics import series
from cluster.checks.run import check_run, judge_run
from cluster.common.outcome import Outcome
from cluster.faults.kinds.one_way_partition import OneWayPartitionFault
from cluster.misbehaviour.byzantine.registry import BEHAVIOURS
from cluster.record.run import FaultRecord, RunRecord
from cluster.scenario import Scenario
from cluster.scenario.files import load_scenario
from consensus.keys import KeyedHashScheme
from consensus.protocols import PROTOCOLS
from tests.cluster.simulation.watched import Seen, Watched
from tests.tiers.turns import by_turns
from validator.chain.block import Block
from validator.primitives.codec import decode

SCENARIOS = Path(__file__).resolve().parents[3] / "scenarios"
ELSEWHERE = {"byzantine-drill", *(f"byzantine-{name}" for name in BEHAVIOURS)}
"""Run in ``tests/cluster/misbehaviour/byzantine``: each behaviour alone, and a drill in which more than f collude."""
LONG = {"thousand-views"}
"""Scenarios that take minutes."""
LOOKED_INTO = {
    "all-online",
    "deep-reorg",
    "hailstorm",
    "lone-certificate",
    "long-outage",
    "split-views",
    "unclean-restarts",
    "validator-set-change",
}
"""Scenarios whose runs more than one test looks at. Other runs are not kept."""
WITH_BOTH = {"all-online", "deep-reorg"}
"""Scenarios in which what is looked for depends on the protocol, and the one that others are compared with."""

CHEAP = ("all-online", "simplex")
NAMES = [path.stem for path in sorted(SCENARIOS.rglob("*.yaml")) if path.stem not in ELSEWHERE]


def tier(place: int, name: str, protocol: str) -> list[pytest.MarkDecorator]:
    """``make test`` runs one. Slow tests run a scenario with one protocol, by turns, unless the other differs."""
    if (name, protocol) == CHEAP:
        return []
    if name in LONG:
        return [pytest.mark.soak]
    return [pytest.mark.slow if name in WITH_BOTH else by_turns(place, protocol)]


def protocols_of(name: str) -> pytest.MarkDecorator:
    """The protocols with which tests look into a scenario: as often as it is run."""
    runs = [pytest.param(each, marks=tier(NAMES.index(name), name, each)) for each in PROTOCOLS]
    return pytest.mark.parametrize("protocol", runs)


RUNS = [
    pytest.param(name, protocol, marks=tier(place, name, protocol))
    for place, name in enumerate(NAMES)
    for protocol in PROTOCOLS
]
SEED = 11
ALONE_MS = 1_000
"""For how long one validator alone knows that a block is certified, in the scenario that is about it."""


def scenario(name: str, protocol: str) -> Scenario:
    plan = load_scenario(name)
    return plan.model_copy(update={"consensus": plan.consensus.model_copy(update={"protocol": protocol})})


def watch(plan: Scenario, seed: int = SEED) -> Watched:
    return Watched(plan, seed, "test", scheme=KeyedHashScheme(), shortcuts=True)


def run(plan: Scenario) -> Seen:
    simulation = watch(plan)
    simulation.run()
    return simulation.seen


@cache
def kept_run(name: str, protocol: str) -> Seen:
    return run(scenario(name, protocol))


@pytest.mark.parametrize(("name", "protocol"), RUNS)
def test_a_shipped_scenario_passes(name: str, protocol: str) -> None:
    record = (kept_run(name, protocol) if name in LOOKED_INTO else run(scenario(name, protocol))).record
    verdict = check_run(record)
    assert verdict.outcome is Outcome.PASS, [check for check in verdict.checks if check.verdict is not Outcome.PASS]
    assert all(fault.took_effect and fault.evidence for fault in record.faults)


# --- what they are named for ----------------------------------------------------------------------------------------


@protocols_of("deep-reorg")
def test_a_deep_reorg_gives_up_as_many_blocks_as_the_protocol_lets_it(protocol: str) -> None:
    deepest = kept_run("deep-reorg", protocol).record.metrics["deepest_reorg"]
    assert deepest >= 4 if protocol == "simplex" else deepest == 2
    assert kept_run("all-online", protocol).record.metrics["deepest_reorg"] == 0


@protocols_of("lone-certificate")
def test_a_lone_certificate_is_alone_with_each_validator_in_turn(protocol: str) -> None:
    seen = kept_run("lone-certificate", protocol)
    alone, final = seen.alone(ALONE_MS), views_of(seen.record)
    unheard = those_unheard(seen.record)
    assert set(unheard) == {0, 2, 4, 6}
    for validator, fault in unheard.items():
        begun_ms, ended_ms = fault.begun_ms or 0.0, fault.ended_ms or 0.0
        held = [each for each in alone if each.validator == validator and begun_ms <= each.from_ms < ended_ms]
        assert held, f"validator-{validator} knew of no block alone"
        assert held[0].view not in final, "the others went on along another branch"
        meanwhile = {
            each.height
            for each in seen.record.finalizations
            if each.validator != validator and held[0].from_ms <= each.at_ms < ended_ms
        }
        assert len(meanwhile) >= 3


@pytest.mark.slow
def test_who_is_only_not_heard_is_not_alone_with_a_certificate() -> None:
    """The others have a quorum, and certify with Simplex what it certifies."""
    plan = scenario("lone-certificate", "simplex")
    unheard = [fault for fault in plan.faults if isinstance(fault, OneWayPartitionFault) and fault.receivers is None]
    stop = plan.stop.model_copy(update={"height": 20})
    seen = run(plan.model_copy(update={"faults": unheard[:1], "stop": stop}))
    assert [fault.took_effect for fault in those_unheard(seen.record).values()] == [True]
    assert not seen.alone(ALONE_MS / 10)


def those_unheard(record: RunRecord) -> dict[int, FaultRecord]:
    """By validator, the fault in which nobody heard it."""
    names = record.scenario.validators.names
    return {
        names.index(plan.senders[0]): fault
        for plan, fault in zip(record.scenario.faults, record.faults, strict=True)
        if isinstance(plan, OneWayPartitionFault) and plan.senders and plan.receivers is None
    }


def views_of(record: RunRecord) -> set[int]:
    """Of the final blocks."""
    return {decode(block.block, Block).header.view for block in record.validators[0].blocks}


@protocols_of("split-views")
def test_split_views_are_apart_and_come_level_in_one_jump(protocol: str) -> None:
    seen, other = kept_run("split-views", protocol), kept_run("all-online", protocol)
    assert sum(split_ms > 300 for split_ms in seen.splits_ms()) >= 3, "all four cuts leave some behind"
    assert seen.splits_ms()[0] > 3_000, "most of the four seconds for which one hears nobody"
    assert sum(ahead >= 5 for ahead in seen.jumps()) >= 2
    assert not other.jumps()
    assert other.splits_ms()[0] < 50


@protocols_of("unclean-restarts")
def test_unclean_restarts_kill_everybody_in_an_order_that_is_drawn(protocol: str) -> None:
    seen = kept_run("unclean-restarts", protocol)
    faults = seen.record.faults
    moments = sorted({fault.begun_ms for fault in faults if fault.begun_ms is not None})
    down = {at: [fault.targets for fault in faults if is_down_at(fault, at)] for at in moments}
    orders = [tuple(targets) for targets in down.values() if len(targets) == 4]
    assert len(orders) >= 3
    assert all(len(set(order)) == 4 for order in orders), "all four of them"
    assert len(set(orders)) >= 2
    assert len(seen.bytes_lost) == len(faults)
    assert sum(unsynced > 0 for unsynced in seen.bytes_unsynced) >= 5
    assert any(seen.bytes_lost)


def is_down_at(fault: FaultRecord, at_ms: float) -> bool:
    return fault.begun_ms is not None and fault.begun_ms <= at_ms < (fault.ended_ms or 0.0)


@protocols_of("long-outage")
def test_a_long_outage_leaves_a_backlog_of_timers_that_is_worked_off(protocol: str) -> None:
    judged = judge_run(kept_run("long-outage", protocol).record)
    before = [backlog or 0 for backlog in series(judged.books)["backlog"][:20]]
    assert judged.metrics["backlog_max"] >= 100
    assert max(before) < judged.metrics["backlog_max"] / 2
    assert judged.metrics["backlog_at_end"] == 0


@protocols_of("hailstorm")
def test_a_hailstorm_is_the_same_again_with_the_same_seed_only(protocol: str) -> None:
    first, plan = kept_run("hailstorm", protocol).record, scenario("hailstorm", protocol)
    second = run(plan).record
    assert first.digest == second.digest
    assert first.checkpoints == second.checkpoints
    assert first.validators == second.validators
    other = watch(plan, SEED + 1)
    other.begin()
    while not other.record.checkpoints:
        other.advance()
    assert other.record.checkpoints[1] != first.checkpoints[1]


@protocols_of("validator-set-change")
def test_committees_change_under_load(protocol: str) -> None:
    record = kept_run("validator-set-change", protocol).record
    plan = record.scenario
    proposers: dict[int, set[int]] = {}
    for block in record.validators[0].blocks:
        header = decode(block.block, Block).header
        epoch = max(first for first in plan.validators.committees if first <= header.view)
        proposers.setdefault(epoch, set()).add(header.proposer)
    assert len(proposers) == 3
    for first, members in plan.validators.committees.items():
        assert proposers[first] <= set(members)
        assert len(proposers[first]) > 2, "and most of them lead"
