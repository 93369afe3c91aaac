"""Planted failures among irrelevant ones are found again, alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.commands.cli.main import main
from cluster.commands.rerun import shrink as module
from cluster.commands.rerun.reduce import Shrinking
from cluster.commands.rerun.shrink import Failure, failures_of
from cluster.common.errors import ExitCode
from cluster.scenario import Scenario
from cluster.scenario.files import load_scenario
from tests.cluster.commands.rerun.runs import NOISE, run, scenario, write
from validator.transition.transition import Transition

MUTATED = scenario(
    stop={"height": 10, "timeout_s": 60, "drain_blocks": 1},
    validators=[{}, {"mutant": "wrong-balance"}, {}, {}, {}],
    faults=NOISE[:2],
    links={"latency_ms": 10, "duplication": 0.1},
    load={
        "users": [
            {"workload": "flood", "count": 2, "interval_ms": 300, "options": {"timers": 8}},
            {"workload": "transfer", "count": 2, "interval_ms": 200},
        ]
    },
)
STALLED = scenario(
    faults=[*NOISE, {"kind": "partition", "groups": [["validator-0", "validator-1"]], "at_height": 8, "for_ms": 4_000}],
    success={"heights_compared": 8, "transactions": 2, "fires": 2, "stall_ms": 2_000},
)


def shrunk(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


@pytest.mark.slow
def test_a_mutant_is_found_under_noise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run(tmp_path, MUTATED, ExitCode.FAIL)
    capsys.readouterr()
    assert main(["shrink", str(folder)]) == ExitCode.PASS
    said = capsys.readouterr().out
    kept = shrunk(folder / "shrunk.yaml")
    assert [node for node in kept["validators"]["nodes"] if node] == [{"mutant": "wrong-balance"}]
    assert set(kept) == {"name", "seed", "validators", "consensus", "load", "stop"}
    assert kept["consensus"] == {"signatures": "keyed-hash"}
    assert len(kept["load"]["users"]) == 1 and kept["seed"] == 3
    assert load_scenario(folder / "shrunk.yaml").validators.count == 4
    assert "faults: 2 → 0" in said and "validators: 5 → 4" in said
    assert f"again    stampede run {folder / 'shrunk.yaml'} --backend sim --seed 3" in said
    assert (folder / "shrunk.yaml").read_text().startswith(f"# Shrunk from {folder}")
    assert main(["shrink", str(folder)]) == ExitCode.BAD_INPUT
    assert "exists already" in capsys.readouterr().err


@pytest.mark.slow
def test_one_fault_of_many_is_to_blame(tmp_path: Path) -> None:
    path = write(tmp_path / "stalled.yaml", STALLED)
    arguments = ["shrink", str(path), "--check", "progress"]
    assert main([*arguments, "--out", str(tmp_path / "a.yaml")]) == ExitCode.PASS
    kept = shrunk(tmp_path / "a.yaml")
    (fault,) = kept["faults"]
    assert fault["kind"] == "partition" and fault["at_height"] == 1
    assert kept["success"] == {"stall_ms": 2_000}
    assert "load" not in kept and "links" not in kept


@pytest.mark.slow
def test_the_search_keeps_to_the_reason_that_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "mutated.yaml", MUTATED)
    assert main(["shrink", str(path), "--saying", "validator-1 diverged", "--runs", "25"]) == ExitCode.PASS
    assert "validator-1 diverged" in (tmp_path / "mutated-shrunk.yaml").read_text()
    assert load_scenario(tmp_path / "mutated-shrunk.yaml").validators.node(1).mutant == "wrong-balance"


def test_an_exception_is_a_failure_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def execute(self: Transition, prepared: Any) -> None:
        if self.context.height >= 3:
            raise AssertionError(f"broken at height {self.context.height}")
        original(self, prepared)

    original = Transition.execute
    monkeypatch.setattr(Transition, "execute", execute)
    plan = Scenario.model_validate(scenario())
    (failure,) = failures_of(plan, 3, lambda: None)
    assert failure == Failure("AssertionError: broken at height #", "", is_crash=True)
    path = write(tmp_path / "broken.yaml", scenario())
    assert main(["shrink", str(path), "--runs", "25"]) == ExitCode.PASS
    kept = shrunk(tmp_path / "broken-shrunk.yaml")
    assert "faults" not in kept and kept["load"]["users"]


# --- what is not shrunk -----------------------------------------------------------------------------------------------


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["shrink", *arguments]) == ExitCode.BAD_INPUT
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


@pytest.mark.slow
def test_a_run_that_does_not_fail_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run(tmp_path, scenario())
    assert f"{folder}, seed 3: does not fail" in complaint(capsys, str(folder))
    mutated = write(tmp_path / "mutated.yaml", MUTATED)
    said = complaint(capsys, str(mutated), "--saying", "validator-9")
    assert "fails state_roots, without 'validator-9' in its detail: validator-1 diverged" in said
    said = complaint(capsys, str(mutated), "--check", "joins")
    assert "does not fail joins: it fails state_roots instead" in said and "at commit" not in said
    (tmp_path / "other").mkdir()
    recorded = run(tmp_path / "other", MUTATED, ExitCode.FAIL)
    said = complaint(capsys, str(recorded), "--check", "agreement")
    assert said.endswith("does not fail agreement: it fails state_roots instead\n")
    assert "--check: unknown check 'nope'; known: agreement, state_roots, " in complaint(
        capsys, str(mutated), "--check", "nope"
    )
    assert not (folder / "shrunk.yaml").exists()


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such folder or file" in complaint(capsys, str(tmp_path / "none"))
    assert "holds no finished run" in complaint(capsys, str(tmp_path))
    (tmp_path / "result.json").mkdir()
    assert "result.json: cannot be read: " in complaint(capsys, str(tmp_path))
    (tmp_path / "result.json").rmdir()
    (tmp_path / "result.json").write_text('{"backend": "live"}')
    assert "was a live run" in complaint(capsys, str(tmp_path))
    (tmp_path / "result.json").write_text('{"backend": "sim", "seed": 1}')
    (tmp_path / "scenario.yaml").write_text("name: [")
    assert "scenario.yaml: no YAML" in complaint(capsys, str(tmp_path))
    (tmp_path / "scenario.yaml").write_text("name: a")
    assert "no result of a run: commit is missing" in complaint(capsys, str(tmp_path))
    assert "'0' is not a valid number of runs" in complaint(capsys, str(tmp_path), "--runs", "0")


def test_a_target_that_cannot_be_is_said_before_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "failures_of", lambda *_: pytest.fail("nothing is to run"))
    path = write(tmp_path / "mutated.yaml", MUTATED)
    said = complaint(capsys, str(path), "--out", str(tmp_path / "nowhere" / "a.yaml"))
    assert said.endswith(f"cannot be written: {tmp_path / 'nowhere'}: No such file or directory\n")


@pytest.mark.kits
def test_a_result_that_passes_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def too_much(shrinking: Shrinking) -> None:
        shrinking.best = {name: value for name, value in shrinking.best.items() if name != "validators"}

    monkeypatch.setattr(module, "shrink_fields", too_much)
    path = write(tmp_path / "mutated.yaml", MUTATED)
    assert main(["shrink", str(path)]) == ExitCode.FAIL
    assert "the shrunk scenario does not fail at all" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["mutated.yaml"]


@pytest.mark.slow
def test_what_was_found_until_a_signal_or_the_last_run_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "mutated.yaml", MUTATED)
    assert main(["shrink", str(path), "--runs", "2", "--out", str(tmp_path / "a.yaml")]) == ExitCode.PASS
    assert "2 runs are used up (--runs), so it may not be minimal" in capsys.readouterr().out
    assert load_scenario(tmp_path / "a.yaml").stop.height < 10
    calls: list[Scenario] = []

    def interrupted(plan: Scenario, seed: int, checkpoint: Any) -> tuple[Failure, ...]:
        calls.append(plan)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return failures_of(plan, seed, checkpoint)

    monkeypatch.setattr(module, "failures_of", interrupted)
    assert main(["shrink", str(path), "--out", str(tmp_path / "b.yaml")]) == ExitCode.INCONCLUSIVE
    assert "interrupted, so it may not be minimal" in capsys.readouterr().out
    assert load_scenario(tmp_path / "b.yaml") == load_scenario(tmp_path / "a.yaml")
