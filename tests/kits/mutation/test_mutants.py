"""Planted bugs are caught by the checks named for them, and what is not caught is told as a survivor."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cluster.checks.kind import shipped
from cluster.commands.cli.main import main
from cluster.common.errors import BadInput
from cluster.common.outcome import Outcome
from cluster.misbehaviour.planted import EnginePatch, PartsPatch, Planted, RunCounter, planted, planted_bugs
from cluster.record.rules import SafetyRule
from cluster.scenario import Scenario
from kits.mutation import detection
from kits.mutation.bugs import certificates, unchecked
from kits.mutation.bugs.harness import OF_THE_HARNESS
from kits.mutation.bugs.registry import OF_VALIDATORS
from kits.mutation.bugs.table import ALL, ONE, Area, Detection
from kits.mutation.detection import Kill, all_bugs, invariant, page
from kits.mutation.detection_scenarios import DETECTION_SCENARIOS, MAX_SEEDS, scenario_of
from kits.mutation.output import print_table
from kits.mutation.planting import replaced
from validator.node.assembly import Parts
from validator.transition.transition import Transition

FEW = (
    "wrong-balance",
    "quorum-of-2f",
    "counts-names",
    "root-without-active-bits",
    "effect-without-observation",
)
MORE = (*FEW, "refund-at-wrong-price", "usage-unchecked", "proposer-unchecked", "diverges-and-goes-on")
DOCS = Path(__file__).resolve().parents[3] / "docs" / "mutants.md"


def test_there_are_enough_in_every_area_and_each_names_its_detection() -> None:
    everyone = all_bugs()
    assert len(everyone) == len(OF_VALIDATORS) + len(OF_THE_HARNESS) >= 25
    areas = Counter(bug.area for bug in everyone.values())
    assert set(areas) == set(Area)
    names = {kind.name for kind in shipped()}
    for name, bug in everyone.items():
        must: Detection = bug.must_fail
        assert bug.name == name
        assert bug.words
        assert 1 <= must.seeds <= MAX_SEEDS
        if bug.area == Area.HARNESS:
            assert must.check in names
            assert must.mutant is None or must.mutant in OF_VALIDATORS
        else:
            assert must.check in names - {"progress"}, "a timeout does not count"
            assert (must.rule in set(SafetyRule)) == (must.check == "safety")
            assert isinstance(bug.patch, EnginePatch | PartsPatch)
            assert must.mutated
    assert {bug.must_fail.scenario for bug in everyone.values()} == set(DETECTION_SCENARIOS)


def test_scenarios_find_them_by_the_entry_point() -> None:
    assert planted_bugs() == OF_VALIDATORS


def test_where_no_package_has_bugs_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.misbehaviour.planted.planted_bugs", dict)
    with pytest.raises(ValueError, match="no installed package has planted bugs; expected the kit mutation"):
        Scenario.model_validate({"name": "a", "validators": [{"mutant": "double-fire"}]})


def test_nothing_of_them_is_in_a_scenario_that_names_none() -> None:
    for bug in all_bugs().values():
        sound = scenario_of(bug.must_fail, None)
        assert not any(node.mutant for node in sound.validators.nodes)
    mutated = scenario_of(planted("quorum-of-2f").must_fail, "quorum-of-2f")
    assert [node.mutant for node in mutated.validators.nodes] == ["quorum-of-2f"] * len(ALL)
    forged = scenario_of(Detection("forger"), "double-fire")
    assert [node.mutant for node in forged.validators.nodes][1] == "double-fire"


def test_a_mutant_of_the_harness_is_no_validators() -> None:
    with pytest.raises(ValueError, match="unknown mutant 'compares-no-roots'"):
        Scenario.model_validate({"name": "a", "validators": [{"mutant": "compares-no-roots"}]})


@pytest.mark.slow
@pytest.mark.parametrize("names", [FEW, pytest.param(MORE, marks=pytest.mark.soak)], ids=["few", "more"])
def test_a_handful_is_caught(names: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kills.json"
    code = main(["mutants", "--only", *names, "--seeds", "1", "--workers", "1", "--json", str(file)])
    captured = capsys.readouterr()
    assert code == 0, captured.out
    told = json.loads(file.read_text())
    assert (told["planted"], told["caught"], told["survivors"]) == (len(names), len(names), [])
    assert [row["name"] for row in told["mutants"]] == list(names)
    assert all(row["runs"] > 0 and row["passes_unmutated"] and row["seed"] for row in told["mutants"])
    counts = [(row["seeds_tried"], row["seeds_provoked"], row["seeds_caught"]) for row in told["mutants"]]
    assert all(tried >= provoked >= caught == 1 for tried, provoked, caught in counts), counts
    live = {row["name"]: row["live"] for row in told["mutants"]}
    assert live["quorum-of-2f"] == {"safety: certificates": 1, "safety: served_finality": 1}
    caught = {"state_roots": 1, "safety: served_proofs": 1, "safety: ancestry": 1}
    assert live["root-without-active-bits"] == caught, "the genesis has another root, too"
    assert live["counts-names"] == {"safety: certificates": 1}
    assert live["effect-without-observation"] == {}
    assert "state_roots" in live["wrong-balance"]
    assert f"{len(names)} planted, {len(names)} caught, 0 survived" in captured.out


@pytest.mark.parametrize("is_told_apart", [True, False])
def test_seeds_that_provoke_and_seeds_that_catch_are_counted(
    monkeypatch: pytest.MonkeyPatch, is_told_apart: bool
) -> None:
    """Every seed is run once; the first that catches is shown, and one beyond those of the mutant's own saves none."""
    bug = replace(planted("wrong-balance"), name="counted", must_fail=Detection("calm", ONE, seeds=3))
    monkeypatch.setitem(planted_bugs(), "counted", bug)
    caught_from = 2 if is_told_apart else 4

    def tried(_bug: Planted, kill: Kill) -> Kill:
        ran = kill.seed != 1
        live = {"timers": 1} if ran else {}
        return replace(kill, runs=7 * ran, caught=kill.seed >= caught_from, live=live, detail=f"seed {kill.seed}")

    monkeypatch.setattr(detection, "_try", tried)
    kill = detection.detect("counted", 5)
    assert (kill.seeds_tried, kill.seeds_provoked, kill.live) == (5, 4, {"timers": 4})
    assert (kill.caught, kill.seeds_caught) == ((True, 4) if is_told_apart else (False, 2))
    assert kill.detail == ("seed 2" if is_told_apart else "seed 3")
    once = detection.detect("counted")
    assert (once.seeds_tried, once.seed, once.caught) == ((2, 2, True) if is_told_apart else (3, 3, False))


# --- what does not count ----------------------------------------------------------------------------------------------


def plant(monkeypatch: pytest.MonkeyPatch, transition: Any) -> Kill:
    """Plant a bug of the test's own in one validator."""

    def parts(counter: RunCounter) -> Parts:
        return Parts(transition=transition(counter))

    must_fail = Detection("calm", ONE, seeds=1, check="state_roots")
    bug = Planted("planted", PartsPatch(parts), must_fail, "for a test", Area.STATE)
    monkeypatch.setitem(planted_bugs(), "planted", bug)
    return detection.detect("planted")


def harmless(counter: RunCounter) -> type[Transition]:
    class Harmless(Transition):
        def start(self) -> None:
            counter.ran()
            Transition.start(self)

    return Harmless


def crashing(counter: RunCounter) -> type[Transition]:
    class Crashing(Transition):
        def start(self) -> None:
            counter.ran()
            raise KeyError("planted")

    return Crashing


def richer(_counter: RunCounter) -> type[Transition]:
    class Richer(Transition):
        def start(self) -> None:
            Transition.start(self)
            self.world.credit(self.context.proposer, 1)

    return Richer


@pytest.mark.slow
def test_a_bug_that_no_check_sees_survives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kill = plant(monkeypatch, harmless)
    assert not kill.caught
    assert kill.runs > 0
    assert kill.detail.startswith("pass: ")
    file = tmp_path / "kills.json"
    assert main(["mutants", "--only", "planted", "--seeds", "1", "--json", str(file)]) == 1
    told = json.loads(file.read_text())
    assert (told["planted"], told["caught"], told["survivors"]) == (1, 0, ["planted"])
    text = " ".join(capsys.readouterr().out.split())
    assert "SURVIVED" in text
    assert "survived planted (for a test): 1 seeds, expected state_roots; at last pass: " in text
    assert "1 planted, 0 caught, 1 survived" in text


@pytest.mark.slow
def test_a_crash_a_line_that_never_ran_and_an_inconclusive_check_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    crashed = plant(monkeypatch, crashing)
    assert not crashed.caught
    assert crashed.detail == "crashed: KeyError: 'planted'"
    silent = plant(monkeypatch, richer)
    assert not silent.caught
    assert silent.detail.startswith("the mutated line never ran; fail: ")
    monkeypatch.setattr(detection, "_problem_without", lambda *_: "does not pass without it either: nothing")
    unsound = detection.detect("wrong-balance")
    assert not unsound.caught
    assert unsound.detail == "does not pass without it either: nothing"


def test_another_rule_than_the_one_named_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    must_fail = Detection("calm", ALL, seeds=1, check="safety", rule="proofs")
    monkeypatch.setitem(planted_bugs(), "other", replace(planted("quorum-of-2f"), name="other", must_fail=must_fail))
    kill = detection.detect("other")
    assert not kill.caught
    assert kill.detail.startswith("pass: another rule: ")


@pytest.mark.slow
def test_a_bug_of_the_harness_that_changes_no_answer_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    for right, what in ((Outcome.PASS, "pass: "), (Outcome.FAIL, "without it the answer is pass: ")):
        answer = Detection("calm", (), seeds=1, check="conservation", right=right)
        blind = Planted("blind", lambda counter: replaced(counter, "runs", 1), answer, area=Area.HARNESS)
        monkeypatch.setitem(OF_THE_HARNESS, "blind", blind)
        kill = detection.detect("blind")
        assert not kill.caught
        assert kill.detail.startswith(what)


def test_what_is_planted_in_the_harness_is_taken_out_again() -> None:
    owner = RunCounter()
    with replaced(owner, "runs", 7):
        assert owner.runs == 7
    assert owner.runs == 0
    with pytest.raises(KeyError), replaced(owner, "runs", 7):
        raise KeyError
    assert owner.runs == 0


# --- the table and the command ----------------------------------------------------------------------------------------


def kill_of(name: str, **changes: Any) -> Kill:
    kill = Kill(name, "consensus", "does wrong", "safety: skips", "calm", "hotstuff", caught=True, seed=3)
    changes = {"seeds_provoked": 2, "seeds_caught": 1, "live": {"timers": 1, "evidence": 2}} | changes
    changes = {"seeds_tried": 3, "runs": 1_234, "passes_unmutated": True, "detail": "fail: x", "seconds": 2.0} | changes
    return Kill(**{field: getattr(kill, field) for field in Kill.__slots__} | changes)


def test_the_table_shows_each_and_explains_survivors() -> None:
    kills = [kill_of("one"), kill_of("two", caught=False, detail="pass: [all] well")]
    text = io.StringIO()
    print_table(Console(file=text, width=200), kills)
    lines = text.getvalue().splitlines()
    assert lines[1].split() == [
        *(
            "one",
            "consensus",
            "safety:",
            "skips",
            "calm",
            "(hotstuff)",
            "3",
            "1,234",
            "2",
            "of",
            "3",
            "1",
            "of",
            "3",
            "passes",
        ),
        *("evidence", "2,", "timers", "1", "2.0"),
    ]
    assert lines[2].split()[:3] == ["two", "consensus", "SURVIVED"]
    assert lines[3].endswith("two (does wrong): 3 seeds, expected safety: skips; at last pass: [all] well")
    assert lines[4] == "2 planted, 1 caught, 1 survived; 4 s of work"
    assert page(kills)["survivors"] == ["two"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--only", "nothing"], "--only: unknown mutant 'nothing'; known: votes-before-journal, "),
        (["--json", "nowhere/kills.json"], "nowhere/kills.json: cannot be written: nowhere: No such file or directory"),
        (["--junit", "/"], "/: cannot be written: is a folder"),
        (["--workers", "0"], "'0' is not a valid number of workers"),
        (["--seeds", "0"], "'0' is not a valid number of seeds: expected an integer from 1 to 1,000"),
        (["--seeds", "1001"], "'1001' is not a valid number of seeds: expected an integer from 1 to 1,000"),
        (["--only"], "expected at least one argument"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutants", *arguments]) == BadInput.exit_code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert complaint in captured.err
    assert captured.err.count("\n") == 1


def test_the_page_names_each_with_what_catches_it() -> None:
    rows = [line.split(" | ") for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    documented = {row[0].strip("|` "): row[1:] for row in rows}
    assert list(documented) == list(all_bugs())
    for name, bug in all_bugs().items():
        cells = documented[name]
        assert (cells[0], cells[1], cells[2].strip("` |")) == (bug.words, invariant(bug), bug.must_fail.scenario)


# --- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.turns(14)
@pytest.mark.parametrize("name", list(all_bugs()))
def test_each_is_caught(name: str) -> None:
    kill = detection.detect(name)
    assert kill.caught, kill


@pytest.mark.soak
@pytest.mark.parametrize(
    "bug",
    [one for one in (*certificates.MUTANTS, *unchecked.MUTANTS) if one.must_fail.protocol == "simplex"],
    ids=attrgetter("name"),
)
def test_who_believes_a_lie_is_caught_with_the_other_protocol_too(
    bug: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = replace(bug, must_fail=replace(bug.must_fail, protocol="hotstuff", seeds=MAX_SEEDS))
    monkeypatch.setitem(planted_bugs(), bug.name, changed)
    kill = detection.detect(bug.name)
    assert kill.caught, kill
