"""The first run of a scorecard is executed again, in another process."""

from __future__ import annotations

from cluster.scenario import Scenario
from kits.market.dos.case_runs import run_case
from kits.market.dos.cases import make_plan, make_variants
from tests.cluster.audit.reexecution.test_again import RUN
from tests.validator.policies.own_policies import HASHED


def test_the_first_run_of_a_scorecard_is_executed_again() -> None:
    scenario = Scenario.model_validate(RUN | {"chain": {"policy": {"name": "hashed", "source": HASHED}}})
    plan = make_plan(scenario, ["same-block"], make_variants(scenario, [], []), (7, 8), is_quick=False)
    first, second = (run_case(plan, trial) for trial in plan.trials[:2])
    assert first.problem.startswith("state_roots: two executions of block ")
    assert second.problem == ""
