"""A search: what it runs, what counts, and that it goes on where it was interrupted."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cluster.commands.cli.main import main
from cluster.commands.sweeps.tasks import FuzzTask
from cluster.commands.sweeps.worker import WORKER_MEMORY_MIB
from cluster.common.checkout import ROOT
from cluster.common.errors import BadInput, ExitCode, HarnessError
from kits.mutation.generated import hunting, search
from kits.mutation.generated.choice import all_candidates
from kits.mutation.generated.hunting import (
    ENDLESS,
    SUBJECT,
    SURVIVED,
    Bug,
    Run,
    Sound,
    hunt,
    run_sound,
)
from kits.mutation.generated.operators import Candidate, Operator
from kits.mutation.generated.report import page, print_search, search_xml
from kits.mutation.generated.search import Plan
from kits.mutation.generated.subject import CRASH, FAIL, IMPORT_CRASH, Request
from tests.hangs import HANGS_AFTER_S

PATH = "consensus/tally.py"
RUNS = (Run(FuzzTask("simplex"), 0), Run(FuzzTask("hotstuff"), 0))
A, B = (Candidate(PATH, line, line, line + 1, Operator.LOGIC, "or") for line in (1, 2))


def quiet(line: str) -> None:
    """Nobody reads it."""


class Fakes:
    """Runs that take no time. Bugs of even lines survive."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hunted: list[Candidate] = []
        self.groups: list[int] = []
        self.runs: list[list[str]] = []
        self.verdict = "pass"
        """That of the second run of each group, without a change."""
        self.interrupted_at = 0
        monkeypatch.setattr(search, "run_sound", self.run_sound)
        monkeypatch.setattr(search, "hunt", self.hunt)

    def run_sound(self, runs: Sequence[Run], number: int, records_lines: bool, memory_mib: int) -> Sound:
        self.groups.append(number)
        verdicts = ["pass", self.verdict, *["pass"] * len(runs)][: len(runs)]
        lines = list(range(1, 10_000)) if records_lines else []
        return Sound(number, verdicts, [1.0] * len(runs), {PATH: lines})

    def hunt(self, candidate: Candidate, runs: Sequence[tuple[Run, float]], memory_mib: int) -> Bug:
        self.hunted.append(candidate)
        self.runs.append([run.name for run, _ in runs])
        if len(self.hunted) == self.interrupted_at:
            raise KeyboardInterrupt
        outcome = FAIL if candidate.line % 2 else SURVIVED
        return Bug(candidate, outcome, runs[0][0].name if candidate.line % 2 else "", runs=1)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Fakes:
    return Fakes(monkeypatch)


def test_protocols_take_turns() -> None:
    assert [run.name for run in Plan(1, 2).runs] == [
        "fuzz simplex 0",
        "fuzz hotstuff 0",
        "fuzz simplex 1",
        "fuzz hotstuff 1",
    ]
    assert Plan(1, 2).title != Plan(1, 3).title


def test_a_search_goes_on_where_it_was_interrupted(fakes: Fakes, tmp_path: Path) -> None:
    plan = Plan(6, 5, prefixes=(PATH,))
    fakes.interrupted_at = 3
    first = search.search(plan, tmp_path, 1, quiet)
    assert not first.is_complete and len(first.ended) == 2 and len(first.planted) == 6
    assert fakes.groups == [0, 1]
    log = tmp_path / "machine.jsonl"
    log.write_bytes(log.read_bytes() + b'{"type":"bug","candi')
    fakes.interrupted_at = 0
    second = search.search(plan, tmp_path, 1, quiet)
    assert second.is_complete and second.planted == first.planted
    assert fakes.groups == [0, 1]
    assert fakes.hunted == [*second.planted[:3], *second.planted[2:]]
    again = search.search(plan, tmp_path, 1, quiet)
    assert page(again) == page(second) and len(fakes.hunted) == 7
    with pytest.raises(BadInput, match=r"its search is 6 bugs, .*, expected 7 bugs, .*: choose another --out"):
        search.search(Plan(7, 5, prefixes=(PATH,)), tmp_path, 1, quiet)


def test_a_log_of_another_commit_is_refused(fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(1, 1, prefixes=(PATH,))
    search.search(plan, tmp_path, 1, quiet)
    monkeypatch.setattr(search, "checkout_commit", lambda: "another")
    with pytest.raises(BadInput, match=r"its commit is .*, expected another: choose another --out"):
        search.search(plan, tmp_path, 1, quiet)


def test_runs_that_fail_without_a_change_do_not_count(fakes: Fakes, tmp_path: Path) -> None:
    fakes.verdict = FAIL
    found = search.search(Plan(1, 1, prefixes=(PATH,)), tmp_path, 1, quiet)
    assert found.unsound == ["fuzz hotstuff 0"]
    assert fakes.runs == [["fuzz simplex 0"]]


def test_no_line_that_ran_is_bad_input(fakes: Fakes, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no change is on a line that ran: choose more --seeds or another --only"):
        search.search(Plan(1, 1, prefixes=("consensus/keys.py",)), tmp_path, 1, quiet)


# --- one hunt ---------------------------------------------------------------------------------------------------------


def hunted(monkeypatch: pytest.MonkeyPatch, script: str, is_over: bool = False) -> Bug:
    """The hunt of a bug whose process does something else. ``is_over``: it ends before it is sent anything."""
    popen: Callable[..., Any] = subprocess.Popen

    def start(command: Sequence[str], **options: Any) -> Any:
        process = popen([command[0], "-c", f"import os, signal\nsay = lambda b: os.write(1, b)\n{script}"], **options)
        if is_over:
            process.wait(HANGS_AFTER_S)
        return process

    monkeypatch.setattr(subprocess, "Popen", start)
    first = all_candidates([PATH])[0]
    return hunt(first, [(run, 1.0) for run in RUNS], WORKER_MEMORY_MIB)


PASSES = 'say(b\'{"verdict":"pass"}\\n\')\n'


@pytest.mark.parametrize(
    ("script", "outcome", "run", "runs"),
    [
        (PASSES * 2, SURVIVED, "", 2),
        (PASSES + 'say(b\'{"verdict":"fail","reason":"x"}\\n\')', FAIL, "fuzz hotstuff 0", 2),
        ('say(b\'{"verdict":"crash"}\\n\')', CRASH, "fuzz simplex 0", 1),
        ('say(b\'{"verdict":"import crash"}\\n\')', IMPORT_CRASH, "fuzz simplex 0", 1),
        (PASSES + "os.kill(os.getpid(), signal.SIGXCPU)", ENDLESS, "fuzz hotstuff 0", 2),
        (PASSES + "os.kill(os.getpid(), signal.SIGSEGV)", CRASH, "fuzz hotstuff 0", 2),
        ("os._exit(0)", CRASH, "fuzz simplex 0", 1),
    ],
)
def test_what_a_process_does_decides(
    monkeypatch: pytest.MonkeyPatch, script: str, outcome: str, run: str, runs: int
) -> None:
    bug = hunted(monkeypatch, script)
    assert (bug.outcome, bug.run, bug.runs, bug.seen) == (outcome, run, runs, outcome != SURVIVED)


@pytest.mark.parametrize(("script", "outcome"), [("os._exit(1)", CRASH), (PASSES * 2, SURVIVED)])
def test_a_process_may_end_before_it_reads_anything(monkeypatch: pytest.MonkeyPatch, script: str, outcome: str) -> None:
    assert hunted(monkeypatch, script, is_over=True).outcome == outcome


def test_runs_without_a_change_must_get_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    popen: Callable[..., Any] = subprocess.Popen
    monkeypatch.setattr(
        subprocess,
        "Popen",
        lambda command, **options: popen([command[0], "-c", "raise OSError('no')"], **options),
    )
    with pytest.raises(HarnessError, match="runs without a change: the process ended with 1: OSError: no"):
        run_sound(RUNS, 0, True, WORKER_MEMORY_MIB)


# --- the report and the command ---------------------------------------------------------------------------------------


def test_the_report_lists_survivors_and_shares(fakes: Fakes, tmp_path: Path) -> None:
    found = search.search(Plan(4, 1, prefixes=(PATH,)), tmp_path, 1, quiet)
    text = io.StringIO()
    print_search(Console(file=text, width=200), found)
    survivors = [one for one in found.planted if one.line % 2 == 0]
    for one in survivors:
        assert f"survived  {one.place}  {one.operator}" in text.getvalue()
    share = 100 * (4 - len(survivors)) / 4
    assert f"{len(survivors)} survived: {share:.1f} % seen" in text.getvalue()
    told = page(found)
    assert (told["tried"], told["seen"], told["areas"]) == (
        4,
        4 - len(survivors),
        {"consensus": {"seen": 4 - len(survivors), "tried": 4}},
    )
    assert all(row["diff"].startswith("-") for row in told["mutants"])
    assert search_xml(found).count("<failure") == len(survivors)


@pytest.mark.parametrize(("least", "expected"), [("0", ExitCode.PASS), ("100", ExitCode.FAIL)])
def test_the_command_fails_below_the_least_share(fakes: Fakes, tmp_path: Path, least: str, expected: ExitCode) -> None:
    out, page_file = tmp_path / "out", tmp_path / "page.json"
    arguments = ["mutants", "--machine", "8", "--seeds", "1", "--only", PATH, "--workers", "1", "--least", least]
    assert main([*arguments, "--out", str(out), "--json", str(page_file)]) == expected
    told = json.loads(page_file.read_text())
    assert told["complete"] and told["seen"] < told["tried"] == 8
    fakes.interrupted_at = len(fakes.hunted) + 1
    assert main([*arguments, "--out", str(tmp_path / "other")]) == ExitCode.INCONCLUSIVE


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--machine", "0"], "'0' is not a valid number of bugs: expected an integer from 1 to 10,000"),
        (
            ["--machine", "1", "--only", "cluster"],
            "--only cluster: no module to change; expected a path in consensus/, ",
        ),
        (["--machine", "1", "--scenarios", "nothing.yaml"], "nothing.yaml: "),
        (["--machine", "1", "--least", "101"], "'101' is not a valid percentage: expected an integer from 0 to 100"),
        (["--out", "there"], "--out: expected together with --machine N"),
        (["--machine-seed", "1"], "--machine-seed: expected together with --machine N"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutants", *arguments]) == BadInput.exit_code
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1


# --- real processes ---------------------------------------------------------------------------------------------------


def changed_at(path: str, line_text: str, operator: Operator) -> Candidate:
    """The change of an operator on the line that has this text."""
    return next(
        one
        for one in all_candidates([path])
        if one.operator is operator and line_text in one.diff((ROOT / path).read_text()).splitlines()[0]
    )


def test_a_hunt_ends_with_the_process_that_began_it() -> None:
    """The pipe of its request closes then."""
    request = pickle.dumps(tuple(Request(None, pickle.dumps([(*RUNS[0], 600.0)] * 1_000), False, WORKER_MEMORY_MIB)))
    with subprocess.Popen([sys.executable, "-m", SUBJECT], stdin=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdin is not None
        process.stdin.write(request)
        process.stdin.close()
        assert process.wait(timeout=HANGS_AFTER_S) == 1


def test_work_can_be_sent_to_another_node() -> None:
    first = all_candidates([PATH])[0]
    work = partial(hunt, runs=[(run, 1.0) for run in RUNS], memory_mib=WORKER_MEMORY_MIB)
    sent = pickle.loads(pickle.dumps((work, first)))
    assert (sent[0].func, sent[0].keywords, sent[1]) == (hunt, work.keywords, first)
    bug, sound = Bug(first, FAIL), Sound(0, ["pass"], [1.0], {PATH: [1]})
    assert pickle.loads(pickle.dumps((bug, sound))) == (bug, sound)


@pytest.mark.slow
def test_a_run_beyond_its_processor_time_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hunting, "LEAST_LIMIT_S", 1.0)
    body = (ROOT / PATH).read_bytes().index(b"\n", (ROOT / PATH).read_bytes().index(b"    def add(self, vote"))
    endless = Candidate(PATH, 1, body, body, Operator.CONSTANT, "\n        while True: pass")
    bug = hunt(endless, [(RUNS[0], 0.001)], WORKER_MEMORY_MIB)
    assert (bug.outcome, bug.run, bug.runs) == (ENDLESS, "fuzz simplex 0", 1)


@pytest.mark.slow
def test_an_obvious_bug_is_seen_and_a_harmless_one_survives() -> None:
    runs = RUNS[:1]
    sound = run_sound(runs, 0, True, WORKER_MEMORY_MIB)
    assert sound.verdicts == ["pass"] and sound.cpu_s[0] > 0
    swapped = changed_at("consensus/keys.py", "return self.scheme.verify(", Operator.ARGUMENTS)
    assert swapped.line in sound.lines[swapped.path]
    timed = list(zip(runs, sound.cpu_s, strict=True))
    bug = hunt(swapped, timed, WORKER_MEMORY_MIB)
    assert bug.seen, bug
    harmless = Candidate(swapped.path, 1, 0, 0, Operator.CONSTANT, "# nothing changes\n")
    bug = hunt(harmless, timed, WORKER_MEMORY_MIB)
    assert (bug.outcome, bug.runs) == (SURVIVED, 1), bug
