"""Blocks of a user's policy, executed again in a fresh process before the verdict of a simulated run."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any, Final

import pytest

import stampede
from cluster.audit.reexecution.again import execute_again, first_difference
from cluster.checks.run import judge_run
from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from cluster.common.outcome import Outcome
from cluster.record.run import RunRecord
from cluster.report.results import finish_run
from cluster.scenario.model import Scenario
from cluster.watches.watched_simulation import simulate
from spec.encoding import encode_receipts, read_receipts, uint
from tests.validator.policies.own_policies import DEADLINES, HASHED, LOTTERY

RUN: Final = {
    "name": "again",
    "validators": {"count": 4},
    "load": {"users": [{"workload": "heartbeat", "count": 12}]},
    "stop": {"height": 24},
    "success": {"transactions": 1, "fires": 1, "heights_compared": 10},
}


def run(policy: Any) -> RunRecord:
    return simulate(Scenario.model_validate(RUN | {"chain": {"policy": policy}}), 7)


def test_a_policy_whose_results_depend_on_the_process_is_named(tmp_path: Path) -> None:
    record = run({"name": "hashed", "source": HASHED})
    assert judge_run(record).verdict.check("state_roots").verdict is Outcome.PASS, "one process shows nothing"
    execute_again(record, tmp_path)
    check = judge_run(record).verdict.check("state_roots")
    assert check.verdict is Outcome.FAIL
    side = r"(nothing|.*0x\w+)"
    differs = rf"two executions of block \d+ differ: receipts\.fires\S* is {side} in one, {side} in the other"
    lines = r"line 10: hash\(\) depends on the hash seed of the process; line 11: hash\(\) .*"
    assert re.fullmatch(rf"{differs}; the policy of hashed\.py ran there \({lines}\)", check.detail)
    assert list(tmp_path.iterdir()) == []


def test_bisect_executes_the_blocks_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = run({"name": "hashed", "source": HASHED})
    finish_run(record, tmp_path / "run")
    assert "reexecuted" not in json.loads((tmp_path / "run/result.json").read_text())
    capsys.readouterr()
    assert main(["bisect", str(tmp_path / "run"), "--allow-code"]) == ExitCode.FAIL
    first, second, third = capsys.readouterr().out.splitlines()[:3]
    assert first == "no validator diverged, but"
    assert re.fullmatch(
        r"two executions of block \d+ differ: receipts\.fires.*; the policy of hashed\.py ran there .*", second
    )
    fire = r"(the fire of timer|nothing more)"  # the hash seed of this process decides which of the two has fewer fires
    assert re.match(rf"  step     another process: {fire}.*; the final block: {fire}", third)
    assert main(["bisect", str(tmp_path / "run"), "--json", "--allow-code"]) == ExitCode.FAIL
    (page,) = json.loads(capsys.readouterr().out)
    kinds = {each["kind"] for each in (page["step"], page["right_step"]) if each is not None}
    assert (page["validator"], kinds) == ("", {"fire"})


def test_a_run_from_python_is_executed_again() -> None:
    outcome = stampede.simulate(RUN | {"chain": {"policy": {"name": "hashed", "source": HASHED}}}, seed=7)
    assert outcome.check("state_roots").verdict is Outcome.FAIL


def test_a_policy_that_draws_lots_is_named_before_the_stall_that_it_causes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random.seed(7)  # of the module that the policy draws from: each run of this test is the same
    record = run({"name": "lottery", "source": LOTTERY})
    execute_again(record, tmp_path)
    verdict = judge_run(record).verdict
    assert re.match(r"state_roots: two executions of block \d+ differ: receipts\.fires\[\d+\]\S* is ", verdict.reason)
    assert verdict.reason.endswith("; the policy of lottery.py ran there (line 2: random draws numbers)")
    finish_run(record, tmp_path / "run")
    capsys.readouterr()
    assert main(["bisect", str(tmp_path / "run"), "--allow-code"]) == ExitCode.FAIL
    assert capsys.readouterr().out.startswith("no validator diverged, but\ntwo executions of block ")


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


def test_the_first_difference_names_item_and_field() -> None:
    record = run({"name": "deadlines", "source": DEADLINES})
    with_fires = [block.receipts for block in record.validators[0].blocks]
    assert first_difference(with_fires[9], with_fires[9]) == ""
    assert first_difference(b"\x00", with_fires[9]) == ""
    assert first_difference(with_fires[9], with_fires[10]).count(" in one, ") == 1
    receipts = read_receipts(with_fires[9])
    first, *others = receipts.fires
    one, other = (receipts._replace(fires=[first._replace(burned=uint(paid)), *others]) for paid in (1, 256))
    found = first_difference(encode_receipts(one), encode_receipts(other))
    assert found == "receipts.fires[0].burned is 1 in one, 256 in the other"
