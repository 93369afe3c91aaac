"""The soak of killed drivers: what it draws, and what it calls wrong. ``make soak-handover`` runs it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.live.processes import processes
from cluster.record.folder import CHECKPOINT_FILE, ENDPOINTS_FILE
from cluster.scenario import Scenario
from tests.cluster.live import soak_handover
from tests.cluster.live.soak_handover import DISTURBANCES, MOMENTS, Plan, left, main, run

PLANS = [Plan.draw(number) for number in range(100)]
IN_SLOW_TESTS = range(6)


def test_everything_is_drawn() -> None:
    assert {plan.moment for plan in PLANS} == set(MOMENTS)
    assert {plan.comers for plan in PLANS} == {0, 1, 2}
    assert {plan.disturbance for plan in PLANS} == set(DISTURBANCES)
    assert {plan.moment for plan in PLANS if plan.is_violated} == {"faults", "ending", "collecting", "judging"}
    assert len({(plan.moment, plan.comers, plan.disturbance) for plan in PLANS}) > 40
    for all_of_them, few in ((MOMENTS, "moment"), (DISTURBANCES, "disturbance"), ((0, 1, 2), "comers")):
        assert {getattr(PLANS[number], few) for number in IN_SLOW_TESTS} == set(all_of_them)
    for plan in PLANS[:20]:
        Scenario.model_validate(plan.scenario)
        assert Plan.draw(plan.number) == plan


def test_a_verdict_is_that_of_nobody_disturbed_or_inconclusive_for_a_reason() -> None:
    sound, violated = (next(plan for plan in PLANS if plan.is_violated == is_violated) for is_violated in (False, True))
    assert not sound.problem("pass", [])
    assert not sound.problem("inconclusive", ["no_problems: the driver was killed"])
    assert "without a reason" in sound.problem("inconclusive", [])
    assert "fail, expected pass: safety: two blocks" in sound.problem("fail", ["safety: two blocks"])
    assert "none, expected pass" in sound.problem("none", [])
    assert not violated.problem("fail", ["state_roots: differ"])
    assert "pass, expected fail" in violated.problem("pass", [])
    assert "inconclusive, expected fail" in violated.problem("inconclusive", ["no_problems: the driver was killed"])


def test_what_is_left_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak_handover, "PATIENCE_S", 0.0)
    folder, temporary = tmp_path / "run", tmp_path / "temporary"
    for each in (folder, temporary):
        each.mkdir()
    assert left(folder, temporary) == []
    (folder / CHECKPOINT_FILE).touch()
    (temporary / "session").touch()
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        (folder / ENDPOINTS_FILE).write_text(json.dumps({"validators": [{"url": url}]}), encoding="utf-8")
        command = [sys.executable, "-c", "import sys; sys.stdin.read()", str(folder)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            while not processes.using(folder):
                pass
            found = left(folder, temporary)
            process.kill()
    for words in (f"process {process.pid} is left", url, "session is left", f"{CHECKPOINT_FILE} is left"):
        assert any(words in each for each in found), found


def test_an_interrupted_soak_goes_on_and_fails_where_one_run_was_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gets(verdict: str, plan: Plan, folder: Path) -> None:
        folder.mkdir()
        result = {"verdict": verdict, "checks": []}
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")

    def drive(plan: Plan, folder: Path, _: Path) -> list[soak_handover.Driver]:
        gets("fail" if plan.number == 2 or plan.is_violated else "pass", plan, folder)
        return []

    monkeypatch.setattr(soak_handover, "_drive", drive)
    assert main(["0:2", "--out", str(tmp_path)]) == 0
    with (tmp_path / "runs.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"number": 3, "pl')  # it was killed while it wrote
    assert main(["0:4", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "4 runs, 1 wrong: 2"
    assert (tmp_path / "table.md").read_text().count("\n") == 2 + 4
    assert sorted(path.name for path in tmp_path.glob("run-?")) == ["run-2"], "what was wrong can be looked at"


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.parametrize("number", IN_SLOW_TESTS)
def test_a_killed_driver_changes_no_verdict(number: int, tmp_path: Path) -> None:
    assert not run(Plan.draw(number), tmp_path / "run").wrong
