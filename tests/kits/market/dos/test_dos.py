"""``stampede dos`` as users call it: its runs, grades, JSON, errors and exit codes."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cluster.commands.cli.main import main
from cluster.commands.run import scenario_run
from cluster.common.errors import BadInput, ExitCode
from cluster.common.outcome import Outcome
from cluster.record.run import RunRecord, RunRequest
from cluster.scenario import Scenario
from cluster.scenario.files import load_scenario, scenario_from
from cluster.scenario.sections.chain import OwnPolicy
from cluster.watches.watched_simulation import simulate
from kits.market.dos import case_runs
from kits.market.dos.case_runs import CaseResult, full_block_s, run_case
from kits.market.dos.cases import BASELINE, OWN, Plan, make_plan, make_variants
from kits.market.dos.measures import METRICS, Window
from kits.market.dos.scorecard import Against, Scorecard
from kits.market.dos.scorecard_output import COLUMNS, against, cell, ordered, print_scorecard, summary
from kits.market.dos.section import DEFAULT_BOUNDS, PURSE, DosSection, grade
from kits.market.trials import Trial
from loadgen.workloads import WORKLOADS
from loadgen.workloads.attacks.registry import ATTACKS
from tests.kits.market.dos.cards import HEARTBEAT, SMALL, WINDOW, attacked, card, measures
from tests.loadgen.own_workloads import PAYS
from tests.validator.policies.own_policies import DEADLINES
from validator.chain.genesis import Genesis, Policy
from validator.primitives.params import DEFAULTS, Parameters


def scenario(**fields: Any) -> Scenario:
    return scenario_from({**SMALL, **fields})


# --- plans ----------------------------------------------------------------------------------------------------------


def test_each_attack_runs_beside_the_same_users_without_it() -> None:
    plan = make_plan(scenario(), [], make_variants(scenario(), [], []), (1, 2), is_quick=False)
    assert plan.attacks == tuple(ATTACKS)
    assert set(plan.attacks) == {name for name, workload in WORKLOADS.items() if workload.is_attack}
    assert len(plan.trials) == len(set(plan.trials)) == 2 * (1 + len(ATTACKS))
    assert plan.window == WINDOW
    baseline, attack = plan.scenario("cip1", BASELINE), plan.scenario("cip1", "lane-cells")
    assert list(attack.load.genesis_accounts(1))[:2] == list(baseline.load.genesis_accounts(1))
    assert attack.load.attackers == (2, 3)
    assert attack.load.users[-1].from_height == 3
    assert attack.load.users[-1].until_height == 9


def test_some_attackers_are_as_many_as_they_have_to_be() -> None:
    names = ["greedy-agents", "sybil-fragmentation", "same-block"]
    plan = make_plan(scenario(), names, make_variants(scenario(), [], []), (1,), is_quick=False)
    assert [plan.scenario("cip1", name).load.users[-1].count for name in names] == [8, 64, 2]


def test_every_attack_has_one_purse_of_a_stated_size() -> None:
    siege = load_scenario("siege")
    dos = DosSection.of(siege)
    first, last = dos.window(siege.stop.height)
    lane = siege.chain.parameters().lane_timer_cycles * siege.chain.parameters().initial_basefee
    assert dos.budget == (last - first) * lane == DosSection().budget
    for given in (siege, scenario()):
        plan = make_plan(given, [], make_variants(given, [], []), (1,), is_quick=False)
        for name in plan.attacks:
            attackers = plan.scenario("cip1", name).load.users[-1]
            assert attackers.budget == PURSE, name
            assert attackers.funding.account + attackers.funding.actor == PURSE // attackers.count, "an equal share"
    endless = scenario(dos={**SMALL["dos"], "budget": None})
    plan = make_plan(endless, ["same-block"], make_variants(endless, [], []), (1,), is_quick=False)
    assert plan.scenario("cip1", "same-block").load.users[-1].budget is None


def test_settings_of_one_attack_replace_the_common_ones() -> None:
    own = {"count": 1, "interval_ms": 200, "budget": 10**15, "options": {"timers": 7}}
    given = scenario(dos={**SMALL["dos"], "budget": 10**12, "attacks": {"same-block": own}})
    plan = make_plan(given, ["same-block", "lane-cells"], make_variants(given, [], []), (1,), is_quick=False)
    group = plan.scenario("cip1", "same-block").load.users[-1]
    assert (group.count, group.interval_ms, group.budget, group.options) == (1, 200, 10**15, {"timers": 7})
    other = plan.scenario("cip1", "lane-cells").load.users[-1]
    assert (other.count, other.interval_ms, other.budget, other.options) == (2, 500, 10**12, {})


def test_a_file_of_ones_own_may_attack(tmp_path: Path) -> None:
    raid, calm = tmp_path / "raid.py", tmp_path / "calm.py"
    raid.write_text(PAYS + "    is_attack = True\n")
    calm.write_text(PAYS)
    given = scenario()
    plan = make_plan(given, [str(raid), "same-block"], make_variants(given, [], []), (1,), is_quick=False)
    assert plan.attacks == ("raid", "same-block")
    attacked = plan.scenario("cip1", "raid").load
    assert attacked.attackers == (2, 3) and attacked.users[-1].title == "raid"
    with pytest.raises(BadInput, match=r"calm\.py: calm is no attack; expected a workload with is_attack = True"):
        make_plan(given, [str(calm)], make_variants(given, [], []), (1,), is_quick=False)
    with pytest.raises(BadInput, match=r"--attack .*gone\.py: no such file"):
        make_plan(given, [str(tmp_path / "gone.py")], make_variants(given, [], []), (1,), is_quick=False)
    (other := tmp_path / "other" / "raid.py").parent.mkdir()
    other.write_text(PAYS + "    is_attack = True  # another text\n")
    with pytest.raises(BadInput, match="another attack is named raid, too"):
        make_plan(given, [str(raid), str(other)], make_variants(given, [], []), (1,), is_quick=False)


def test_a_scenarios_own_attackers_are_scored_together_and_are_not_in_the_baseline() -> None:
    users = [{"workload": "lane-cells", "count": 3}, HEARTBEAT, {"workload": "tip-sniping"}]
    given = scenario(load={"users": users})
    plan = make_plan(given, [], make_variants(given, [], []), (1,), is_quick=False)
    assert plan.attacks == (OWN,)
    assert [group.workload for group in plan.scenario("cip1", BASELINE).load.users] == ["heartbeat"]
    workloads = [group.workload for group in plan.scenario("cip1", OWN).load.users]
    assert workloads == ["heartbeat", "lane-cells", "tip-sniping"]
    named = make_plan(given, ["far-future"], make_variants(given, [], []), (1,), is_quick=False)
    assert [group.workload for group in named.scenario("cip1", "far-future").load.users] == ["heartbeat", "far-future"]


OWN_ATTACK = {"workload": "lane-cells", "interval_ms": 500}


@pytest.mark.parametrize(
    ("groups", "window"),
    [
        ([{}], Window(1, 12)),
        ([{"from_height": 2, "until_height": 11}], Window(3, 11)),
        ([{"from_height": 5, "until_height": 7}, {"from_height": 8}], Window(6, 12)),
        ([{"from_height": 4, "until_height": 90}], Window(5, 12)),
        ([{"phases": [{"kind": "pause", "from_height": 1, "until_height": 6}]}], Window(1, 12)),
        ([{"phases": [{"kind": "pause", "from_height": 7}], "from_height": 2}], Window(3, 7)),
    ],
)
def test_a_scenarios_own_attackers_are_scored_in_their_own_heights(
    groups: list[dict[str, Any]], window: Window
) -> None:
    given = scenario(load={"users": [HEARTBEAT, *(OWN_ATTACK | group for group in groups)]})
    variants = make_variants(given, [], [])
    assert make_plan(given, [], variants, (1,), is_quick=False).window == window
    assert make_plan(given, ["lane-cells"], variants, (1,), is_quick=False).window == WINDOW


def test_own_attackers_that_never_act_are_refused() -> None:
    pause = {"kind": "pause", "from_height": 1, "until_height": 12}
    users = [HEARTBEAT, OWN_ATTACK | {"from_height": 3}]
    own = [HEARTBEAT, OWN_ATTACK | {"from_height": 3, "phases": [pause]}]
    for load in ({"users": users, "phases": [pause]}, {"users": own}):
        given = scenario(load=load)
        with pytest.raises(BadInput, match=r"small: load: no attacker takes a turn before stop\.height"):
            make_plan(given, [], make_variants(given, [], []), (1,), is_quick=False)


def test_the_phases_of_attackers_are_theirs_alone() -> None:
    spike = {"kind": "spike", "from_height": 3, "until_height": 9, "rate": 9.0}
    given = scenario(load={"users": [HEARTBEAT, OWN_ATTACK | {"phases": [spike]}]})
    plan = make_plan(given, [], make_variants(given, [], []), (1,), is_quick=False)
    assert plan.scenario("cip1", OWN).load.users[1].phases == given.load.users[1].phases
    for attack in (BASELINE, OWN):
        load = plan.scenario("cip1", attack).load
        assert (load.users[0].phases, load.phases) == (None, [])


def test_variants_are_each_policy_with_each_combination_of_parameters() -> None:
    given = ["SCAN_LIMIT=1000", "SCAN_LIMIT=2000", "TIE_BREAK=aged"]
    variants = make_variants(scenario(), ["hardened", "fifo"], given)
    assert [variant.name for variant in variants] == [
        "hardened SCAN_LIMIT=1000 TIE_BREAK=aged",
        "hardened SCAN_LIMIT=2000 TIE_BREAK=aged",
        "fifo SCAN_LIMIT=1000 TIE_BREAK=aged",
        "fifo SCAN_LIMIT=2000 TIE_BREAK=aged",
    ]
    plan = make_plan(scenario(), ["lane-cells"], variants, (1,), is_quick=False)
    chain = plan.scenario(variants[1].name, "lane-cells").chain
    assert (chain.policy, chain.preset, chain.parameters().scan_limit) == ("cip1", "hardened", 2_000)
    hardened = scenario(chain={"preset": "hardened"})
    assert [variant.name for variant in make_variants(hardened, [], [])] == ["hardened"]
    (plain,) = make_variants(hardened, ["cip1"], [])
    assert make_plan(hardened, [], [plain], (1,), False).scenario("cip1", BASELINE).chain.preset is None


def test_a_variant_may_be_a_policy_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "deadlines.py"
    path.write_text(DEADLINES, encoding="utf-8")
    own, _ = variants = make_variants(scenario(chain={"preset": "hardened"}), [str(path), "fifo"], ["TIE_BREAK=aged"])
    assert [variant.name for variant in variants] == ["deadlines TIE_BREAK=aged", "fifo TIE_BREAK=aged"]
    plan = make_plan(scenario(chain={"preset": "hardened"}), ["lane-cells"], variants, (1,), is_quick=False)
    chain = plan.scenario(own.name, "lane-cells").chain
    assert (chain.policy, chain.preset) == (OwnPolicy(name="deadlines", source=DEADLINES), None)
    path.write_text("x = 1", encoding="utf-8")
    with pytest.raises(BadInput, match=r"file deadlines\.py: expected one class"):
        make_variants(scenario(), [str(path)], [])


def test_a_quick_run_is_short_and_its_attack_fits() -> None:
    siege = load_scenario("siege")
    plan = make_plan(siege, ["lane-cells"], make_variants(siege, [], []), (1,), is_quick=True)
    quick = plan.scenario("cip1", "lane-cells")
    assert (quick.stop.height, plan.window) == (40, Window(11, 25))


# --- the section ----------------------------------------------------------------------------------------------------


def test_a_grade_is_by_bounds_that_rise_or_fall() -> None:
    rising, falling = (1.0, 3.0, 8.0, 20.0), (0.98, 0.9, 0.75, 0.5)
    assert [grade(value, rising) for value in (0, 1, 2, 3.5, 20, 20.1)] == ["A", "A", "B", "C", "D", "F"]
    assert [grade(value, falling) for value in (1.2, 0.98, 0.97, 0.8, 0.5, 0.49)] == ["A", "A", "B", "C", "D", "F"]


def test_every_metric_of_the_scorecard_can_be_graded_and_no_other() -> None:
    found = card(attacked()).scores["cip1"][0].metrics
    assert set(found) < set(METRICS)
    assert set(DEFAULT_BOUNDS) < set(METRICS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"attacks": {"lane-cell": {}}},
            "dos.attacks.lane-cell: unknown attack 'lane-cell'; did you mean lane-cells?",
        ),
        ({"attacks": {"lane-cells": {"options": {"timer": 1}}}}, "timer"),
        ({"grades": {"latenes_p99": [1, 2, 3, 4]}}, "unknown metric 'latenes_p99'; did you mean lateness_p99?"),
        ({"grades": {"lateness_p99": [1, 2, 2, 4]}}, "expected four bounds that rise or that fall"),
        ({"grades": {"lateness_p99": [1, 2, 4]}}, "dos.grades.lateness_p99"),
        ({"from_height": 9, "until_height": 9}, "until_height: 9 is not above from_height (9)"),
        ({"at_least": "E"}, "dos.at_least"),
    ],
)
def test_a_wrong_section_is_refused_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        scenario(dos=given)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_attack_is_in_the_middle_by_default() -> None:
    assert DosSection().window(100) == (20, 60)
    assert DosSection().window(3) == (1, 2)
    with pytest.raises(ValueError, match="expected from_height below until_height"):
        DosSection(until_height=50).window(50)


def test_siege_states_the_bounds_of_every_grade() -> None:
    siege = DosSection.of(load_scenario("siege"))
    assert {name: tuple(bounds) for name, bounds in siege.grades.items()} == DEFAULT_BOUNDS


# --- scorecards -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("late", "letter"), [(1, "A"), (3, "B"), (8, "C"), (20, "D"), (21, "F")])
def test_the_worst_metric_is_the_grade_and_too_low_a_grade_fails(late: int, letter: str) -> None:
    found = card(attacked(late))
    (score,) = found.scores["cip1"]
    assert score.grade == score.grades["lateness_p99_added"] == letter
    assert score.grades["honest_fires_ratio"] == "A"
    assert found.exit_code is (ExitCode.PASS if letter in "ABC" else ExitCode.FAIL)


@pytest.mark.parametrize(
    ("metric", "fields", "letter"),
    [
        ("cpu_full_ratio", {"cpu_s": [0.4], "full_block_s": 0.4}, "A"),
        ("cpu_full_ratio", {"cpu_s": [0.6], "full_block_s": 0.4}, "C"),
        ("cpu_full_ratio", {"cpu_s": [0.61], "full_block_s": 0.4}, "D"),
        ("cpu_full_ratio", {"cpu_s": [0.81], "full_block_s": 0.4}, "F"),
        ("destroyed_added", {"destroyed": 0}, "A"),
        ("destroyed_added", {"destroyed": 4}, "D"),
        ("destroyed_added", {"destroyed": 11}, "F"),
        ("state_bytes_per_coin", {"state_bytes": 1_100, "spend": 100 * 10**6}, "A"),
        ("state_bytes_per_coin", {"state_bytes": 1_400, "spend": 100 * 10**6}, "C"),
        ("state_bytes_per_coin", {"state_bytes": 2_001, "spend": 100 * 10**6}, "F"),
    ],
)
def test_what_an_attack_takes_of_validators_and_lost_timers_are_graded(
    metric: str, fields: dict[str, Any], letter: str
) -> None:
    found = card(attacked(**fields), usual={"state_bytes": 1_000})
    (score,) = found.scores["cip1"]
    assert score.grade == score.grades[metric] == letter
    assert found.exit_code is (ExitCode.PASS if letter in "ABC" else ExitCode.FAIL)


def test_every_graded_metric_is_in_the_table() -> None:
    assert set(DEFAULT_BOUNDS) - {"lateness_p99_added"} <= set(COLUMNS), "that one stands there as it is"
    assert {"honest_fires_per_block", "lateness_p99"} <= set(COLUMNS)


def test_a_stricter_scenario_fails_what_passes_by_default() -> None:
    assert card(attacked(fires=57)).exit_code is ExitCode.PASS
    strict = DosSection(grades={"displaced_fires": [0.0, 1.0, 2.0, 2.9]})
    found = card(attacked(fires=57), dos=strict)
    assert found.scores["cip1"][0].grades["displaced_fires"] == "F"
    assert found.exit_code is ExitCode.FAIL
    assert card(attacked(late=3), dos=DosSection(at_least="A")).exit_code is ExitCode.FAIL


def test_means_and_intervals_are_over_seeds() -> None:
    found = card(attacked(late=2), attacked(late=4), attacked(late=9))
    page = found.page()["attacks"]["same-block"]
    assert page["lateness_p99"] == 5
    assert page["values"]["lateness_p99"] == [2, 4, 9]
    low, high = page["intervals"]["lateness_p99"]
    assert 2 <= low < 5 < high <= 9
    assert cell(found.scores["cip1"][0], "lateness_p99").startswith("5 (")
    assert page["intervals"]["honest_fires_ratio"] == [1, 1]


def test_one_seed_gives_no_interval() -> None:
    found = card(attacked(late=2))
    page = found.page()["attacks"]["same-block"]
    assert set(page["intervals"].values()) == {None}
    assert (page["lateness_p99"], page["values"]["lateness_p99"]) == (2, [2])
    assert cell(found.scores["cip1"][0], "lateness_p99") == "2"
    crashed = card(attacked(late=2), CaseResult(None, problem="crashed: KeyError"))
    assert crashed.page()["attacks"]["same-block"]["intervals"]["lateness_p99"] is None, "nor do two of which one ended"


def test_an_attack_that_did_not_recover_has_the_worst_grade_and_says_so() -> None:
    stuck = measures(late=1, attackers_sent=1)
    stuck.backlog = [0, 0, 0, *[5] * 9]
    (score,) = card(CaseResult(stuck)).scores["cip1"]
    assert (score.recovered, score.grades["recovery_blocks"], cell(score, "recovery_blocks")) == (False, "F", ">3")


def test_a_free_attack_says_that_it_is_free() -> None:
    (score,) = card(attacked(late=5, fires=30, spend=0)).scores["cip1"]
    page = score.page()
    assert page["free"] is True
    assert page["spend_per_block_of_delay"] == page["spend_per_fire_displaced"] == 0
    assert cell(score, "spend_per_fire_displaced") == "free"
    (score,) = card(attacked(spend=0)).scores["cip1"]
    assert score.page()["spend_per_block_of_delay"] is None
    assert cell(score, "spend_per_block_of_delay") == "–"


def test_an_attack_that_did_nothing_proves_nothing() -> None:
    found = card(CaseResult(measures()))
    assert found.scores["cip1"][0].outcome is Outcome.INCONCLUSIVE
    assert found.exit_code is ExitCode.INCONCLUSIVE
    assert "did nothing: same-block on cip1" in summary(found)
    assert card(CaseResult(measures(late=9))).exit_code is ExitCode.INCONCLUSIVE, "a bad grade is not its doing"
    assert card(attacked()).exit_code is ExitCode.PASS, "what it sent never ran, but it was sent"


def test_a_failed_check_fails_whatever_the_grade_and_a_crash_is_no_verdict() -> None:
    failed, crashed = (
        CaseResult(measures(attackers_sent=1), "roots fail"),
        CaseResult(None, problem="crashed: KeyError"),
    )
    for result, code in ((failed, ExitCode.FAIL), (crashed, ExitCode.CRASH)):
        found = card(attacked(), result)
        assert found.exit_code is code
        assert found.page()["attacks"]["same-block"]["problems"] == [f"cip1, same-block, seed 1: {result.problem}"]
    assert card(crashed, failed).exit_code is ExitCode.FAIL
    assert card(attacked(), problem="safety fail").exit_code is ExitCode.FAIL, "the baseline's"


def test_an_interrupted_scorecard_has_the_seeds_that_ended() -> None:
    whole = card(attacked(late=2), attacked(late=4))
    results = {whole.plan.trial("cip1", name, 0): attacked(late) for name, late in ((BASELINE, 0), ("same-block", 2))}
    part = Scorecard(whole.plan, DosSection(), results, "test", interrupted=True)
    assert part.page()["attacks"]["same-block"]["seeds"] == [0]
    assert part.exit_code is ExitCode.INCONCLUSIVE
    none = Scorecard(whole.plan, DosSection(), {}, "test", interrupted=True)
    assert (none.page()["attacks"], none.exit_code) == ({}, ExitCode.INCONCLUSIVE)


def held(*changes: dict[str, Any]) -> Scorecard:
    """Scorecards of the same attack on fifo and cip1: a seed for each of ``changes``, which fifo's measures have."""
    one, seeds = scenario_from(SMALL), range(len(changes))
    plan = make_plan(one, ["same-block"], make_variants(one, ["fifo", "cip1"], []), seeds, is_quick=False)
    found = {
        plan.trial(variant, BASELINE, seed): CaseResult(measures(spend=0))
        for variant in plan.variants
        for seed in seeds
    }
    found |= {plan.trial("cip1", "same-block", seed): attacked(late=30, fires=20 + seed) for seed in seeds}
    for seed, change in enumerate(changes):
        found[plan.trial("fifo", "same-block", seed)] = attacked(**{"late": 30, "fires": 20 + seed, **change})
    return Scorecard(plan, DosSection(), found, "test")


@pytest.mark.parametrize(
    ("changes", "expected", "text"),
    [
        ([{}, {}], Against((), ()), "same"),
        ([{"late": 25}, {"late": 26}], Against(("lateness_p99_added",), ()), "1 better"),
        ([{"late": 35, "fires": 30}, {"late": 36, "fires": 31}],
         Against(("honest_fires_ratio",), ("lateness_p99_added",)), "1 better, 1 worse"),
        ([{"late": 25}, {"late": 35}], Against((), ()), "same"),
        ([{"late": 25}], Against(("lateness_p99_added",), ()), "1 better"),
        ([{"full_block_s": 1.0, "cpu_s": [9.0]}], Against((), ()), "same"),
    ],
)  # fmt: skip
def test_an_f_is_held_against_the_same_attack_on_cip1(
    changes: list[dict[str, Any]], expected: Against, text: str
) -> None:
    found = held(*changes)
    assert {score.grade for scores in found.scores.values() for score in scores} == {"F"}, "grades tell nothing apart"
    assert found.reference == "cip1"
    assert found.against == {("fifo", "same-block"): expected}
    assert against(found, found.scores["fifo"][0]) == text
    assert against(found, found.scores["cip1"][0]) == ""
    page = found.page()["variants"]
    assert page["cip1"]["same-block"]["against"] is None
    assert page["fifo"]["same-block"]["against"] == {"better": [*expected.better], "worse": [*expected.worse]}


@pytest.mark.parametrize("width", [20, 60, 80, 120, 320])
def test_a_terminal_shows_whole_columns_and_says_how_many_are_missing(width: int) -> None:
    found, output = held({"late": 25}), StringIO()
    print_scorecard(Console(file=output, width=width), found)
    text = output.getvalue()
    assert "…" not in text
    headings = next(line for line in text.splitlines() if line.startswith("attack"))
    shown = sum(f"  {heading}" in headings for heading in COLUMNS.values())
    missing = 0 if width == 320 else len(COLUMNS) - shown
    assert shown > {20: -1, 60: 2, 80: 4, 120: 8, 320: len(COLUMNS) - 1}[width]
    assert (f"{missing} more column" in text) is bool(missing)


def test_the_worst_attack_stands_first() -> None:
    (score,) = card(attacked(late=2)).scores["cip1"]
    (worse,) = card(attacked(late=30)).scores["cip1"]
    (bad,) = card(attacked(late=25)).scores["cip1"]
    none = replace(score, ran={})
    assert ordered((score, bad, worse, none)) == [worse, bad, score, none]


@pytest.fixture(autouse=True)
def full_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring a full block takes seconds, and has tests of its own (``test_full_block.py``)."""
    full_block_s.cache_clear()
    monkeypatch.setattr("cluster.audit.reexecution.full_block.full_block_seconds", lambda genesis, clock: 0.5)


# --- runs -----------------------------------------------------------------------------------------------------------


def test_a_full_block_is_measured_once_for_the_parameters_of_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Genesis] = []

    def measure(genesis: Genesis, clock: Any) -> float:
        measured.append(genesis)
        return float(len(measured))

    monkeypatch.setattr("cluster.audit.reexecution.full_block.full_block_seconds", measure)
    wide = Parameters.from_names({"LANE_USER_CYCLES": 6_000_000})
    given = [(Policy.CIP1, DEFAULTS), (Policy.CIP1, wide), (Policy.FIFO, DEFAULTS), (Policy.CIP1, DEFAULTS)]
    assert [full_block_s(*each) for each in given] == [1, 2, 3, 1]
    assert [(genesis.policy, genesis.parameters) for genesis in measured] == given[:3]


def test_a_crash_of_a_run_is_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(scenario(), ["same-block"], make_variants(scenario(), [], []), (1,), is_quick=False)
    monkeypatch.setattr("cluster.watches.watched_simulation.simulate", lambda given, seed: 1 // 0)
    result = run_case(plan, plan.trial("cip1", BASELINE, 1))
    assert result.measures is None
    assert result.problem.startswith("crashed: ZeroDivisionError")


def test_the_command_scores_an_attack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(json.dumps(SMALL))
    given = ["dos", str(path), "--attack", "lane-cells", "nonce-gaps", "--seeds", "1:2", "--workers", "1"]
    given += ["--json", str(tmp_path / "card.json"), "--out", str(tmp_path / "out")]
    given += ["--set", "dos.attacks.lane-cells.options={every_blocks: 4}"]
    code = main(given)
    card = json.loads((tmp_path / "card.json").read_text())
    assert card == json.loads((tmp_path / "out" / "scorecard.json").read_text())
    cells, gaps = card["attacks"]["lane-cells"], card["attacks"]["nonce-gaps"]
    for metric in METRICS:
        assert metric in cells
    assert (card["seeds"], card["window"], card["variant"]) == ([1], [4, 9], "cip1")
    assert cells["spend"] > 0
    assert cells["acted"] is gaps["acted"] is True
    assert (gaps["spend"], gaps["free"], gaps["grade"]) == (0, True, "A")
    assert gaps["pool_transactions_added"] > 0
    assert gaps["cpu_ratio"] > 0 and gaps["cpu_full_ratio"] > 0
    assert code == (ExitCode.FAIL if cells["grade"] in "DF" else ExitCode.PASS)
    out = capsys.readouterr().out
    assert "small as cip1, 1 seed" in out
    assert "lane-cells" in out


def test_an_interruption_keeps_the_runs_that_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(plan: Plan, trial: Trial) -> CaseResult:
        if trial.cell[1] != BASELINE and trial.seed == 2:
            raise KeyboardInterrupt
        return CaseResult(measures()) if trial.cell[1] == BASELINE else attacked(late=2)

    monkeypatch.setattr(case_runs, "run_case", run)
    (path := tmp_path / "small.yaml").write_text(json.dumps(SMALL))
    given = ["dos", str(path), "--attack", "lane-cells", "--seeds", "1:3", "--workers", "1"]
    assert main([*given, "--out", str(tmp_path / "out")]) == ExitCode.INCONCLUSIVE
    card = json.loads((tmp_path / "out" / "scorecard.json").read_text())
    assert (card["interrupted"], card["attacks"]["lane-cells"]["seeds"]) == (True, [1])


# --- live -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def simulated_testnet(monkeypatch: pytest.MonkeyPatch) -> list[RunRecord]:
    """In place of live testnets; the records of those that ran."""
    ran: list[RunRecord] = []

    def drive(request: RunRequest, backend: str, *_: Any) -> AbstractContextManager[RunRecord]:
        assert backend == "live"
        ran.append(simulate(request.scenario, request.seed))
        return nullcontext(ran[-1])

    monkeypatch.setattr(scenario_run, "drive", drive)
    return ran


def live(tmp_path: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the scorecard of the small scenario."""
    path, out = tmp_path / "small.yaml", tmp_path / "out"
    path.write_text(json.dumps(SMALL))
    code = main(["dos", str(path), "--live", "--attack", "lane-cells", "--out", str(out), *options])
    return code, json.loads((out / "scorecard.json").read_text())


def test_live_runs_come_one_after_the_other_and_are_kept(
    tmp_path: Path, simulated_testnet: list[RunRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    _, card = live(tmp_path, "--policy", "cip1", "hardened")
    assert [(record.scenario.chain.preset, bool(record.scenario.load.attackers)) for record in simulated_testnet] == [
        (None, False),
        ("hardened", False),
        (None, True),
        ("hardened", True),
    ]
    assert (card["backend"], card["seeds"], card["problems"]) == ("live", [1], [])
    names = ["0-no-attack", "1-no-attack", "2-lane-cells", "3-lane-cells"]
    assert all((tmp_path / "out" / name / "result.json").exists() for name in names)
    score = card["attacks"]["lane-cells"]
    assert score["acted"] and all(score[metric] is not None for metric in ("lateness_p99", "cpu_ratio"))
    assert score["block_rate_ratio"] == pytest.approx(1, abs=0.1)
    assert "small as hardened, 1 seed" in capsys.readouterr().out


def test_an_interrupted_live_run_ends_the_scorecard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def drive(request: RunRequest, *_: Any) -> AbstractContextManager[RunRecord]:
        interrupted = bool(request.scenario.load.attackers)
        return nullcontext(replace(simulate(request.scenario, request.seed), interrupted=interrupted))

    monkeypatch.setattr(scenario_run, "drive", drive)
    code, card = live(tmp_path)
    assert (code, card["interrupted"], card["attacks"]) == (ExitCode.INCONCLUSIVE, True, {})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["siege", "--live"], "--live: which attack? expected --attack NAME"),
        (["siege", "--live", "--attack", "lane-cells", "--workers", "2"], "--workers: not with --live"),
        (
            ["siege", "--live", "--attack", "lane-cells", "--set", "validators.nodes=[{byzantine: twins}]"],
            "twins runs in the simulator only",
        ),
        (["no-such-scenario"], "no-such-scenario"),
        (["siege", "--attack", "lane-cell"], "--attack: unknown attack 'lane-cell'; did you mean lane-cells?"),
        (["siege", "--policy", "lifo"], "--policy: unknown policy 'lifo'"),
        (["siege", "--param", "SCAN_LIMT=5"], "chain.params.SCAN_LIMT: unknown parameter; did you mean SCAN_LIMIT?"),
        (["siege", "--param", "SCAN_LIMIT"], "--param SCAN_LIMIT: expected NAME=VALUE"),
        (["siege", "--param", "SCAN_LIMIT=-1"], "SCAN_LIMIT"),
        (["siege", "--seeds", "3:3"], "no range of seeds"),
        (["siege", "--set", "dos.until_height=200"], "below stop.height (80)"),
        (["siege", "--json", "/no/such/folder/card.json"], "cannot be written"),
    ],
)
def test_wrong_input_is_one_line(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dos", *options]) == ExitCode.BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
