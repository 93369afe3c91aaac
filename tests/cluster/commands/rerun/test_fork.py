"""Other futures of a run: the same past, event by event, and only settings that have none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.checks.run import check_run
from cluster.commands.cli.main import main
from cluster.commands.rerun.recorded_run import read_recorded
from cluster.common.errors import BadInput, ExitCode
from cluster.record.archived_run import read_run
from cluster.record.folder import RESULT_FILE
from cluster.scenario import Scenario
from cluster.scenario.files import load_scenario
from cluster.watches.watched_simulation import simulate
from tests.cluster.commands.rerun.runs import run, scenario

AT = 8
PARTITION = {"kind": "partition", "groups": [["validator-0", "validator-1"]], "at_height": 10, "for_ms": 1_500}
LATE = [
    *scenario()["faults"],
    {"kind": "pause", "target": "validator-3", "at_height": 11, "for_ms": 300},
    {"kind": "slow_disk", "target": "validator-2", "at_ms": 900_000, "for_ms": 300, "sync_ms": 9},
]
BASE = scenario(faults=LATE, stop={"height": 14, "timeout_s": 1_000, "drain_blocks": 2})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("forked")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        yield run(path, BASE, ExitCode.INCONCLUSIVE)


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fork(folder: Path, out: Path, *options: str, at: int = AT) -> dict[str, Any]:
    """The result of a fork that is not refused."""
    assert main(["fork", str(folder), "--at", str(at), "--out", str(out), *options]) in (
        ExitCode.PASS,
        ExitCode.INCONCLUSIVE,
    )
    return result(out)


def result(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / RESULT_FILE).read_text())
    return content


def past(content: dict[str, Any], height: int = AT) -> dict[str, str]:
    return {known: digest for known, digest in content["checkpoints"].items() if int(known) <= height}


# --- the same past ----------------------------------------------------------------------------------------------------


def test_a_fork_that_changes_nothing_is_the_same_run(folder: Path, tmp_path: Path) -> None:
    forked = fork(folder, tmp_path / "same")
    recorded = result(folder)
    assert forked["digest"] == recorded["digest"] and forked["checkpoints"] == recorded["checkpoints"]
    (told,) = forked["forks"]
    assert told["at_height"] == AT and told["changes"] == {} and told["seed"] is None
    assert told["origin"] == f"run, digest {recorded['digest'][:12]}, commit {recorded['commit']}"


def test_other_settings_change_the_future_alone(folder: Path, tmp_path: Path) -> None:
    settings = ["--set", "links.latency_ms=60", "--set", f"faults[+]={json.dumps(PARTITION)}", "--unset", "faults[2]"]
    settings += ["--set", "consensus.leader_timeout_ms=500", "--set", "success.stall_ms=20000", "--unset", "faults[2]"]
    forked = fork(folder, tmp_path / "other", *settings)
    recorded = result(folder)
    assert past(forked) == past(recorded)
    assert forked["checkpoints"]["10"] != recorded["checkpoints"]["10"]
    theirs, ours = read_run(folder).blocks, read_run(tmp_path / "other").blocks
    assert [each.block for each in ours[:AT]] == [each.block for each in theirs[:AT]]
    (told,) = forked["forks"]
    assert set(told["changes"]) == {"links.latency_ms", "faults", "consensus.leader_timeout_ms", "success.stall_ms"}
    faults = next(check["detail"] for check in forked["checks"] if check["name"] == "faults")
    assert (
        "partition of validator-0, validator-1 | the rest (validator-2, validator-3) at height 10 took effect" in faults
    )
    assert "pause of validator-3" not in faults, "that fault was taken out"


@pytest.mark.slow
def test_a_fork_runs_again_and_is_replayed_and_forked(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = tmp_path / "first"
    once = fork(folder, first, "--seed", "77", "--set", "links.loss=0.02", "--unset", "faults[3]")
    assert past(once) == past(result(folder)) and once["digest"] != result(folder)["digest"]
    again = ["run", str(first / "scenario.yaml"), "--backend", "sim", "--seed", "3", "--out", "again"]
    assert main([*again, "--check-determinism"]) == ExitCode.PASS
    assert result(Path("again"))["digest"] == once["digest"]
    capsys.readouterr()
    assert main(["replay", str(first), "--kind", "fault"]) == ExitCode.PASS
    assert f"height {AT}: other settings apply from here on" in capsys.readouterr().out
    twice = fork(first, tmp_path / "twice", "--set", "links.loss=0", at=11)
    assert [told["at_height"] for told in twice["forks"]] == [AT, 11]
    assert past(twice, 11) == past(once, 11) and twice["digest"] != once["digest"]
    instead = fork(first, tmp_path / "instead", "--set", "links.jitter_ms=1", "--unset", "faults[3]", at=5)
    assert [told["at_height"] for told in instead["forks"]] == [5], "what came later did not happen"
    assert past(instead, 5) == past(result(folder), 5)


def test_a_run_that_is_another_one_now_is_not_forked(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = shutil.copytree(folder, tmp_path / "copied")
    content = result(copied)
    content["checkpoints"]["4"] = "0" * 16
    (copied / RESULT_FILE).write_text(json.dumps(content))
    assert main(["fork", str(copied), "--at", str(AT), "--out", "out"]) == ExitCode.FAIL
    assert "the runs differ before height 4 is final" in capsys.readouterr().err
    assert not Path("out").exists()
    assert main(["fork", str(copied), "--at", "3", "--out", "out"]) == ExitCode.INCONCLUSIVE, "until there it is"


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["simplex", "hotstuff"])
def test_timeouts_and_seeds_reach_everybody(protocol: str) -> None:
    """With a byzantine twin, whose machines and users get other sources, too."""
    changes = {"consensus.block_interval_ms": 200, "faults": []}
    plan = scenario(
        validators=[{}, {}, {}, {"byzantine": ["twins", "garbage"]}],
        faults=[],
        consensus={**scenario()["consensus"], "protocol": protocol},
    )
    alone = simulate(Scenario.model_validate(plan), 4)
    seeded = simulate(Scenario.model_validate({**plan, "forks": [{"at_height": AT, "seed": 9}]}), 4)
    slower = simulate(Scenario.model_validate({**plan, "forks": [{"at_height": AT, "changes": changes}]}), 4)
    for record in (seeded, slower):
        assert all(record.checkpoints[height] == alone.checkpoints[height] for height in range(1, AT + 1))
        assert record.checkpoints[AT + 2] != alone.checkpoints[AT + 2]
        assert check_run(record).check("safety").verdict == "pass"
        assert record.problems == []
    first = {height: min(f.at_ms for f in slower.finalizations if f.height == height) for height in range(9, 15)}
    assert all(first[height + 1] - first[height] > 150 for height in range(11, 14)), "the interval is 200 ms now"


def test_a_fault_of_the_past_is_judged_by_the_times_that_applied() -> None:
    """The pause is longer than a view change of the fork's settings, and shorter than one of its own time."""
    section = scenario()["consensus"] | {"advance_timeout_ms": 3_000, "leader_timeout_ms": 2_500}
    pause = {"kind": "pause", "target": "leader", "at_height": 4, "for_ms": 1_200}
    changes = {"consensus.advance_timeout_ms": 600, "consensus.leader_timeout_ms": 400}
    plan = scenario(faults=[pause], consensus=section, forks=[{"at_height": AT, "changes": changes}])
    record = simulate(Scenario.model_validate(plan), 3)
    assert len(record.former) == 1 and record.view_change_ms == 3_050
    assert record.recovery_ms == 500 + 3 * 3_050
    judged = check_run(record).check("faults")
    assert judged.verdict != "fail", judged.detail
    record.former.clear()
    assert check_run(record).check("faults").detail != judged.detail, "by the fork's own times more was to be expected"


# --- what has a past --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "validators.count=5"], "cannot change validators.count: the validators are those"),
        (["--set", "validators=1"], "cannot change validators: the validators are those"),
        (["--set", "validators.nodes=[{mutant: double-fire}]"], "cannot change validators.nodes: the validators"),
        (["--set", "chain.params.MAX_TTL=30"], "cannot change chain.params.MAX_TTL: the genesis holds"),
        (["--set", "load.users[0].count=1"], "cannot change load.users: the genesis holds the users'"),
        (["--set", "name=x"], "cannot change name: the chain's id"),
        (["--set", "seed=9"], "cannot change seed: the validators' and users' keys"),
        (["--set", "consensus.protocol=hotstuff"], "cannot change consensus.protocol: validators agree on it"),
        (["--unset", "faults[0]"], "pause validator-0 at height 4 has begun when height 8 is final"),
        (["--set", "faults[1].down_ms=1"], "faults[1]: kill validator-1 at height 6 would have begun before"),
        (["--set", "faults[+]={kind: kill, target: leader, at_height: 8}"], "faults[4]: kill leader at height 8 would"),
        (["--set", "faults[+]={kind: kill, target: leader, at_ms: 5}"], "faults[4]: kill leader at 5 ms would have"),
        (["--set", "stop.height=8"], "faults[2].at_height: 11 is not below stop.height (8)"),
        (
            ["--set", "faults[+]={kind: upgrade, at_height: 11, code: elsewhere}"],
            "forks[0].changes: faults[4].code: only the live testnet can do this",
        ),
        (["--set", "links.los=1"], "links.los: unknown field; "),
        (["--at", "17"], "cannot be forked there: it reached height 16"),
        (["--at", "15"], "forks[0].at_height: 15 is not below stop.height (14)"),
        (["--at", "0"], "'0' is not a valid height"),
    ],
)
def test_what_would_change_the_past_is_refused_in_one_line(
    folder: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fork", str(folder), "--at", str(AT), *options, "--out", "out"]) == ExitCode.BAD_INPUT
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1
    assert not Path("out").exists()


def test_runs_of_old_code_are_not_forked(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copied = shutil.copytree(folder, tmp_path / "copied")
    content = result(copied)
    del content["checkpoints"]
    (copied / RESULT_FILE).write_text(json.dumps(content))
    assert main(["fork", str(copied), "--at", "3"]) == ExitCode.BAD_INPUT
    assert "its result.json has no checkpoints" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("forks", "words"),
    [
        ([{"at_height": 5}, {"at_height": 5}], r"forks\[1\].at_height: 5 is not above"),
        ([{"at_height": 14}], r"forks\[0\].at_height: 14 is not below stop.height"),
        (
            [{"at_height": 5, "changes": {"links.loss": 3}}],
            r"forks\[0\].changes: links.loss: expected at most 0.9, got 3",
        ),
        ([{"at_height": 5, "changes": {"chain": {}}}], r"forks\[0\].changes: a fork cannot change chain: the genesis"),
        ([{"at_height": 5, "changes": {"forks": []}}], "a fork cannot change forks: a fork changes settings"),
        ([{"at_height": 5, "changes": {"a b": 1}}], "a fork cannot change a b: no such setting"),
        ([{"at_height": 5, "changes": {"faults": []}}], "pause validator-0 at height 4 has begun"),
    ],
)
def test_a_scenario_with_wrong_forks_is_one_line(tmp_path: Path, forks: list[dict[str, Any]], words: str) -> None:
    path = tmp_path / "forked.yaml"
    path.write_text(yaml.safe_dump(scenario(forks=forks)))
    with pytest.raises(BadInput, match=words) as caught:
        load_scenario(path)
    assert "\n" not in str(caught.value)


def test_the_live_testnet_refuses_forks(capsys: pytest.CaptureFixture[str]) -> None:
    Path("forked.yaml").write_text("name: a\nforks: [{at_height: 5}]\n")
    assert main(["run", "forked.yaml"]) == ExitCode.BAD_INPUT
    assert "forks: only the simulator can repeat the past" in capsys.readouterr().err


def test_a_fork_that_is_never_reached_is_a_problem(tmp_path: Path) -> None:
    plan = scenario(faults=[], stop={"height": 14, "timeout_s": 1}, forks=[{"at_height": 13}])
    record = simulate(Scenario.model_validate(plan), 1)
    assert record.problems == ["the fork at height 13 was never reached"]
    assert read_recorded_scenario_stays(tmp_path, plan)


def read_recorded_scenario_stays(tmp_path: Path, plan: dict[str, Any]) -> bool:
    """The folder has the scenario with its forks, taken or not."""
    plan = {**plan, "stop": {"height": 14, "drain_blocks": 2}}
    folder = run(tmp_path, plan)
    return read_recorded(folder).scenario == Scenario.model_validate(plan)


def test_a_fork_of_a_quiet_run_cannot_add_a_fault_of_a_time_that_is_over() -> None:
    pause = {"kind": "pause", "target": "validator-1", "at_ms": 1, "for_ms": 5}
    forks = [{"at_height": AT, "changes": {"faults": [pause]}}]
    quiet = Scenario.model_validate(scenario(faults=[], forks=forks, stop={"height": 14, "timeout_s": 1_000}))
    with pytest.raises(BadInput, match="would have begun before the fork"):
        simulate(quiet, 1)


def test_a_fork_with_another_seed_chooses_other_targets() -> None:
    kill = {"kind": "kill", "target": "random", "at_height": AT + 2, "down_ms": 300}
    targets = set()
    for seed in range(8):
        forks = [{"at_height": AT, "changes": {}, "seed": seed}]
        given = scenario(faults=[kill], forks=forks, stop={"height": 14, "timeout_s": 1_000})
        targets.add(simulate(Scenario.model_validate(given), 1).faults[0].targets)
    assert len(targets) > 1
