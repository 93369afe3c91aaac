"""Drills on the testnet itself: a divergence that is bisected over HTTP, and a restart of all.

A few runs, some judged more than once; the other drills take minutes, and are a soak. What else there is of drills is
tested in the simulator.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.audit.books import keep_books
from cluster.checks.run import check_run
from cluster.checks.verdict import Verdict
from cluster.commands.cli.main import main
from cluster.commands.drills.base import PREFIX, Drill
from cluster.commands.drills.expectations import judge_replay, judge_timers_once
from cluster.commands.drills.kinds.byzantine import Byzantine
from cluster.commands.drills.kinds.divergence import SECRET, Divergence
from cluster.commands.drills.kinds.join import Join
from cluster.commands.drills.kinds.node_loss import NodeLoss
from cluster.commands.drills.kinds.outage import Outage
from cluster.commands.drills.kinds.partition import Partition
from cluster.commands.drills.kinds.reorg import Reorg
from cluster.commands.drills.kinds.restart_all import RestartAll
from cluster.commands.drills.kinds.storm import Storm
from cluster.commands.drills.kinds.upgrade import Upgrade
from cluster.commands.drills.peer_process import peer_alongside
from cluster.commands.drills.registry import DRILLS
from cluster.common.errors import ExitCode
from cluster.common.outcome import Outcome
from cluster.live.processes import processes
from cluster.record.archive import decode_traces
from cluster.record.finalizations import Finalizations
from cluster.record.run import RunRecord, RunRequest
from cluster.report.results import finish_run
from cluster.scenario.files import change_scenario
from cluster.scenario.overrides import Change
from cluster.watches.live.audited_testnet import run_live
from kits.market.siege import Siege
from tests.cluster.commands.drills.planted import (
    ALL_OF_FOUR,
    ANY_NUMBER_OF_FAULTS,
    COUNTS_WRONG,
    SILENT,
    TIES_BY_ID,
    TOO_MANY,
    planted,
)
from tests.ports import free_ports

pytestmark = [pytest.mark.live, pytest.mark.slow]

BUG = Divergence(bug="double-fire")
RESTARTS = RestartAll(times=1, down_ms=100)


@pytest.fixture(scope="module")
def diverged(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunRecord, Path]:
    folder = tmp_path_factory.mktemp("diverged") / "run"
    record = run_live(RunRequest(BUG.scenario(), 1, "test", folder))
    return record, folder


def test_a_live_divergence_is_found_and_bisected(diverged: tuple[RunRecord, Path]) -> None:
    record, _ = diverged
    verdict = check_run(record, judge=BUG.judge)
    drilled = [check for check in verdict.checks if check.name.startswith(PREFIX)]
    assert [check.verdict for check in drilled] == [Outcome.PASS] * 3, [check.detail for check in drilled]
    (page,) = verdict.divergences
    assert (page["validator"], page["step"]["kind"]) == ("validator-1", "fire")
    assert page["keys"], "what the step changed came over HTTP"


def judged_outside(folder: Path, bug: str | None) -> Verdict:
    """The drill with an external node, which has this bug."""
    drill, port = Divergence(where="external"), free_ports()
    address = Change("validators.nodes[1].external.address", f"127.0.0.1:{port}")
    scenario = change_scenario(drill.scenario(), [address, Change("stop.height", 24)], drill.name)
    alongside = drill.alongside(scenario, folder) if bug == drill.bug else peer_alongside(scenario, folder, SECRET, bug)
    with alongside:
        record = run_live(RunRequest(scenario, 1, "test", folder))
    assert processes.with_argument(str(folder)) == set()
    assert not (folder / "external").exists()
    return check_run(record, judge=drill.judge)


def test_the_bug_of_an_external_node_is_found_and_bisected(tmp_path: Path) -> None:
    verdict = judged_outside(tmp_path / "run", "double-fire")
    wrong = [f"{check.name}: {check.detail}" for check in verdict.checks if check.verdict is Outcome.FAIL]
    assert wrong == []
    assert verdict.check("state_roots").detail.startswith("fails, as expected here: validator-1 diverged at height ")
    drilled = [check for check in verdict.checks if check.name.startswith(PREFIX)]
    assert [check.verdict for check in drilled] == [Outcome.PASS] * 3, [check.detail for check in drilled]


@pytest.mark.soak
def test_a_sound_external_node_does_not_meet_it(tmp_path: Path) -> None:
    verdict = judged_outside(tmp_path / "run", None)
    found = verdict.check(f"{PREFIX}found")
    assert found.verdict is Outcome.INCONCLUSIVE and "never ran at validator-1" in found.detail, found.detail
    assert verdict.check("state_roots").verdict is Outcome.INCONCLUSIVE
    assert verdict.check("agreement").verdict is Outcome.PASS
    assert verdict.check("no_problems").verdict is Outcome.PASS, verdict.check("no_problems").detail
    assert verdict.outcome is Outcome.INCONCLUSIVE


def test_the_wrong_bug_is_told_apart(diverged: tuple[RunRecord, Path]) -> None:
    record, _ = diverged
    other = replace(record, scenario=Divergence(bug="wrong-balance").scenario())
    assert check_run(other, judge=BUG.judge).check(f"{PREFIX}bisected").verdict is Outcome.FAIL
    other = replace(record, scenario=Divergence(culprit=2).scenario())
    assert check_run(other, judge=BUG.judge).check(f"{PREFIX}found").verdict is Outcome.FAIL


def test_the_folder_can_be_bisected_again(
    diverged: tuple[RunRecord, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, _ = diverged
    finish_run(record, tmp_path / "run")
    (kept,) = decode_traces((tmp_path / "run" / "traces.bin").read_bytes())
    assert kept.validator == "validator-1"
    assert main(["bisect", str(tmp_path / "run"), "--json"]) == ExitCode.FAIL
    assert json.loads(capsys.readouterr().out) == list(check_run(record).divergences)


def test_a_planted_bug_turns_what_drills_share_red(diverged: tuple[RunRecord, Path]) -> None:
    """What ``reorg``, ``outage``, ``storm``, ``partition``, ``restart-all`` and ``upgrade`` expect, on the same run."""
    books = keep_books(diverged[0])
    assert judge_replay(books)[0] is Outcome.FAIL
    assert judge_timers_once(books)[0] is Outcome.FAIL


@pytest.mark.soak
def test_all_restart_live(tmp_path: Path) -> None:
    record = run_live(RunRequest(RESTARTS.scenario(), 1, "test", tmp_path / "run"))
    drilled = [check for check in check_run(record, judge=RESTARTS.judge).checks if check.name.startswith(PREFIX)]
    assert [check.verdict for check in drilled] == [Outcome.PASS] * 3, [check.detail for check in drilled]
    doubled = replace(record, finalizations=Finalizations([*record.finalizations, record.finalizations[0]]))
    assert check_run(doubled, judge=RESTARTS.judge).check(f"{PREFIX}durable").verdict is Outcome.FAIL


# --- the others, which take minutes -----------------------------------------------------------------------------------

OTHERS: tuple[Drill, ...] = (
    Reorg(),
    Outage(),
    Storm(timers=2_000),
    Partition(),
    Join(),
    Byzantine(),
    Upgrade(),
    NodeLoss(),
)


def judged(drill: Drill, changes: tuple[Change, ...], folder: Path) -> Verdict:
    record = run_live(RunRequest(change_scenario(drill.scenario(), changes, drill.name), 1, "test", folder))
    return check_run(record, judge=drill.judge)


def test_every_drill_is_run_live() -> None:
    assert {drill.name for drill in (*OTHERS, BUG, RESTARTS, Siege())} == set(DRILLS)


@pytest.mark.soak
def test_the_hardened_preset_withstands_a_live_siege(tmp_path: Path) -> None:
    verdict = judged(Siege(validators=2), (), tmp_path / "run")
    wrong = [f"{check.name}: {check.detail}" for check in verdict.checks if check.verdict is not Outcome.PASS]
    assert verdict.outcome is Outcome.PASS, wrong


@pytest.mark.soak
def test_a_hole_in_the_preset_turns_a_live_siege_red(tmp_path: Path) -> None:
    """The run itself is sound: what is wrong is how long honest timers wait."""
    verdict = judged(Siege(), TIES_BY_ID, tmp_path / "run")
    drilled = {check.name: check for check in verdict.checks if check.name.startswith(PREFIX)}
    assert drilled[f"{PREFIX}attack"].verdict is Outcome.PASS
    assert drilled[f"{PREFIX}honest_lateness"].verdict is Outcome.FAIL, drilled[f"{PREFIX}honest_lateness"].detail
    assert not [check for check in verdict.checks if check.verdict is Outcome.FAIL and check.name not in drilled]


@pytest.mark.soak
@pytest.mark.parametrize("drill", OTHERS, ids=lambda drill: drill.name)
def test_a_sound_testnet_meets_what_is_expected(drill: Drill, tmp_path: Path) -> None:
    verdict = judged(drill, (), tmp_path / "run")
    wrong = [f"{check.name}: {check.detail}" for check in verdict.checks if check.verdict is not Outcome.PASS]
    assert verdict.outcome is Outcome.PASS, wrong


@pytest.mark.soak
@pytest.mark.parametrize(
    ("drill", "changes", "red"),
    [
        (Reorg(), (Change("validators.nodes", COUNTS_WRONG), ANY_NUMBER_OF_FAULTS), "replay"),
        (Outage(), planted("double-fire", ALL_OF_FOUR), "timers_once"),
        (Partition(), planted("quorum-of-2f", ALL_OF_FOUR), "sides"),
        (Join(), (Change("validators.nodes", SILENT),), "takes_part"),
        (Byzantine(validators=4, liars=1), (Change("validators.nodes", TOO_MANY), ANY_NUMBER_OF_FAULTS), "withstood"),
        (Upgrade(), (Change("faults[0].mutant", "wrong-balance"),), "upgraded"),
    ],
    ids=lambda given: given.name if isinstance(given, Drill) else "",
)
def test_a_planted_bug_turns_it_red(drill: Drill, changes: tuple[Change, ...], red: str, tmp_path: Path) -> None:
    verdict = judged(drill, changes, tmp_path / "run")
    assert verdict.check(PREFIX + red).verdict is Outcome.FAIL, verdict.check(PREFIX + red).detail
