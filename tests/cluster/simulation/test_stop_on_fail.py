"""A simulated run ends at the first violation that is seen while it runs, if that was asked for."""

from __future__ import annotations

import pytest

from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.scenario import Scenario
from cluster.watches.watched_simulation import simulate

LOAD = {"users": [{"workload": "heartbeat", "count": 2, "interval_ms": 300}]}
SUCCESS = {"heights_compared": 5, "transactions": 1, "fires": 0}


def scenario_of(nodes: list[dict[str, str]], **fields: object) -> Scenario:
    given = {"name": "stops", "validators": nodes, "load": LOAD, "stop": {"height": 24}, "success": SUCCESS}
    return Scenario.model_validate({**given, **fields})


@pytest.mark.slow
def test_a_right_run_goes_to_its_end() -> None:
    right = scenario_of([{}, {}, {}, {}])
    record = simulate(right, 1, stop_on_fail=True)
    assert not record.interrupted
    assert record.digest == simulate(right, 1).digest
    assert check_run(record).outcome is Outcome.PASS


@pytest.mark.kits
def test_who_blames_the_honest_ends_it() -> None:
    record = simulate(_drill([{"mutant": "blames-leaders"}] * 4), 1, stop_on_fail=True)
    assert record.interrupted
    assert "blames: validator-0 says invalid_block of validator-1" in record.problems[-1]


@pytest.mark.kits
def test_who_diverges_ends_it() -> None:
    notices: list[str] = []
    nodes = [{}, {"mutant": "wrong-balance"}, {}, {}]
    record = simulate(scenario_of(nodes), 1, on_notice=notices.append, stop_on_fail=True)
    assert max(found.tip for found in record.validators) < 24
    assert record.interrupted
    assert any("--stop-on-fail: validator-1 diverged" in notice for notice in notices)
    verdict = check_run(record)
    assert verdict.check("state_roots").verdict is Outcome.FAIL
    assert "by --stop-on-fail" in verdict.check("no_problems").detail


@pytest.mark.kits
def test_what_a_watch_finds_ends_it() -> None:
    """Everybody makes the same mistake: nobody diverges, and only the auditor sees it."""
    nodes = [{"mutant": "fires-early"}] * 4
    record = simulate(_drill(nodes), 1, stop_on_fail=True)
    assert record.interrupted
    assert max(found.tip for found in record.validators) < 24
    assert "ledger" in record.problems[-1]


def _drill(nodes: list[dict[str, str]]) -> Scenario:
    return scenario_of([], validators={"nodes": nodes, "count": 4, "allow_more_faults": True})
