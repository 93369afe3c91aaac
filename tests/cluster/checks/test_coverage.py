"""Invariants that were evaluated too seldom make a run inconclusive."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.audit.figures import TimerFigures
from cluster.audit.ledger import Ledger
from cluster.checks.kind import shipped
from cluster.checks.run import check_run
from cluster.record.rules import SafetyRule
from cluster.record.run import MonitorRecord
from tests.cluster.checks.cases import INCONCLUSIVE, PASS, other_branch, run_check
from tests.cluster.records import make_record, make_scenario, with_kill


def test_every_invariant_is_evaluated_and_counted() -> None:
    verdict = check_run(with_kill(make_record()))
    times = {each.rule: each.times for each in verdict.evaluations}
    assert times == {
        "same block": 12,
        "computed roots": 48,
        "answers about timers": 4 * 24,
        "served balances": 4 * 7,
        "supplies": 4,
        "blocks as specified": 12,
        "transactions as specified": 36,
        "fires as specified": 17,
        "paid waits": 0,
    }
    assert verdict.check("coverage").detail == f"9 invariants were evaluated {sum(times.values())} times in all"


def test_one_that_serves_no_state_need_not_answer_about_it() -> None:
    record = with_kill(make_record())
    outsider = record.validators[3]
    outsider.balances, outsider.pending_timers, outsider.supply = {}, {}, None
    assert check_run(record).check("coverage").verdict is INCONCLUSIVE
    outsider.serves_state = False
    verdict = check_run(record)
    assert verdict.check("coverage").verdict is PASS
    supplies = next(each for each in verdict.evaluations if each.rule == "supplies")
    assert (supplies.times, supplies.needed) == (3, 3)


@pytest.mark.parametrize(
    ("owner", "name", "rule"),
    [
        (Ledger, "apply", "blocks as specified"),
        (Ledger, "transactions", "transactions as specified"),
        (TimerFigures, "fires", "fires as specified"),
    ],
)
def test_an_invariant_that_is_never_evaluated_is_inconclusive(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, rule: str
) -> None:
    record = with_kill(make_record())
    monkeypatch.setattr(owner, name, (lambda *_: None) if name == "apply" else 0)
    verdict = check_run(record)
    assert verdict.outcome is INCONCLUSIVE
    assert f"{rule} 0 times of" in verdict.check("coverage").detail


@pytest.mark.parametrize(
    ("check", "rule"),
    [("agreement", "same block"), ("state_roots", "computed roots"), ("conservation", "served balances")],
)
def test_a_check_that_passes_without_having_looked_is_inconclusive(
    monkeypatch: pytest.MonkeyPatch, check: str, rule: str
) -> None:
    kind = next(kind for kind in shipped() if kind.name == check)
    monkeypatch.setattr(kind, "judge", lambda self: (PASS, "all is well"))
    verdict = check_run(with_kill(make_record()))
    assert verdict.outcome is INCONCLUSIVE
    assert f"{rule} 0 times of" in verdict.check("coverage").detail


def test_of_a_check_that_failed_nothing_is_asked() -> None:
    record = make_record()
    record.validators[3].blocks = other_branch(9).blocks
    assert "same block" not in {each.rule for each in check_run(record).evaluations}


def test_fewer_evaluations_than_the_scenario_asks_for_are_inconclusive() -> None:
    record = make_record(scenario=make_scenario(success={"heights_compared": 10, "fires": 100, "transactions": 5}))
    assert run_check(record, "coverage").detail == "too seldom evaluated: fires as specified 17 times of 100"


def test_each_rule_of_the_monitor_must_have_been_evaluated_often_enough() -> None:
    record = make_record()
    record.monitor = MonitorRecord([], dict.fromkeys(SafetyRule, 10))
    assert run_check(record, "coverage").verdict is PASS
    record.monitor.counts["roots"] = 9
    assert "safety: roots 9 times of 10" in run_check(record, "coverage").detail
