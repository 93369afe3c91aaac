"""Every drill: it passes on a sound chain, a planted bug turns it red, and where nothing happened it says so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import pytest

from cluster.checks import check_run
from cluster.cli import main
from cluster.divergence import bisect as bisecting
from cluster.drills.base import PREFIX, Drill, default_of
from cluster.drills.byzantine import Byzantine
from cluster.drills.divergence import BUGS, Divergence
from cluster.drills.join import Join
from cluster.drills.outage import Outage
from cluster.drills.partition import Partition
from cluster.drills.registry import DRILLS
from cluster.drills.reorg import Reorg
from cluster.drills.restart_all import RestartAll
from cluster.drills.storm import Storm
from cluster.drills.upgrade import Upgrade
from cluster.errors import ExitCode
from cluster.record import RunRecord
from cluster.scenario import change_scenario
from cluster.settings import Change
from cluster.simulation.driver import simulate
from cluster.verdict import Outcome, Verdict
from validator.block import Event
from validator.records import Timer
from validator.scheduler.lane import TimerPhase

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "drills.md"
FAST = Change("consensus.signatures", "keyed-hash")
ANY_NUMBER_OF_FAULTS = Change("validators.allow_more_faults", True)

CHEAP: tuple[Drill, ...] = (
    Reorg(times=1, for_s=5),
    Outage(),
    Storm(timers=2_000),
    Partition(),
    RestartAll(times=1),
    Join(),
    Byzantine(),
    Divergence(),
    Upgrade(),
)
"""Each drill, as small as it can be."""


RUNS: dict[str, RunRecord] = {}
"""By scenario: a drill is run once, and judged as often as one likes."""


def run(drill: Drill, *changes: Change) -> RunRecord:
    """A drill's run, with changes that its command does not make."""
    scenario = change_scenario(drill.scenario(), [FAST, *changes], drill.name)
    key = scenario.model_dump_json()
    if key not in RUNS:
        RUNS[key] = simulate(scenario, 1)
    record = RUNS[key]
    record.drill = drill
    return record


def judged(drill: Drill, *changes: Change) -> Verdict:
    return check_run(run(drill, *changes))


def planted(mutant: str, indexes: Sequence[int], count: int = 4) -> tuple[Change, ...]:
    """A planted bug in some of the validators."""
    nodes = [{"mutant": mutant} if index in indexes else {} for index in range(count)]
    return Change("validators.nodes", nodes), ANY_NUMBER_OF_FAULTS


def of(verdict: Verdict, name: str) -> Outcome:
    return verdict.check(PREFIX + name).verdict


def failures(verdict: Verdict) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in verdict.checks if check.verdict is not Outcome.PASS]


# --- all of them ----------------------------------------------------------------------------------------------------


def test_every_drill_is_tested() -> None:
    assert {drill.name for drill in CHEAP} == set(DRILLS)


@pytest.mark.parametrize("drill", CHEAP, ids=lambda drill: drill.name)
def test_a_sound_chain_meets_what_is_expected(drill: Drill) -> None:
    verdict = judged(drill)
    assert verdict.outcome is Outcome.PASS, failures(verdict)
    names = [check.name for check in verdict.checks]
    assert names[-len(drill.expectations()) :] == [PREFIX + each.name for each in drill.expectations()]


@pytest.mark.parametrize(
    "drill",
    [
        Partition(protocol="hotstuff"),
        RestartAll("hotstuff", times=1),
        Divergence("hotstuff", culprit=3),
        Upgrade("hotstuff", heights_between=1),
    ],
    ids=lambda drill: drill.name,
)
def test_so_it_does_with_the_other_protocol(drill: Drill) -> None:
    verdict = judged(drill)
    assert verdict.outcome is Outcome.PASS, failures(verdict)


def test_defaults_are_what_the_command_has() -> None:
    for name, drill in DRILLS.items():
        assert drill().command == f"stampede drill {name}"
        assert drill().problem("sim") is None
        for each in fields(drill):
            assert each.metadata["text"]
            if not each.metadata["choices"]:
                assert each.metadata["least"] <= default_of(each) <= each.metadata["most"]


def test_a_command_names_what_is_not_the_default() -> None:
    assert Reorg(depth=5).command == "stampede drill reorg --depth 5"
    assert Divergence(bug="wrong-balance", culprit=0).command == (
        "stampede drill divergence --culprit 0 --bug wrong-balance"
    )


# --- planted bugs ---------------------------------------------------------------------------------------------------

ALL_OF_FOUR = range(4)
FORGETFUL = [{}, {"mutant": "reads-another-branch"}, {}, {"byzantine": "forgetful-leader"}]
COUNTS_WRONG = [{}, {"mutant": "fires-not-taken-back"}, {}, {"byzantine": "forgetful-leader"}]
SILENT = [{}, {}, {}, {}, {"joins_at_height": 30, "byzantine": "silent-leader"}]
TOO_MANY = [{}, {}, {"byzantine": ["equivocating-leader", "conflicting-voter"]}, {"byzantine": "conflicting-voter"}]


@pytest.mark.parametrize(
    ("drill", "changes", "red"),
    [
        (CHEAP[0], (Change("validators.nodes", FORGETFUL), ANY_NUMBER_OF_FAULTS), "replay"),
        (CHEAP[0], (Change("validators.nodes", COUNTS_WRONG), ANY_NUMBER_OF_FAULTS), "replay"),
        (CHEAP[1], planted("fires-again-after-restart", ALL_OF_FOUR), "timers_once"),
        (CHEAP[3], planted("quorum-of-2f", ALL_OF_FOUR), "sides"),
        (CHEAP[3], planted("quorum-of-2f", ALL_OF_FOUR), "one_again"),
        (CHEAP[4], planted("archive-not-synced", ALL_OF_FOUR), "durable"),
        (CHEAP[4], planted("fires-again-after-restart", ALL_OF_FOUR), "timers_once"),
        (CHEAP[4], planted("fires-again-after-restart", ALL_OF_FOUR), "replay"),
        (CHEAP[5], (Change("validators.nodes", SILENT),), "takes_part"),
        (Byzantine(validators=4, liars=1), (Change("validators.nodes", TOO_MANY),), "withstood"),
        (CHEAP[8], (Change("faults[0].mutant", "wrong-balance"),), "upgraded"),
        (CHEAP[8], (Change("faults[0].mutant", "wrong-balance"),), "replay"),
        (CHEAP[7], planted("double-fire", (1, 2)), "found"),
        (Divergence(bug="wrong-balance"), planted("double-fire", (1,)), "bisected"),
    ],
)
def test_a_planted_bug_turns_it_red(drill: Drill, changes: tuple[Change, ...], red: str) -> None:
    verdict = judged(drill, *changes)
    assert of(verdict, red) is Outcome.FAIL, verdict.check(PREFIX + red).detail
    assert verdict.outcome is Outcome.FAIL


def test_a_storm_that_takes_the_lane_turns_it_red(monkeypatch: pytest.MonkeyPatch) -> None:
    destroy = TimerPhase.destroy

    def dear(phase: TimerPhase, timers: Sequence[Timer], reason: str, events: Sequence[Event]) -> None:
        """Getting rid of a timer that cannot pay uses up the lane."""
        destroy(phase, timers, reason, events)
        phase.use.cells += phase.parameters.lane_timer_cells * (reason == "insufficient_funds")

    monkeypatch.setattr(TimerPhase, "destroy", dear)
    drill = Storm(timers=2_000, lateness_blocks=2)
    record = simulate(change_scenario(drill.scenario(), [FAST], drill.name), 1)
    record.drill = drill
    verdict = check_run(record)
    assert of(verdict, "honest_lateness") is Outcome.FAIL, verdict.check(PREFIX + "honest_lateness").detail


def test_slow_links_break_the_bound_of_finality() -> None:
    drill = Storm(timers=2_000, finality_ms=200)
    assert of(judged(drill, Change("links.latency_ms", 80)), "finality") is Outcome.FAIL


def test_a_slow_recovery_turns_the_outage_red() -> None:
    drill = Outage(recovery_ms=100)
    verdict = judged(drill)
    assert of(verdict, "recovery") is Outcome.FAIL
    assert verdict.check("recovery").verdict is Outcome.FAIL, "the check of every run has the same bound"


def test_a_backlog_that_is_not_worked_off_turns_the_outage_red() -> None:
    narrow = Change("chain.params.LANE_TIMER_CYCLES", 550_000)
    assert of(judged(Outage(), narrow), "backlog") is Outcome.FAIL


# --- where nothing happened -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("drill", "changes", "undecided"),
    [
        (CHEAP[0], (Change("validators.nodes", []),), "depth"),
        (Reorg(depth=9, times=1, for_s=5), (Change("validators.count", 4), Change("validators.nodes", [])), "depth"),
        (Outage(down_s=2), (), "backlog"),
        (Storm(timers=4_000), (Change("load.users[1].options.in_all", 100),), "storm"),
        (CHEAP[3], (Change("faults", []),), "sides"),
        (CHEAP[4], (Change("faults", []),), "durable"),
        (CHEAP[5], (Change("validators.nodes", []),), "snapshot"),
        (CHEAP[6], (Change("validators.nodes", []),), "withstood"),
        (CHEAP[7], planted("double-fire", ()), "found"),
        (CHEAP[8], (Change("faults", []),), "upgraded"),
    ],
)
def test_what_did_not_come_about_is_not_met(drill: Drill, changes: tuple[Change, ...], undecided: str) -> None:
    assert of(judged(drill, *changes), undecided) is Outcome.INCONCLUSIVE


# --- divergence -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bug", BUGS)
def test_every_bug_is_found_where_it_is(bug: str) -> None:
    verdict = judged(Divergence(bug=bug))
    assert verdict.outcome is Outcome.PASS, failures(verdict)
    assert verdict.check("state_roots").detail.startswith("fails, as it must here: validator-1 diverged at height ")


def test_a_blind_bisection_turns_it_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bisecting, "part", lambda *_: None)
    verdict = judged(CHEAP[7])
    assert (of(verdict, "bisected"), of(verdict, "found")) == (Outcome.FAIL, Outcome.PASS)


def test_a_blind_check_turns_it_red() -> None:
    sound = judged(CHEAP[7], *planted("double-fire", ()))
    assert sound.check("state_roots").verdict is Outcome.FAIL
    assert sound.check("state_roots").detail.startswith("saw nothing of the planted bug: ")


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drill") / "run"
    options = ["--backend", "sim", "--seed", "3", "--bug", "wrong-balance", "--out", str(folder)]
    assert main(["drill", "divergence", *options, "--set", "consensus.signatures=keyed-hash"]) == ExitCode.PASS
    return folder


def test_the_folder_knows_the_drill(folder: Path) -> None:
    result = json.loads((folder / "result.json").read_text())
    assert result["drill"]["name"] == "divergence"
    assert result["drill"]["options"]["bug"] == "wrong-balance"
    names = [check["name"] for check in result["checks"]]
    assert [each["check"] for each in result["drill"]["expectations"]] == names[-3:]
    assert (result["verdict"], result["divergences"][0]["validator"]) == ("pass", "validator-1")
    report = (folder / "report.html").read_text()
    assert "drill bisected" in report
    assert "stampede drill divergence --bug wrong-balance --backend sim --seed 3" in report


def test_what_is_expected_is_printed_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "run")]
    assert main(["drill", "divergence", "--backend", "sim", "--set", "stop.height=3", *out]) == ExitCode.INCONCLUSIVE
    text = capsys.readouterr().out
    first = text.index("drill    divergence: one validator runs a planted bug")
    expected = [text.index(f"expected {name}: ") for name in ("found", "bisected", "others")]
    assert [first, *expected] == sorted([first, *expected])
    assert max(expected) < text.index("verdict ")


def test_the_list_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", "--list"]) == ExitCode.PASS
    text = capsys.readouterr().out
    for name, drill in DRILLS.items():
        assert f"\n{name} " in f"\n{text}"
        assert all(f"--{each.name.replace('_', '-')} " in text for each in fields(drill))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "which drill? reorg, "),
        (["nope"], "invalid choice: 'nope'"),
        (["reorg", "--depth", "0"], "'0' is none: expected an integer from 1 to 12"),
        (["reorg", "--backend", "sim", "--set", "stop.heigth=3"], "drill reorg with --set: stop.heigth: "),
        (["partition", "--backend", "sim", "--cut-off", "4"], "--cut-off: 4 of 4 validators leave nobody"),
        (["byzantine", "--backend", "sim", "--liars", "3"], "--liars: 3 of 7 validators; at most 2 are withstood"),
        (["divergence", "--backend", "sim", "--culprit", "4"], "--culprit: there is no validator 4, the last is 3"),
        (["byzantine", "--behaviour", "twins"], "twins runs in the simulator only"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", *arguments]) == ExitCode.BAD_INPUT
    told = capsys.readouterr()
    assert words in told.err
    assert len(told.err.splitlines()) == 1


def test_the_reference_has_every_drill_and_option() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    for name, drill in DRILLS.items():
        _, _, section = text.partition(f"\n## `{name}`\n")
        section = section.partition("\n## ")[0]
        assert section, name
        for each in fields(drill):
            metadata, default = each.metadata, default_of(each)
            values = ", ".join(f"`{choice}`" for choice in metadata["choices"])
            values = values or f"{metadata['least']:,} to {metadata['most']:,}"
            row = f"| `--{each.name.replace('_', '-')}` | `{default}` | {values} | {metadata['text']}"
            assert row in section, row
        for expectation in drill().expectations():
            assert f"`{PREFIX}{expectation.name}`" in section, expectation.name


@pytest.mark.soak
def test_a_storm_of_a_hundred_thousand() -> None:
    verdict = judged(Storm(timers=100_000))
    assert verdict.outcome is Outcome.PASS, failures(verdict)
