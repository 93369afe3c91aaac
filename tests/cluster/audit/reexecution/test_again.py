"""Blocks of a user's policy, executed again in a fresh process before the verdict of a simulated run."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from cluster.audit.reexecution.again import execute_again, first_difference
from cluster.checks.run import judge_run
from cluster.common.errors import ExitCode
from cluster.common.outcome import Outcome
from cluster.record.run import RunRecord
from cluster.report.results import finish_run
from cluster.scenario.model import Scenario
from cluster.simulation.driver import simulate
from cluster.tools.cli.main import main
from tests.validator.policies.own_policies import DEADLINES

HASHED = """
from validator.policies.fifo import FifoPhase


class Hashed(FifoPhase):
    replaces = {"order", "waiting"}
    passes_over = True

    def candidates(self):
        timers = [timer for timer in self.eligible() if hash(timer.timer_id) % 2]
        return map(self.turn, sorted(timers, key=lambda timer: hash(timer.timer_id)))
"""
"""The order and the choice of timers depend on the hash seed of the process."""

LOTTERY = """
import random

from validator.policies.fifo import FifoPhase


class Lottery(FifoPhase):
    replaces = {"order", "waiting"}
    passes_over = True

    def candidates(self):
        timers = self.eligible()
        random.shuffle(timers)
        return map(self.turn, timers[: len(timers) // 2])
"""
"""Two executions in one process differ, so no validator accepts the block of another."""


def run(policy: Any) -> RunRecord:
    fields = {
        "name": "again",
        "validators": {"count": 4},
        "chain": {"policy": policy},
        "load": {"users": [{"workload": "heartbeat", "count": 12}]},
        "stop": {"height": 24},
        "success": {"transactions": 1, "fires": 1, "heights_compared": 10},
    }
    return simulate(Scenario.model_validate(fields), 7)


def test_a_policy_whose_results_depend_on_the_process_is_named(tmp_path: Path) -> None:
    record = run({"name": "hashed", "source": HASHED})
    assert judge_run(record).verdict.check("state_roots").verdict is Outcome.PASS, "one process shows nothing"
    execute_again(record, tmp_path)
    check = judge_run(record).verdict.check("state_roots")
    assert check.verdict is Outcome.FAIL
    differs = r"two executions of block \d+ differ: fire \d+ is \w+ in one, \w+ in the other"
    assert re.fullmatch(rf"{differs}; the policy of hashed\.py ran there", check.detail)
    assert list(tmp_path.iterdir()) == []


def test_a_policy_that_draws_lots_is_named_before_the_stall_that_it_causes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random.seed(7)  # of the module that the policy draws from: each run of this test is the same
    record = run({"name": "lottery", "source": LOTTERY})
    execute_again(record, tmp_path)
    verdict = judge_run(record).verdict
    assert re.match(r"state_roots: two executions of block \d+ differ: fire \d+ is ", verdict.reason)
    assert verdict.reason.endswith("; the policy of lottery.py ran there")
    finish_run(record, tmp_path / "run")
    capsys.readouterr()
    assert main(["bisect", str(tmp_path / "run")]) == ExitCode.FAIL
    assert capsys.readouterr().out.startswith("no validator diverged, but two executions of block ")


def test_a_policy_that_keeps_to_the_state_passes_and_says_how_much_was_executed(tmp_path: Path) -> None:
    record = run({"name": "deadlines", "source": DEADLINES})
    execute_again(record, tmp_path)
    assert record.reexecuted is not None and record.reexecuted.heights > 20
    assert (
        "heights executed again in another process gave the same"
        in judge_run(record).verdict.check("state_roots").detail
    )


def test_a_shipped_policy_is_not_executed_again(tmp_path: Path) -> None:
    record = run("fifo")
    execute_again(record, tmp_path)
    assert record.reexecuted is None


def test_a_process_that_gives_no_answer_is_a_problem_of_the_harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = run({"name": "deadlines", "source": DEADLINES})
    monkeypatch.setattr("sys.executable", "/bin/false")
    execute_again(record, tmp_path)
    assert record.reexecuted is None
    (problem,) = record.own_problems
    assert problem.startswith("the blocks could not be executed again: /bin/false, hash seed ")
    assert judge_run(record).verdict.outcome is Outcome.INCONCLUSIVE


def test_the_first_difference_names_part_item_and_field() -> None:
    record = run({"name": "deadlines", "source": DEADLINES})
    with_fires = [block.receipts for block in record.validators[0].blocks]
    assert first_difference(with_fires[9], with_fires[9]) == ""
    assert first_difference(b"\x00", with_fires[9]) == ""
    assert first_difference(with_fires[9], with_fires[10]).count(" in one, ") == 1
