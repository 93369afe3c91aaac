"""Sweeps: what a seed comes to, the log that survives interruption, the summary, and whole sweeps over Ray."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shlex
from itertools import pairwise, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
import urllib3
import yaml
from rich.console import Console

from cluster.commands.cli import main as cli
from cluster.commands.compare.scenario_diff import differences
from cluster.commands.sweeps import runner
from cluster.commands.sweeps.commands import seed_range
from cluster.commands.sweeps.fanout import FanOut
from cluster.commands.sweeps.log import WORK_FILE, SweepLog
from cluster.commands.sweeps.outcome import MAX_HISTORY, MAX_SHOWN, SeedOutcome, SeedTally, judge
from cluster.commands.sweeps.runner import (
    SEEDS_TO_REACH_ALL,
    PlainProgress,
    Summary,
    must_reach,
    print_summary,
    run_seed,
    sweep,
)
from cluster.commands.sweeps.tasks import AnyTask, FuzzTask, ScenarioTask, scenario_name
from cluster.common.checkout import checkout_commit, version
from cluster.common.errors import BadInput, Crash, ExitCode
from cluster.common.interrupts import Interrupts
from cluster.live.web.addresses import ON_THE_LOOPBACK
from cluster.record.folder import SWEEP_LOG_FILE
from cluster.record.rules import Mechanism
from cluster.scenario.overrides import parse_removal, parse_setting
from cluster.watches import watched_simulation
from tests.cluster.common.test_files import FULL, device
from tests.cluster.records import make_chain, make_record, with_kill
from tests.hangs import HANGS_AFTER_S
from tests.validator.policies.own_policies import HASHED

GOOD = SeedOutcome(7, "pass", "", [], 40, 30, {"kill": 2}, 2, "d1", 1.5)
BAD = SeedOutcome(8, "fail", "agreement: different blocks", [], 40, 30, {"kill": 2}, 2, "d2", 1.0)
SCENARIO: dict[str, Any] = {
    "name": "swept",
    "validators": [{}, {}, {}, {}],
    "load": {"users": [{"workload": "flood", "count": 2, "interval_ms": 300, "options": {"timers": 4}}]},
    "faults": [{"kind": "kill", "target": "validator-1", "at_height": 8, "down_ms": 4_000}],
    "stop": {"height": 31, "drain_blocks": 2},
    "success": {"heights_compared": 20, "transactions": 3, "fires": 3},
}


# --- outcomes and summaries -------------------------------------------------------------------------------------------


def test_a_run_that_saw_too_little_counts_for_nothing() -> None:
    outcome, judged = judge(with_kill(make_record(make_chain(40))), 2.0)
    assert (outcome.verdict, outcome.heights, outcome.faults) == ("pass", 40, {"kill": 1})
    assert outcome.faults_needed == 1, "the scenario has no more"
    assert judged.verdict.outcome == "pass"
    assert outcome.counts == outcome.passed == (outcome.fires >= 20)
    short, _ = judge(with_kill(make_record()), 2.0)
    assert (short.verdict, short.counts, short.passed) == ("pass", False, False)
    assert short.why.startswith("too little happened: 12 heights of 30")


def test_only_a_fault_that_did_not_bite_may_be_undecided() -> None:
    assert msgspec.structs.replace(GOOD, verdict="inconclusive", undecided=["faults"]).passed
    assert not msgspec.structs.replace(GOOD, verdict="inconclusive", undecided=["faults", "progress"]).passed


def test_a_failing_run_says_which_check_it_was() -> None:
    record = make_record()
    record.validators[1].balances = {text: balance + 1 for text, balance in record.validators[1].balances.items()}
    outcome, _ = judge(record, 1.0)
    assert outcome.failed
    assert outcome.why.startswith("conservation: validator-1 serves")


def test_a_summary_fails_for_one_seed_and_passes_only_whole() -> None:
    vacuous = SeedOutcome(9, "pass", "", [], 3, 30, {}, 2, "d3", 1.0)
    assert Summary((GOOD,), 1, False).exit_code is ExitCode.PASS
    assert Summary((GOOD, BAD), 2, False).exit_code is ExitCode.FAIL
    assert Summary((GOOD, vacuous), 2, False).exit_code is ExitCode.INCONCLUSIVE
    assert Summary((GOOD,), 2, False).exit_code is ExitCode.INCONCLUSIVE
    assert Summary((GOOD,), 1, True).exit_code is ExitCode.INCONCLUSIVE
    assert Summary((GOOD, vacuous), 2, False, min_passed=1).exit_code is ExitCode.PASS
    assert Summary((GOOD, vacuous), 2, False, min_passed=2).exit_code is ExitCode.INCONCLUSIVE
    assert Summary((GOOD, BAD), 2, False, min_passed=1).exit_code is ExitCode.FAIL
    assert Summary((GOOD, vacuous), 3, False, min_passed=1).exit_code is ExitCode.INCONCLUSIVE, "one did not run"
    assert Summary((GOOD, BAD, vacuous), 3, False).page() == {
        "seeds": 3,
        "passed": 1,
        "failed": [8],
        "undecided": [9],
        "crashed": [],
        "faults": {"kill": 4},
        "seen": dict.fromkeys(Mechanism, 0),
        "heights": 83,
        "fires": 90,
    }


def reaching(seed: int, *mechanisms: Mechanism) -> SeedOutcome:
    return msgspec.structs.replace(GOOD, seed=seed, reached=[mechanism.value for mechanism in mechanisms])


def printed(summary: Summary) -> str:
    out = io.StringIO()
    print_summary(Console(file=out, width=4_000), FuzzTask("simplex"), summary)
    return out.getvalue()


def test_a_summary_counts_the_seeds_that_reached_a_mechanism() -> None:
    crowded = reaching(9, Mechanism.BACKLOG, Mechanism.WINDOW_PRUNED)
    summary = Summary((GOOD, crowded, reaching(10, Mechanism.BACKLOG)), 3, False)
    assert {name: count for name, count in summary.seen.items() if count} == {"backlog": 2, "window_pruned": 1}
    assert list(json.loads(json.dumps(summary.page()))["seen"]) == [mechanism.value for mechanism in Mechanism]
    out = printed(summary)
    assert f"mechanisms reached       2 of {len(Mechanism)}\n" in out
    assert "by the fewest seeds      window_pruned 1, backlog 2\n" in out
    assert "no seed reached" not in out
    assert summary.exit_code is ExitCode.PASS, "so few seeds need not reach all"


def test_a_large_fuzz_that_never_reached_a_mechanism_is_inconclusive() -> None:
    all_but_one = [mechanism for mechanism in Mechanism if mechanism is not Mechanism.OVERFLOW_CUT]
    halves = reaching(1, *all_but_one[::2]), reaching(2, *all_but_one[1::2])
    summary = Summary(halves, 2, False, must_reach=tuple(Mechanism))
    assert summary.exit_code is ExitCode.INCONCLUSIVE
    assert "inconclusive: no seed reached overflow_cut\n" in printed(summary)
    whole = Summary((*halves, reaching(3, Mechanism.OVERFLOW_CUT)), 3, False, must_reach=tuple(Mechanism))
    assert whole.exit_code is ExitCode.PASS
    failing = Summary((*halves, BAD), 3, False, must_reach=tuple(Mechanism))
    assert failing.exit_code is ExitCode.FAIL


@pytest.mark.parametrize(
    ("task", "seeds", "must"),
    [
        (FuzzTask("simplex"), SEEDS_TO_REACH_ALL, True),
        (FuzzTask("simplex"), SEEDS_TO_REACH_ALL - 1, False),
        (ScenarioTask("x.yaml", "{}"), SEEDS_TO_REACH_ALL, False),
    ],
)
def test_only_a_large_fuzz_has_to_reach_all(task: AnyTask, seeds: int, must: bool) -> None:
    assert must_reach(task, seeds) == (tuple(Mechanism) if must else ())


# --- the log ----------------------------------------------------------------------------------------------------------


def test_the_log_keeps_what_ended_and_drops_a_line_that_a_crash_left(tmp_path: Path) -> None:
    log = SweepLog(tmp_path, "one")
    log.add(GOOD)
    log.add(BAD)
    log.close()
    path = tmp_path / SWEEP_LOG_FILE
    path.write_bytes(path.read_bytes()[:-9])
    again = SweepLog(tmp_path, "one")
    assert again.outcomes == {7: GOOD}
    again.add(BAD)
    again.close()
    last = SweepLog(tmp_path, "one")
    assert last.outcomes == {7: GOOD, 8: BAD}
    last.close()


def test_the_log_of_another_sweep_is_left_alone(tmp_path: Path) -> None:
    SweepLog(tmp_path, "one").close()
    with pytest.raises(BadInput, match="belongs to another sweep: its task is one, expected two: choose"):
        SweepLog(tmp_path, "two")
    (tmp_path / SWEEP_LOG_FILE).write_bytes(b'{"task":"one","commit":""}\n{"seed":1}\n')
    with pytest.raises(BadInput, match="line 2: "):
        SweepLog(tmp_path, "one")
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot be opened"):
        SweepLog(tmp_path / "file", "one")


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, works = SweepLog(tmp_path, "one"), tmp_path / WORK_FILE
    works.symlink_to(device(tmp_path / "full", FULL))
    with pytest.raises(BadInput, match=f"{works}: cannot be written: No space left on device"):
        log.add(GOOD)
    works.unlink()

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(BadInput, match=f"{tmp_path / SWEEP_LOG_FILE}: cannot be written: No space left on device"):
        log.add(GOOD)
    log.close()


def test_a_log_keeps_a_path_with_a_byte_that_is_not_utf_8(tmp_path: Path) -> None:
    log = SweepLog(tmp_path, "one")
    log.add(msgspec.structs.replace(GOOD, reason=os.fsdecode(b"caf\xe9: is no folder")))
    log.close()
    assert SweepLog(tmp_path, "one").outcomes[GOOD.seed].reason == r"caf\xe9: is no folder"


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "report.html").touch()
    with pytest.raises(BadInput, match=r": is not empty and holds no sweep to continue: choose another --out$"):
        SweepLog(tmp_path, "one")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_sweeps_log_names_the_version_that_wrote_it(tmp_path: Path) -> None:
    SweepLog(tmp_path, "one").close()
    begun = json.loads((tmp_path / SWEEP_LOG_FILE).read_text(encoding="utf-8"))
    assert begun == {"task": "one", "commit": "", "version": version()}


def test_outcomes_of_two_commits_are_not_mixed(tmp_path: Path) -> None:
    SweepLog(tmp_path, "one", "0123").close()
    SweepLog(tmp_path, "one", "0123").close()
    with pytest.raises(
        BadInput,
        match=r"seeds.jsonl: belongs to another sweep: its commit is 0123, expected 4567: choose another --out$",
    ):
        SweepLog(tmp_path, "one", "4567")


# --- a seed -----------------------------------------------------------------------------------------------------------


def test_a_seed_that_breaks_off_leaves_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise AssertionError("two\nlines")

    monkeypatch.setattr(watched_simulation, "simulate", broken)
    scenario_file = tmp_path / "swept.yaml"
    scenario_file.write_text(yaml.safe_dump(SCENARIO))
    outcome = run_seed(
        ScenarioTask.load(scenario_file), str(tmp_path / "out"), "commit", 1, 4, tmp_path / "out" / "seed-4"
    )
    assert (outcome.seed, outcome.failed, outcome.passed, outcome.word) == (4, False, False, "undecided")
    assert outcome.why.startswith("crashed: AssertionError: two lines (test_sweeps.py:")
    told = (tmp_path / "out" / "seed-4" / "traceback.txt").read_text(encoding="utf-8")
    assert told.startswith("Traceback") and "AssertionError: two" in told
    summary = Summary((GOOD, outcome), 2, False, min_passed=1)
    assert (summary.exit_code, summary.page()["crashed"]) == (ExitCode.CRASH, [4])
    assert Summary((BAD, outcome), 2, False).exit_code is ExitCode.FAIL


def test_the_first_seed_of_a_policy_that_depends_on_its_process_fails(tmp_path: Path) -> None:
    task = ScenarioTask(
        "hashed.yaml", json.dumps(SCENARIO | {"chain": {"policy": {"name": "hashed", "source": HASHED}}})
    )
    first, second = (run_seed(task, str(tmp_path), "commit", 7, seed, tmp_path / f"seed-{seed}") for seed in (7, 8))
    assert re.match(r"state_roots: two executions of block \d+ differ: .*; the policy of hashed\.py ran", first.reason)
    assert second.passed, "one seed is executed again"


# --- the command ------------------------------------------------------------------------------------------------------


def test_seed_ranges() -> None:
    assert seed_range("3:5") == range(3, 5)
    assert seed_range(f"{2**64 - 1}:{2**64}") == range(2**64 - 1, 2**64)
    for wrong in ("", "3", "5:3", "3:3", "-1:3", "a:b", "1:2:3", f"0:{2**64 + 1}", "0:1000001"):
        with pytest.raises(Exception, match="seeds"):
            seed_range(wrong)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--seeds", "5:1"], "'5:1' is no range of seeds"),
        (["--seeds", "1:2", "--workers", "0"], "'0' is not a valid number of workers"),
        (["--seeds", "1:2", "--min-passed", "0"], "'0' is not a valid number of seeds"),
        ([], "--seeds"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sweep", "missing.yaml", *arguments]) == ExitCode.BAD_INPUT
    said = capsys.readouterr().err
    assert expected in said and said.count("\n") == 1


def test_a_missing_scenario_is_said_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sweep", str(tmp_path / "no.yaml"), "--seeds", "1:2", "--out", str(tmp_path / "out")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_tasks_with_other_content_have_other_titles(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(SCENARIO))
    first = ScenarioTask.load(path)
    path.write_text(yaml.safe_dump({**SCENARIO, "stop": {"height": 32}}))
    assert first.title.startswith("sweep swept ")
    assert first.title != ScenarioTask.load(path).title
    assert first.command(9) == f"stampede run {path} --backend sim --seed 9"
    assert first.scenario(9).stop.height == 31


def test_a_changed_scenario_is_another_task_and_its_command_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a b.yaml"
    path.write_text(yaml.safe_dump(SCENARIO))
    plain, same = ScenarioTask.load(path), ScenarioTask.load(path, [parse_setting("stop.height=31")])
    assert plain.title == same.title, "it runs the same"
    changes = [parse_setting("faults[+]={kind: pause, target: leader, at_height: 9, for_ms: 500}")]
    changed = ScenarioTask.load(path, [*changes, parse_removal("success.fires")])
    assert changed.title != plain.title
    assert len(changed.scenario(9).faults) == 2 and changed.scenario(9).success.fires == 50
    words = shlex.split(changed.command(9))
    assert words[:7] == ["stampede", "run", str(path), "--backend", "sim", "--seed", "9"]
    assert words[7::2] == ["--set", "--unset"] and words[10] == "success.fires"
    assert ScenarioTask.load(path, [parse_setting(words[8]), parse_removal(words[10])]) == changed


def test_a_tally_counts_what_a_summary_counts() -> None:
    now_s = [5.0]
    undecided = msgspec.structs.replace(GOOD, seed=9, fires=0, reached=["backlog"])
    tally = SeedTally("a title", "0123", 7, lambda seed: f"again {seed}", [GOOD], lambda: now_s[0])
    for seconds, outcome in enumerate((BAD, undecided, GOOD)):
        now_s[0] = 5.0 + seconds
        tally.add(outcome)
    page, summary = tally.snapshot(), Summary((GOOD, BAD, undecided, GOOD), 7, False)
    now = page["now"]
    assert page["run"] == {"title": "a title", "commit": "0123", "total": 7}
    assert [now[each] for each in ("done", "added", "passed", "failed", "undecided")] == [4, 3, 2, 1, 1]
    assert (now["heights"], now["fires"], now["at_ms"]) == (160, 90, 2_000)
    assert now["faults"] == summary.page()["faults"] and now["reached"] == summary.seen
    assert [(each["seed"], each["word"], each["has_report"]) for each in now["kept"]] == [
        (8, "failed", True),
        (9, "undecided", False),
    ]
    assert now["kept"][0]["why"] == BAD.reason and now["kept"][0]["again"] == "again 8"
    assert [each["done"] for each in page["history"]] == [2, 3, 4]


def test_a_tally_is_bounded() -> None:
    now_s = [0.0]
    tally = SeedTally("a title", "0123", 9_999, str, (), lambda: now_s[0])
    for seed in range(3 * MAX_HISTORY):
        now_s[0] += 0.5
        tally.add(msgspec.structs.replace(BAD, seed=seed))
    page = tally.snapshot()
    assert len(page["now"]["kept"]) == MAX_SHOWN and page["now"]["kept"][-1]["seed"] == 3 * MAX_HISTORY - 1
    assert len(page["history"]) == MAX_HISTORY
    assert {b["at_ms"] - a["at_ms"] for a, b in pairwise(page["history"])} == {1_000}


def test_a_sweep_shows_itself_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(SCENARIO))
    out, shown = io.StringIO(), []

    def run_all(_fan_out: Any, _seeds: Any, _stops: Any, log: SweepLog, show: Any) -> None:
        (url,) = re.findall(r"dashboard {2}(http://\S+)", out.getvalue())
        for outcome in (GOOD, BAD):
            log.add(outcome)
            show(outcome)
            shown.append(urllib3.request("GET", f"{url}dashboard", retries=False, timeout=HANGS_AFTER_S).json())

    monkeypatch.setattr(runner, "_run_all", run_all)
    sweep(ScenarioTask.load(path, []), (7, 8), tmp_path / "out", 1, False, Console(file=out), served=ON_THE_LOOPBACK)
    assert [each["now"]["done"] for each in shown] == [1, 2] and shown[1]["run"]["total"] == 2
    assert "--seed 8" in shown[1]["now"]["kept"][0]["again"]
    with pytest.raises(urllib3.exceptions.HTTPError):
        urllib3.request("GET", re.findall(r"http://\S+", out.getvalue())[0], retries=False)


def test_a_port_without_a_dashboard_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(SCENARIO))
    assert cli.main(["sweep", str(path), "--seeds", "1:2", "--port", "9464"]) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err == "stampede: --port needs --dashboard: nothing else is served\n"


def test_a_sweep_leaves_its_scenario_by_which_settings_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(SCENARIO))
    folders = []
    for name, changes in (("a", []), ("b", [parse_setting("links.loss=0.1"), parse_setting("stop.height=40")])):
        folders.append(tmp_path / name)
        task = ScenarioTask.load(path, changes)
        log = SweepLog(folders[-1], task.title, checkout_commit())
        log.add(GOOD)
        log.close()
        sweep(task, (GOOD.seed,), folders[-1], 1, False, Console(file=io.StringIO()))
        line, _ = (folders[-1] / SWEEP_LOG_FILE).read_text().splitlines()
        assert scenario_name(json.loads(line)["task"]) == "swept"
    found = differences(*(folder / "scenario.yaml" for folder in folders))
    assert found is not None
    assert [(each.path, each.first, each.second) for each in found] == [
        ("links.loss", "0.0", "0.1"),
        ("stop.height", "31", "40"),
    ]


def test_a_wrong_setting_is_one_line_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(SCENARIO))
    for wrong, line in (
        (["--set", "stop.hight=9"], "with --set: stop.hight: unknown field; did you mean height?"),
        (["--unset", "seed"], "with --unset: seed: is not set, so that it cannot be removed"),
    ):
        options = ["--seeds", "1:2", "--out", str(tmp_path / "out"), *wrong]
        assert cli.main(["sweep", str(path), *options]) == ExitCode.BAD_INPUT
        assert capsys.readouterr().err == f"stampede: {path} {line}\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--json", "nowhere/a.json"], "nowhere/a.json: cannot be written: nowhere: No such file or directory"),
        (["--junit", "."], ".: cannot be written: is a folder, expected a file's name"),
        (["--min-passed", "2"], "--min-passed 2: expected at most as many as there are --seeds, 1"),
        (
            ["--set", "faults[+]={kind: upgrade, at_height: 9, code: elsewhere}"],
            "swept: faults[1].code: only the live testnet can do this (--backend live): ",
        ),
    ],
)
def test_what_cannot_come_to_an_end_does_not_begin(
    options: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(yaml.safe_dump(SCENARIO))
    assert cli.main(["sweep", "a.yaml", "--seeds", "1:2", "--out", "out", *options]) == ExitCode.BAD_INPUT
    said = capsys.readouterr().err
    assert said.startswith(f"stampede: {line}") and said.count("\n") == 1
    assert not Path("out").exists()
    before = set(tmp_path.iterdir())
    assert cli.main(["sweep", "a.yaml", "--seeds", "1:2", *options]) == ExitCode.BAD_INPUT
    assert set(tmp_path.iterdir()) == before, "nor is a folder made"


def lines_of(total: int, ended: list[SeedOutcome], console: Console) -> None:
    lines = PlainProgress(console, "sweep swept", ended, total)
    lines.begin(2)
    for seed in range(len(ended), total):
        lines.add(msgspec.structs.replace(BAD if seed % 3 == 0 else GOOD, seed=seed))


def test_off_a_terminal_a_line_a_tenth_tells_how_far_it_is() -> None:
    out = io.StringIO()
    lines_of(4, [], Console(file=out))
    first, *rest = out.getvalue().splitlines()
    assert first == "sweep swept: 4 seeds; up to 2 at a time"
    assert [line.partition(" seeds")[0] for line in rest] == [f"sweep swept: {done} of 4" for done in (1, 2, 3)]
    assert rest[1].endswith("s: 1 passed, 1 failed, 0 undecided")
    out = io.StringIO()
    lines_of(1_000, [GOOD] * 500, Console(file=out))
    first, *rest = out.getvalue().splitlines()
    assert first == "sweep swept: 1,000 seeds, 500 of them done before; up to 2 at a time"
    assert [line.partition(" of ")[0] for line in rest] == [f"sweep swept: {done}" for done in (600, 700, 800, 900)]
    out = io.StringIO()
    lines_of(4, [], Console(file=out, force_terminal=True))
    assert out.getvalue() == "", "a terminal has a bar"


# --- over Ray ---------------------------------------------------------------------------------------------------------


def sweep_of(folder: Path, seeds: str, *more: str, **changes: Any) -> tuple[int, str]:
    folder.mkdir(exist_ok=True)
    path = folder / "swept.yaml"
    path.write_text(yaml.safe_dump({**SCENARIO, **changes}))
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", out)
        code = cli.main(["sweep", str(path), "--seeds", seeds, "--out", str(folder / "sweep"), *more])
    return code, out.getvalue()


@pytest.mark.slow
@pytest.mark.live
def test_a_sweep_runs_every_seed_and_goes_on_where_it_was(temporary: Path, tmp_path: Path) -> None:
    code, said = sweep_of(tmp_path, "1:3", "--json", str(tmp_path / "page.json"))
    assert code == ExitCode.PASS, said
    page = json.loads((tmp_path / "page.json").read_text())
    assert (page["seeds"], page["passed"], page["failed"], page["faults"]) == (2, 2, [], {"kill": 2})
    assert page == json.loads((tmp_path / "sweep" / "summary.json").read_text())
    log = (tmp_path / "sweep" / SWEEP_LOG_FILE).read_bytes()
    code, said = sweep_of(tmp_path, "1:3")
    assert code == ExitCode.PASS
    assert (tmp_path / "sweep" / SWEEP_LOG_FILE).read_bytes() == log, "nothing ran again"
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
@pytest.mark.live
def test_a_failing_seed_leaves_its_run_and_the_command_that_repeats_it(temporary: Path, tmp_path: Path) -> None:
    nodes = [{}, {}, {}, {"mutant": "wrong-balance"}]
    code, said = sweep_of(tmp_path, "1:9", "--stop-on-fail", "--workers", "1", validators=nodes)
    assert code == ExitCode.FAIL
    assert "seed 1 failed: state_roots: validator-3 diverged at height 6" in said
    assert f"again  stampede run {tmp_path / 'swept.yaml'} --backend sim --seed 1" in said
    assert (tmp_path / "sweep" / "seed-1" / "report.html").exists()
    assert json.loads((tmp_path / "sweep" / "summary.json").read_text())["seeds"] == 1, "it stopped there"


def _broken(seed: int, leaves: Path) -> int:
    raise ValueError(f"seed {seed} is broken")


@pytest.mark.slow
@pytest.mark.live
def test_a_seed_that_breaks_off_is_one_line(temporary: Path, tmp_path: Path) -> None:
    with Interrupts() as interrupts, pytest.raises(Crash, match=r"seed 4 crashed: .*seed 4 is broken"):
        list(FanOut(_broken, [4], interrupts, tmp_path, 1).results())
    assert list(temporary.iterdir()) == []


class Cancelled(Exception):
    """What a stream raises that was cancelled."""


@pytest.mark.parametrize("ends", [StopIteration, Cancelled, None])
def test_only_a_cancelled_stream_that_does_not_end_is_forced_to(tmp_path: Path, ends: type[Exception] | None) -> None:
    """Ray's own checks may fail if a task is ended twice, and end this process."""
    answers: list[bytes | Exception] = [b"one", *([] if ends is None else [ends()])]
    forced: list[bool] = []

    def get(_: Any) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    ray = SimpleNamespace(exceptions=SimpleNamespace(RayError=Cancelled), get=get)
    ray.cancel = lambda stream, force=False: forced.append(force)
    ray.wait = lambda streams, timeout: (streams if answers else [], [])
    with Interrupts() as interrupts:
        running = FanOut(_broken, [4], interrupts, tmp_path, 1)
        running._running = {repeat(None): SimpleNamespace()}  # type: ignore[dict-item]
        running._abandon(SimpleNamespace(is_ours=False, ray=ray))  # type: ignore[arg-type]
    assert forced == ([False] if ends else [False, True])


def test_the_summary_names_what_to_repeat() -> None:
    out = io.StringIO()
    task = ScenarioTask("a.yaml", json.dumps({"name": "swept"}))
    print_summary(Console(file=out), task, Summary((GOOD, BAD), 3, True, commit="0123"))
    assert "2 of 3 seeds, 1 passed, 1 failed, 0 undecided" in out.getvalue()
    assert "again  stampede run a.yaml --backend sim --seed 8  # at commit 0123\n" in out.getvalue()
    assert "seed 7" not in out.getvalue()


@pytest.mark.slow
def test_a_sweep_writes_junit_and_stands_in_the_index_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text("name: tiny\nstop: {height: 4, drain_blocks: 0}\n")
    arguments = ["sweep", "s.yaml", "--seeds", "0:2", "--workers", "1", "--out", "runs/tiny", "--junit", "j.xml"]
    arguments += ["--json", "runs/tiny/more.json", "--summary", "s.md", "--quiet"]
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert cli.main(arguments) == ExitCode.INCONCLUSIVE, "so little proves nothing"
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[:4:2]] == ["seed 0 undecided", "seed 1 undecided"]
    assert lines[4].endswith(": inconclusive: 0 passed, 0 failed, 2 undecided of 2 seeds")
    assert [line.startswith("::warning title=sweep tiny ") for line in lines[5:]] == [True, True]
    assert "--seed 1 # at commit" in (tmp_path / "s.md").read_text()
    suite = ElementTree.parse(tmp_path / "j.xml").getroot()[0]
    assert [case.get("name") for case in suite.iter("testcase")] == ["seed 0", "seed 1"]
    assert suite.get("errors") == "2"
    assert json.loads((tmp_path / "runs" / "tiny" / "more.json").read_text())["seeds"] == 2
    assert "2 seeds" in (tmp_path / "runs" / "index.html").read_text()
