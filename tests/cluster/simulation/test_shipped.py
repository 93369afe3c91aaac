"""The scenarios that ship pass in the simulator, with either protocol."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from cluster.checks import Outcome, check_run
from cluster.record import RunRecord
from cluster.scenario import Scenario, load_scenario
from cluster.simulation.driver import Simulation
from consensus.keys import KeyedHashScheme
from validator.block import Block
from validator.codec import decode

SCENARIOS = Path(__file__).resolve().parents[3] / "scenarios"
LONG = {"thousand-views"}
"""Scenarios that take minutes."""
COSTLY = {"late-join", "byzantine-noise", "byzantine-leaders", "burst", "hailstorm", "small-world", "smoke"}
"""Scenarios that take seconds, with one protocol as with the other."""
RUNS = [
    pytest.param(path.stem, protocol, marks=[pytest.mark.soak] if is_long else [])
    for path in sorted(SCENARIOS.glob("*.yaml"))
    if path.stem != "byzantine-drill"  # in which more than f collude
    for protocol, is_long in (("simplex", path.stem in LONG), ("hotstuff", path.stem in LONG | COSTLY))
]
LOOKED_INTO = {"deep-reorg", "validator-set-change"}
"""Scenarios whose runs more than one test looks at. Other runs are not kept."""
SEED = 11


def scenario(name: str, protocol: str) -> Scenario:
    plan = load_scenario(SCENARIOS / f"{name}.yaml")
    return plan.model_copy(update={"consensus": plan.consensus.model_copy(update={"protocol": protocol})})


def run(name: str, protocol: str) -> RunRecord:
    return Simulation(scenario(name, protocol), SEED, "test", scheme=KeyedHashScheme()).run()


kept_run = cache(run)


@pytest.mark.parametrize(("name", "protocol"), RUNS)
def test_a_shipped_scenario_passes(name: str, protocol: str) -> None:
    record = kept_run(name, protocol) if name in LOOKED_INTO else run(name, protocol)
    verdict = check_run(record)
    assert verdict.outcome is Outcome.PASS, [check for check in verdict.checks if check.verdict is not Outcome.PASS]
    assert all(fault.bit and fault.evidence for fault in record.faults)


def test_a_deep_reorg_gives_up_many_blocks() -> None:
    assert kept_run("deep-reorg", "simplex").metrics["deepest_reorg"] >= 4
    assert run("all-online", "simplex").metrics["deepest_reorg"] == 0


@pytest.mark.parametrize("protocol", ["simplex", "hotstuff"])
def test_committees_change_under_load(protocol: str) -> None:
    record = kept_run("validator-set-change", protocol)
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
