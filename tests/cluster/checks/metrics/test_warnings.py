"""What a reader of a pass is warned of: actors whose runs always fail, and timers that wait for long."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from cluster.checks.kind import Judged
from cluster.checks.kinds.criteria import Criteria
from cluster.checks.run import judge_run
from cluster.common.outcome import Outcome
from cluster.scenario.model import Scenario
from cluster.scenario.sections.success import SuccessSection
from cluster.watches.watched_simulation import simulate
from tests.validator.policies.own_policies import NEVER_ODD, NOTHING

FAILS = """
class Auction(Actor):
    def start(self, payload):
        self.schedule(self.height + 2, payload, "close")

    def close(self, payload):
        assert payload == "never", "no bids"
"""


def judged(**given: Any) -> Judged:
    fields = {
        "name": "warned",
        "validators": {"count": 1},
        "load": {"users": [{"workload": "heartbeat", "count": 8}]},
        "stop": {"height": 40},
        "success": {"transactions": 1, "fires": 0},
        **given,
    }
    return judge_run(simulate(Scenario.model_validate(fields), 5))


def own(source: str) -> dict[str, Any]:
    return {"chain": {"policy": {"name": "own", "source": source}}}


@pytest.fixture(scope="module")
def failing() -> Judged:
    user = {"program": {"name": "auction", "source": FAILS}, "calls": [{"handler": "start", "payload": {"turn": "t"}}]}
    return judged(load={"users": [{"workload": "program", "count": 2, "options": user}]})


def test_fires_that_fail_are_counted_and_an_actor_that_always_fails_is_named(failing: Judged) -> None:
    fires = failing.metrics["fires"]
    assert failing.verdict.outcome is Outcome.PASS
    assert failing.metrics["fires_failed"] == fires > 10
    assert f"{fires:,.0f} fires ({fires:,.0f} failed)" in failing.verdict.check("load").detail
    (warning,) = failing.verdict.warnings
    assert (
        warning == f"2 actors of program auction failed always: {fires:.0f} fires, most often with ActorError: no bids"
    )


@pytest.mark.parametrize(
    ("allowed", "outcome"), [(0, Outcome.FAIL), ("99.9%", Outcome.FAIL), ("100%", Outcome.PASS), (10_000, Outcome.PASS)]
)
def test_a_scenario_bounds_the_fires_that_fail(failing: Judged, allowed: int | str, outcome: Outcome) -> None:
    record = failing.books.record
    success = record.scenario.success.model_copy(update={"max_failed_fires": allowed})
    scenario = record.scenario.model_copy(update={"success": success})
    found = Criteria(Judged(replace(failing.books, record=replace(record, scenario=scenario)))).check()
    assert found.verdict is outcome
    assert f"at most {allowed} allowed" in found.detail
    if outcome is Outcome.FAIL:
        assert "most often program auction 0x" in found.detail and "no bids" in found.detail


@pytest.mark.parametrize("given", ["101%", "-1%", "5", "5 %", "half", -1, 0.5])
def test_what_is_no_number_and_no_percentage_is_refused(given: Any) -> None:
    with pytest.raises(ValidationError):
        SuccessSection.model_validate({"max_failed_fires": given})


def waiting(source: str) -> str:
    """The policy, which says that it lets timers wait though the lane has room."""
    return source.replace('{"order"}', '{"order", "waiting"}')


def test_timers_that_wait_count_in_lateness_and_the_oldest_is_named() -> None:
    found = judged(**own(waiting(NEVER_ODD)))
    backlog = found.metrics["backlog_at_end"]
    assert found.metrics["fires"] > 0 and backlog > 0
    assert found.metrics["lateness_p99_blocks"] > 20
    assert found.metrics["fairness_jain_index"] < 1
    (warning,) = found.verdict.warnings
    assert re.fullmatch(
        rf"{backlog:.0f} due timers did not fire by the end; the oldest, [0-9a-f]{{16}} of heartbeat 0x[0-9a-f]{{39}}"
        r"[13579bdf], has waited for \d\d blocks",
        warning,
    )
    assert found.verdict.check("timers").verdict is Outcome.PASS


@pytest.mark.parametrize("source", [NEVER_ODD, NOTHING])
def test_a_policy_that_does_not_say_that_timers_wait_fails(source: str) -> None:
    check = judged(**own(source)).verdict.check("timers")
    assert check.verdict is Outcome.FAIL
    assert "was due and passed over" in check.detail and "the lane has room for its " in check.detail


@pytest.mark.parametrize(("most", "outcome"), [(8, Outcome.FAIL), (64, Outcome.PASS)])
def test_a_policy_states_the_longest_wait(most: int, outcome: Outcome) -> None:
    stated = NEVER_ODD.replace('{"order"}', f'{{"order", "waiting"}}\n    longest_wait_blocks = {most}')
    check = judged(**own(stated)).verdict.check("criteria")
    assert check.verdict is outcome
    assert re.fullmatch(rf"lateness_max_blocks \d\d, at most {most} allowed by own\.py", check.detail)


def test_a_policy_that_fires_nothing_has_no_fairness() -> None:
    found = judged(**own(waiting(NOTHING)))
    assert found.metrics["fires"] == 0 and "fairness_jain_index" not in found.metrics
    assert found.metrics["lateness_p50_blocks"] > 0
    assert found.verdict.check("timers").verdict is not Outcome.FAIL
    assert len(found.verdict.warnings) == 1


def test_a_run_whose_chain_deviates_says_where_its_figures_end() -> None:
    found = judged(**own(NOTHING))
    height = found.books.ledger.height
    assert 0 < height < found.books.common_height
    assert found.verdict.warnings[0] == (
        f"figures of timers, fees and runs end at height {height}: the next block is not as specified"
    )


def test_a_run_in_which_all_goes_well_has_no_warning() -> None:
    found = judged()
    assert found.verdict.outcome is Outcome.PASS and found.verdict.warnings == ()
    assert found.metrics["fires_failed"] == 0 and found.books.ledger.outcomes.failures == []


def test_a_workload_that_sent_nothing_is_named() -> None:
    late = {"workload": "flood", "count": 2, "phases": [{"kind": "pause", "from_ms": 0, "until_ms": 10_000_000}]}
    found = judged(load={"users": [{"workload": "heartbeat", "count": 8}, late]})
    assert found.verdict.warnings == ("users of these workloads sent nothing: flood",)
