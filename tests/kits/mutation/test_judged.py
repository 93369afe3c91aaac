"""Runs of detection scenarios, judged.

Planted bugs that all validators share are found, and those that show at the end alone; where none is, nothing is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.audit.books import keep_books
from cluster.audit.proofs import SERVED_FINALITY, SERVED_PROOFS
from cluster.checks.kind import Judged
from cluster.checks.kinds.agreement import StateRoots
from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.misbehaviour.planted import planted, planted_bugs
from cluster.record.rules import SafetyRule
from cluster.scenario import Scenario
from cluster.watches.watched_simulation import WatchedSimulation, simulate
from consensus.keys import KeyedHashScheme
from kits.mutation.bugs.table import ALL, Area, Detection
from kits.mutation.detection_scenarios import DETECTION_SCENARIOS, scenario_of
from tests.cluster.audit.specified.test_judge import BOOKS, deviations

SHARED = [
    name
    for name, mutant in planted_bugs().items()
    if mutant.area == Area.SCHEDULER and mutant.must_fail.mutated == ALL and mutant.must_fail.check in BOOKS
]


def found_with(name: str) -> set[str]:
    """The ledger's checks that fail in the run that must catch a planted bug, with the first seed that shows it."""
    where = planted(name).must_fail
    for seed in range(1, where.seeds + 1):
        run = check_run(simulate(scenario_of(where, name), seed))
        failed = {check for check in BOOKS if run.check(check).verdict is Outcome.FAIL}
        if failed:
            return failed
    return set()


def test_a_bug_that_all_validators_share_is_found() -> None:
    assert planted("refund-at-wrong-price").must_fail.check in found_with("refund-at-wrong-price")


@pytest.mark.soak
@pytest.mark.parametrize("name", SHARED)
def test_each_bug_that_all_validators_share_is_found(name: str) -> None:
    assert found_with(name)


@pytest.mark.parametrize(("name", "seed"), [("queries-not-charged", 1), ("published-survives-a-revert", 2)])
def test_a_leaf_that_all_validators_write_wrong_is_found(name: str, seed: int) -> None:
    run = simulate(scenario_of(replace(planted(name).must_fail, mutated=ALL), name), seed)
    first = deviations(run)[0]
    assert (first.check, first.difference.field) == ("state_roots", "header.state_root")
    assert len({block.computed_root for each in run.validators for block in each.blocks[first.height - 1 :][:1]}) == 1
    check = StateRoots(Judged(keep_books(run))).check()
    assert check.verdict is Outcome.FAIL
    assert f"all validators at height {first.height}: header.state_root is 0x" in check.detail


@pytest.mark.parametrize(
    ("mutant", "rule"),
    [
        ("quorum-of-2f", SERVED_FINALITY),
        ("root-without-active-bits", SERVED_PROOFS),
        ("links-not-kept", SERVED_PROOFS),
    ],
)
def test_planted_bugs_are_caught_without_the_simulators_monitor(mutant: str, rule: str) -> None:
    plan = scenario_of(planted(mutant).must_fail, mutant)
    plan = plan.model_copy(update={"stop": plan.stop.model_copy(update={"height": 12, "drain_blocks": 0})})
    simulation = WatchedSimulation(plan, 1, "test", scheme=KeyedHashScheme())
    monitor = simulation.run().monitor
    assert monitor is not None
    served = [text for text in monitor.violations if text.startswith("at the end: ")]
    assert {text.split(": ")[1] for text in served} == {rule}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["simplex", "hotstuff"])
def test_nothing_is_found_in_a_run_with_bad_links(protocol: str) -> None:
    monitor = simulate(scenario_of(Detection("bad-links", (), protocol), None), 2).monitor
    assert monitor is not None
    assert monitor.counts[SafetyRule.CATCH_UP] > 200
    assert monitor.violations == []


@pytest.mark.slow
def test_a_clock_that_was_slow_excuses_its_silence() -> None:
    """Its next tick is due by its own clock: the others' clocks say that the answer before was long ago."""
    sections: dict[str, Any] = dict(DETECTION_SCENARIOS["bad-links"])
    skew = {"kind": "clock_skew", "target": "validator-0", "clock_speed": 0.02, "at_height": 6, "for_ms": 1_200}
    consensus = sections["consensus"] | {"rebroadcast_ms": 100}
    stop = {"height": 12, "drain_blocks": 1, "timeout_s": 120}
    fields = {"name": "skewed", "validators": {"count": 4}, "consensus": consensus, "stop": stop}
    record = simulate(Scenario.model_validate(sections | fields | {"faults": [*sections["faults"], skew]}), 4)
    assert record.monitor is not None
    assert record.monitor.counts["answers"] > 0
    assert record.monitor.violations == []
