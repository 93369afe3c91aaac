"""What a validator executed otherwise than its peers is not forgotten where it comes back as a sound one."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.audit.books import keep_books
from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.scenario import Scenario
from cluster.scenario.node_setup import parts_of
from cluster.simulation import validators
from cluster.watches.watched_simulation import simulate
from tests.cluster.simulation.flooded import flooded
from validator.node.assembly import PRODUCTION, Parts

ILL = 1


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill", "wipe", "upgrade"])
def test_a_divergence_outlives_the_life_in_which_it_came_about(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [{"kind": fault, "target": f"validator-{ILL}", "at_height": 20}]
    lives = [0] * 4

    def ill_at_first(scenario: Scenario, index: int, *given: Any) -> Parts:
        lives[index] += 1
        return parts_of(scenario, index, given[0], "double-fire") if (index, lives[index]) == (ILL, 1) else PRODUCTION

    monkeypatch.setattr(validators, "parts_of", ill_at_first)
    record = simulate(flooded("healed", faults), 1, shortcuts=True)
    status = record.validators[ILL].status
    assert status is not None
    assert (status["starts"], lives[ILL] > 1) == (2, True)
    assert status["height"] >= 34, "it is sound again, and takes part"
    check = check_run(record).check("state_roots")
    assert check.verdict is Outcome.FAIL
    assert check.detail.startswith(f"validator-{ILL} diverged at height {status['diverged']['height']} ")
    (execution,) = keep_books(record).divergences
    assert execution.trace, "it can be bisected"
