"""A run judged again gets the same verdict, from its record; or its first one, from what a dead driver left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.commands.cli.main import main
from cluster.commands.drills.drill_run import run_drill
from cluster.commands.drills.kinds.restart_all import RestartAll
from cluster.commands.run import ending
from cluster.commands.run.attaching import NOBODY_CAME
from cluster.common.errors import ExitCode
from cluster.common.outcome import Outcome
from cluster.live.handover.handover import COLLECTED, FOLLOWING
from cluster.live.processes.driver_lock import driving
from cluster.record.folder import CHECKPOINT_FILE, RECORD_FILE, RESULT_FILE, claimed, read_result
from cluster.record.run import RunRecord
from cluster.report.results import finish_run
from cluster.scenario import Scenario
from cluster.watches.watched_simulation import simulate
from tests.cluster.live.driver.test_take_over import FollowedRun, contradict
from tests.cluster.records import ChainMaker, make_record

SMALL = {
    "name": "judged",
    "load": {"users": [{"workload": "heartbeat", "count": 2, "interval_ms": 300}]},
    "stop": {"height": 8, "drain_blocks": 2},
    "success": {"heights_compared": 5, "transactions": 1, "fires": 1},
}


def simulated(**fields: Any) -> Callable[[], RunRecord]:
    return lambda: simulate(Scenario.model_validate(SMALL | fields), 1)


RUNS: dict[str, tuple[Callable[[], RunRecord], Outcome]] = {
    "simulated": (simulated(), Outcome.PASS),
    "forked": (
        simulated(forks=[{"at_height": 4, "changes": {"success.fires": 2}}]),
        Outcome.PASS,
    ),
    "with a planted bug": (
        simulated(validators={"count": 4, "nodes": [{}, {"mutant": "quorum-of-2f"}]}),
        Outcome.FAIL,
    ),
    "live": (lambda: make_record(backend="live"), Outcome.PASS),
}


def judge(folder: Path, *options: str) -> int:
    return main(["judge", str(folder), *options])


def undated(folder: Path) -> dict[str, Any]:
    return read_result(folder) | {"date": ""}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("judged")
    finish_run(simulated()(), folder)
    return folder


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    """A folder that a test may change."""
    return Path(shutil.copytree(original, tmp_path / "run"))


@pytest.mark.kits
@pytest.mark.parametrize("name", RUNS)
def test_a_run_judged_again_has_the_same_result(name: str, tmp_path: Path) -> None:
    perform, outcome = RUNS[name]
    folder = tmp_path / "run"
    assert finish_run(perform(), folder).outcome is outcome
    before, result = {path.name: path.read_bytes() for path in folder.iterdir()}, undated(folder)
    assert judge(folder, "--quiet") == ExitCode[outcome.name]
    assert undated(folder) == result
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert after.keys() == before.keys()
    for same in ("blocks.bin", "genesis.json", "record.bin", "series.json", "scenario.yaml"):
        assert after[same] == before[same], same


def test_other_criteria_count_for_this_time(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = undated(run)
    assert judge(run, "--set", "success.metrics.finality_latency_p50_ms.at_most=0.5") == ExitCode.FAIL
    assert "criteria: finality_latency_p50_ms" in capsys.readouterr().out
    changed = read_result(run)
    assert changed["verdict"] == Outcome.FAIL and changed["scenario_hash"] != result["scenario_hash"]
    assert "at_most: 0.5" in (run / "scenario.yaml").read_text()
    assert judge(run) == ExitCode.PASS
    assert undated(run) == result


def test_comments_of_the_scenario_stay(run: Path) -> None:
    path = run / "scenario.yaml"
    path.write_text(f"# the reason for it\n{path.read_text()}")
    assert judge(run) == ExitCode.PASS
    assert path.read_text().startswith("# the reason")


def test_what_ran_cannot_change(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = undated(run)
    for option in (["--set", "stop.height=9"], ["--unset", "load"], ["--set", "successes=1"]):
        assert judge(run, *option) == ExitCode.BAD_INPUT
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith("cannot change once the run is over; expected a field of success"), line
    assert judge(run, "--set", "success.fire=1") == ExitCode.BAD_INPUT
    assert "success.fire" in capsys.readouterr().err
    assert undated(run) == before


@pytest.mark.slow
def test_a_drill_is_judged_by_its_expectations(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_drill(RestartAll(), "sim", out=folder)
    result = undated(folder)
    assert sum(check["name"].startswith("drill_") for check in result["checks"]) > 1
    assert judge(folder) == ExitCode[Outcome(result["verdict"]).name]
    assert undated(folder) == result


def test_what_a_crash_of_the_checks_left_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, folder = tmp_path / "judged.yaml", tmp_path / "run"
    scenario.write_text(json.dumps(SMALL))
    with monkeypatch.context() as broken:
        broken.setattr(ending, "judge_run", lambda *_: 1 / 0)
        assert main(["run", str(scenario), "--backend", "sim", "--out", str(folder)]) == ExitCode.CRASH
    assert read_result(folder)["verdict"] == Outcome.INCONCLUSIVE
    assert judge(folder) == ExitCode.PASS
    assert len(read_result(folder)["checks"]) > 1


def test_a_folder_without_a_whole_record_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = run / RECORD_FILE
    whole, before = record.read_bytes(), undated(run)
    for content, problem in (
        (whole[:-1], f"{record}: is damaged: its checksum does not hold"),
        (whole.replace(b"record 1", b"record 0", 1), f"{record}: is of format 0; expected format 1"),
    ):
        record.write_bytes(content)
        assert judge(run) == ExitCode.BAD_INPUT
        assert capsys.readouterr().err == f"stampede: {problem}\n"
    record.unlink()
    assert judge(run) == ExitCode.BAD_INPUT
    assert f"{run}: has no record of a run: expected record.bin, which" in capsys.readouterr().err
    assert undated(run) == before
    assert judge(run / "none") == ExitCode.BAD_INPUT
    assert "no such folder: expected that of a run" in capsys.readouterr().err


def test_a_run_in_progress_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for held, said in ((claimed, "another process writes it"), (driving, "its driver is alive")):
        with held(run):
            assert judge(run) == ExitCode.BAD_INPUT
        assert said in capsys.readouterr().err


# --- a driver that died -----------------------------------------------------------------------------------------------


def left(folder: Path, phase: Any = FOLLOWING, is_told: bool = False) -> FollowedRun:
    """A run whose driver was killed. Its testnet has three blocks, and two votes that contradict each other."""
    run = FollowedRun(folder)
    maker = ChainMaker(run.record.genesis)
    for _ in range(3):
        maker.seal()
    for block in maker.blocks:
        run.record.store.append(block)
    if is_told:
        contradict(run)
    run.write_checkpoint(phase)
    run.is_killed()
    return run


def nobody_came(folder: Path, **more: Any) -> None:
    """What the cleanup watchdog writes at its end."""
    result = {"verdict": "inconclusive", "checks": [], NOBODY_CAME: True}
    (folder / RESULT_FILE).write_text(json.dumps(result | more))


@pytest.mark.parametrize("is_told", [True, False])
def test_a_dead_drivers_run_is_judged_from_its_checkpoint(tmp_path: Path, is_told: bool) -> None:
    left(tmp_path, is_told=is_told)
    nobody_came(tmp_path)
    expected = ExitCode.FAIL if is_told else ExitCode.INCONCLUSIVE
    assert judge(tmp_path) == expected
    result = undated(tmp_path)
    details = {check["name"]: check["detail"] for check in result["checks"]}
    assert "the driver died at height 3, and no other took the run over" in details["no_problems"]
    assert "interrupted" in details["no_problems"] and NOBODY_CAME not in result
    assert ("validator-2 notarizes view 3, and did so before" in details["safety"]) == is_told
    assert (tmp_path / RECORD_FILE).exists() and not (tmp_path / CHECKPOINT_FILE).exists()
    assert judge(tmp_path) == expected
    assert undated(tmp_path) == result


def test_what_was_left_is_judged_by_its_own_criteria_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left(tmp_path)
    nobody_came(tmp_path)
    assert judge(tmp_path, "--set", "success.fires=9") == ExitCode.BAD_INPUT
    assert "judge it once without changes first" in capsys.readouterr().err


def test_only_the_verdict_may_be_missing(tmp_path: Path) -> None:
    left(tmp_path, COLLECTED)
    nobody_came(tmp_path)
    judge(tmp_path)
    assert "the driver died" not in (tmp_path / RESULT_FILE).read_text()


def test_what_only_the_watchdog_knows_counts(tmp_path: Path) -> None:
    left(tmp_path)
    nobody_came(tmp_path, checks=[{"name": "state_roots", "verdict": "fail", "detail": "validator-0 diverged"}])
    assert judge(tmp_path) == ExitCode.FAIL
    details = {check["name"]: check["detail"] for check in read_result(tmp_path)["checks"]}
    assert details["state_roots"] == "told while it ran: validator-0 diverged"


def test_a_testnet_that_may_be_up_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert judge(tmp_path) == ExitCode.BAD_INPUT
    assert f"may still be up: stampede attach {tmp_path} brings it to its verdict" in capsys.readouterr().err
    nobody_came(tmp_path)
    with driving(tmp_path):
        assert judge(tmp_path) == ExitCode.BAD_INPUT
    assert "its driver is alive" in capsys.readouterr().err
    nobody_came(tmp_path, nobody_came=False)
    assert judge(tmp_path) == ExitCode.BAD_INPUT
    assert "that run has ended, with the verdict inconclusive" in capsys.readouterr().err
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name: after[name] for name in before} == before
