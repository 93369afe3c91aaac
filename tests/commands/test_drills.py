"""Every drill: it passes on a sound chain, a planted bug turns it red, and where nothing happened it says so."""

from __future__ import annotations

import html
import json
import shlex
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from msgspec import structs

from cluster.audit.books import keep_books
from cluster.audit.reexecution import bisect as bisecting
from cluster.checks.run import check_run
from cluster.checks.verdict import Verdict
from cluster.commands.cli.main import main
from cluster.commands.drills.base import PREFIX, Drill
from cluster.commands.drills.kinds.byzantine import Byzantine
from cluster.commands.drills.kinds.divergence import BUGS, Divergence
from cluster.commands.drills.kinds.join import Join
from cluster.commands.drills.kinds.node_loss import NodeLoss
from cluster.commands.drills.kinds.outage import Outage
from cluster.commands.drills.kinds.partition import Partition
from cluster.commands.drills.kinds.reorg import Reorg
from cluster.commands.drills.kinds.restart_all import RestartAll
from cluster.commands.drills.kinds.storm import Storm
from cluster.commands.drills.kinds.upgrade import Upgrade
from cluster.commands.drills.registry import DRILLS
from cluster.common.errors import ExitCode
from cluster.common.outcome import Outcome
from cluster.record.finalizations import Finalizations
from cluster.record.run import RunRecord, Sample
from cluster.scenario.files import change_scenario
from cluster.scenario.overrides import Change
from cluster.simulation.simulated_stage import SimulatedStage
from cluster.watches.watched_simulation import simulate
from kits.market.siege import Attacked, Siege, measure
from tests.cluster.commands.drills.planted import (
    ALL_OF_FOUR,
    ANY_NUMBER_OF_FAULTS,
    COUNTS_WRONG,
    SILENT,
    TIES_BY_ID,
    TOO_MANY,
    planted,
)
from validator.chain.block import Event
from validator.chain.records import Timer
from validator.execution.timer_phase import TimerPhase
from validator.transition.transition import Transition

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "drills.md"
FAST = Change("consensus.signatures", "keyed-hash")
SOON = Change("stop.timeout_s", 25)
"""Where no quorum is left, the end comes by time."""
APART = Change("stop.timeout_s", 40)
"""So it does where a partition's sides went on as two chains, which is seen soon after it."""
AT_THE_END = (Change("faults[0].at_height", 17), Change("stop.height", 20), Change("stop.drain_blocks", 0))
UNDER_ATTACK = (Change("stop.height", 85), Change("stop.drain_blocks", 0))
SHORT = Change("stop.height", 20)
"""High enough where nothing is to come."""

CHEAP: tuple[Drill, ...] = (
    Reorg(times=1),
    Outage(),
    Storm(timers=2_000),
    Partition(),
    RestartAll(times=1),
    Join(at_height=20),
    Byzantine(validators=4, liars=1),
    Divergence(),
    Upgrade(),
    NodeLoss(validators=4, nodes=4, down_s=3),
    Siege(validators=1),
)
"""Each drill, as small as it can be."""


RUNS: dict[str, RunRecord] = {}
"""By scenario: a drill is run once, and judged as often as one likes."""


def costly(*values: object) -> ParameterSet:
    """Of a test with many runs, one that takes long and differs little."""
    return pytest.param(*values, marks=pytest.mark.soak)


def slow(*values: object) -> ParameterSet:
    """Of a test with many runs, one that takes seconds; others of the test stay in ``make test``."""
    return pytest.param(*values, marks=pytest.mark.slow)


def run(drill: Drill, *changes: Change) -> RunRecord:
    """A drill's run, with changes that its command does not make."""
    scenario = change_scenario(drill.scenario(), [FAST, *changes], drill.name)
    key = scenario.model_dump_json()
    if key not in RUNS:
        RUNS[key] = simulate(scenario, scenario.seed, shortcuts=True)
    return RUNS[key]


def judged(drill: Drill, *changes: Change) -> Verdict:
    return check_run(run(drill, *changes), judge=drill.judge)


def of(verdict: Verdict, name: str) -> Outcome:
    return verdict.check(PREFIX + name).verdict


def failures(verdict: Verdict) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in verdict.checks if check.verdict is not Outcome.PASS]


# --- all of them ----------------------------------------------------------------------------------------------------


def test_every_drill_is_tested() -> None:
    assert {drill.name for drill in CHEAP} == set(DRILLS)


DEAR = {"join", "node-loss", "outage", "partition", "siege", "storm", "upgrade"}
"""Drills that take seconds even here."""


@pytest.mark.parametrize(
    "drill",
    [pytest.param(drill, id=drill.name, marks=[pytest.mark.slow] * (drill.name in DEAR)) for drill in CHEAP],
)
def test_a_sound_chain_meets_what_is_expected(drill: Drill) -> None:
    verdict = judged(drill)
    assert verdict.outcome is Outcome.PASS, failures(verdict)
    names, expected = [check.name for check in verdict.checks], drill.expectations(drill.scenario())
    assert names[-len(expected) :] == [PREFIX + each.name for each in expected]


@pytest.mark.slow
@pytest.mark.parametrize(
    "drill",
    [
        costly(Partition(protocol="hotstuff")),
        RestartAll("hotstuff", times=1),
        costly(Divergence("hotstuff", culprit=3)),
        Upgrade("hotstuff", heights_between=1),
    ],
    ids=lambda drill: drill.name,
)
def test_so_it_does_with_the_other_protocol(drill: Drill) -> None:
    verdict = judged(drill)
    assert verdict.outcome is Outcome.PASS, failures(verdict)


@pytest.mark.parametrize("count", [1, 2])
def test_few_validators_restart_too(count: int) -> None:
    verdict = judged(RestartAll(validators=count, times=1))
    assert verdict.outcome is Outcome.PASS, failures(verdict)


def test_defaults_are_what_the_command_has() -> None:
    for name, drill in DRILLS.items():
        assert drill().command() == f"stampede drill {name}"
        assert drill().problem("sim") is None
        for each in fields(drill):
            assert each.metadata["text"]
            if not each.metadata["choices"]:
                assert each.metadata["least"] <= each.default <= each.metadata["most"]


def test_a_command_names_what_is_not_the_default() -> None:
    assert Reorg(depth=5).command() == "stampede drill reorg --depth 5"
    assert Divergence(bug="wrong-balance", culprit=0).command() == (
        "stampede drill divergence --culprit 0 --bug wrong-balance"
    )


# --- planted bugs ---------------------------------------------------------------------------------------------------

FORGETFUL = [{}, {"mutant": "reads-another-branch"}, {}, {"byzantine": "forgetful-leader"}]
GOES_ON = Change("seed", 2)
"""With most others the validator that reads another branch looks for a timer that is not there, which ends it."""
SLOW_LINKS = {"kind": "degrade", "latency_ms": 400, "at_height": 35, "for_ms": 60_000}
NARROW = Change("chain.params.LANE_USER_CYCLES", 300_000)
BREAKS_ANOTHER = {"kind": "upgrade", "target": "validator-2", "mutant": "double-fire", "at_height": 2}


@pytest.mark.parametrize(
    ("drill", "changes", "red"),
    [
        (CHEAP[0], (Change("validators.nodes", FORGETFUL), ANY_NUMBER_OF_FAULTS, GOES_ON), "replay"),
        costly(CHEAP[0], (Change("validators.nodes", COUNTS_WRONG), ANY_NUMBER_OF_FAULTS), "replay"),
        costly(CHEAP[1], planted("fires-again-after-restart", ALL_OF_FOUR), "timers_once"),
        (CHEAP[3], (*planted("quorum-of-2f", ALL_OF_FOUR), APART), "sides"),
        (CHEAP[3], (*planted("quorum-of-2f", ALL_OF_FOUR), APART), "one_again"),
        (CHEAP[4], planted("archive-not-synced", ALL_OF_FOUR), "durable"),
        (CHEAP[4], planted("fires-again-after-restart", ALL_OF_FOUR), "timers_once"),
        (CHEAP[4], planted("fires-again-after-restart", ALL_OF_FOUR), "replay"),
        slow(CHEAP[5], (Change("validators.nodes", SILENT),), "takes_part"),
        slow(Byzantine(validators=4, liars=1), (Change("validators.nodes", TOO_MANY), SOON), "withstood"),
        slow(CHEAP[8], (Change("faults[0].mutant", "wrong-balance"),), "upgraded"),
        slow(CHEAP[8], (Change("faults[0].mutant", "wrong-balance"),), "replay"),
        slow(CHEAP[7], (Change("faults[+]", BREAKS_ANOTHER), ANY_NUMBER_OF_FAULTS, SOON), "found"),
        slow(CHEAP[10], (*TIES_BY_ID, *UNDER_ATTACK), "honest_lateness"),
        slow(Siege(validators=1, policy="fifo"), UNDER_ATTACK, "honest_fires"),
        slow(CHEAP[10], (*planted("fires-take-the-user-lane", (0,), count=1), NARROW, *UNDER_ATTACK), "user_lane"),
        slow(Siege(), (Change("faults", [SLOW_LINKS]), *UNDER_ATTACK), "pace"),
    ],
)
def test_a_planted_bug_turns_it_red(drill: Drill, changes: tuple[Change, ...], red: str) -> None:
    verdict = judged(drill, *changes)
    assert of(verdict, red) is Outcome.FAIL, verdict.check(PREFIX + red).detail
    assert verdict.outcome is Outcome.FAIL


@pytest.mark.slow
def test_a_storm_that_takes_the_lane_turns_it_red(monkeypatch: pytest.MonkeyPatch) -> None:
    destroy = TimerPhase.destroy

    def dear(phase: TimerPhase, timers: Sequence[Timer], reason: str, events: Sequence[Event]) -> None:
        """Getting rid of a timer that cannot pay uses up the lane."""
        destroy(phase, timers, reason, events)
        phase.use.cells += phase.terms.parameters.lane_timer_cells * (reason == "insufficient_funds")

    monkeypatch.setattr(TimerPhase, "destroy", dear)
    drill = Storm(timers=2_000, lateness_blocks=2)
    record = simulate(change_scenario(drill.scenario(), [FAST], drill.name), 1, shortcuts=True)
    verdict = check_run(record, judge=drill.judge)
    assert of(verdict, "honest_lateness") is Outcome.FAIL, verdict.check(PREFIX + "honest_lateness").detail


@pytest.mark.slow
def test_a_price_that_never_falls_turns_the_siege_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers that were priced out under attack stay so."""
    close = Transition.close

    def rising(transition: Transition, phase: TimerPhase) -> int:
        before = transition.world.globals.basefee_lane_timer
        burned = close(transition, phase)
        prices = transition.world.globals
        transition.world.globals = structs.replace(prices, basefee_lane_timer=max(before, prices.basefee_lane_timer))
        return burned

    monkeypatch.setattr(Transition, "close", rising)
    drill = Siege(validators=1, policy="cip1")
    record = simulate(change_scenario(drill.scenario(), [FAST], drill.name), 2, shortcuts=True)
    verdict = check_run(record, judge=drill.judge)
    assert of(verdict, "recovery") is Outcome.FAIL, verdict.check(PREFIX + "recovery").detail


@pytest.mark.slow
def test_slow_links_break_the_bound_of_finality() -> None:
    drill = Storm(timers=2_000, finality_ms=200)
    assert of(judged(drill, Change("links.latency_ms", 80)), "finality") is Outcome.FAIL


@pytest.mark.slow
def test_a_slow_recovery_turns_the_outage_red() -> None:
    """The run of those who recover in time, held against a shorter bound."""
    drill = Outage(recovery_ms=100)
    record = replace(run(Outage()), scenario=change_scenario(drill.scenario(), [FAST], drill.name))
    verdict = check_run(record, judge=drill.judge)
    assert of(verdict, "recovery") is Outcome.FAIL
    assert verdict.check("recovery").verdict is Outcome.FAIL, "the check of every run has the same bound"


@pytest.mark.slow
def test_a_backlog_that_is_not_worked_off_turns_the_outage_red() -> None:
    narrow = Change("chain.params.LANE_TIMER_CYCLES", 550_000), Change("load.users[1].options.burn", 30_000)
    assert of(judged(Outage(), *narrow), "backlog") is Outcome.FAIL


@pytest.mark.soak
def test_a_slow_machine_works_an_outages_backlog_off() -> None:
    """Load comes by the second, room in the lane by the block."""
    slow = judged(Outage(), Change("consensus.block_interval_ms", 900))
    assert of(slow, "backlog") is Outcome.PASS


@pytest.mark.slow
@pytest.mark.parametrize("at_height", [11, costly(12), costly(13)])
def test_a_reorg_is_deep_enough_wherever_its_phase_begins(at_height: int) -> None:
    """The forgetful validator leads its first view of the phase early or late. Height 10 is the drill's own."""
    verdict = judged(Reorg(times=1), Change("faults[0].at_height", at_height))
    assert failures(verdict) == []


@pytest.mark.parametrize("depth", [pytest.param(5, marks=pytest.mark.slow), pytest.param(12, marks=pytest.mark.soak)])
def test_a_reorg_may_be_deeper_than_timeouts_are_patient(depth: int) -> None:
    """They double after four views without a final block, with which blocks of 450 ms latency are final again."""
    deep = Reorg(depth=depth, times=1)
    assert failures(judged(deep)) == []
    brief = Change("consensus.leader_timeout_ms", 600), Change("consensus.advance_timeout_ms", 700)
    assert of(judged(deep, *brief, Change("faults[0].latency_ms", 450)), "depth") is Outcome.INCONCLUSIVE


# --- where nothing happened -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drill", "changes", "undecided"),
    [
        (CHEAP[0], (Change("validators.nodes", []),), "depth"),
        (Reorg(depth=9, times=1), (Change("validators.count", 4), Change("validators.nodes", [])), "depth"),
        (Outage(down_s=2), (), "backlog"),
        (Storm(timers=4_000), (Change("load.users[1].options.in_all", 100),), "storm"),
        (CHEAP[3], (Change("faults", []), SHORT), "sides"),
        (CHEAP[4], (Change("faults", []),), "durable"),
        (CHEAP[5], (Change("validators.nodes", []), SHORT), "snapshot"),
        (CHEAP[6], (Change("validators.nodes", []), SHORT), "withstood"),
        (CHEAP[7], (*planted("double-fire", ()), SHORT), "found"),
        (CHEAP[8], (Change("faults", []), SHORT), "upgraded"),
        (CHEAP[10], (Change("load.users[3].count", 1), Change("load.users[3].options", {"fan_out": 1})), "attack"),
    ],
)
def test_what_did_not_come_about_is_not_met(drill: Drill, changes: tuple[Change, ...], undecided: str) -> None:
    assert of(judged(drill, *changes), undecided) is Outcome.INCONCLUSIVE


@pytest.mark.slow
def test_honest_users_who_fill_the_lane_are_no_attack() -> None:
    """A late block of a busy machine has the timers of many seconds. The run ends before the bound of the recovery."""
    drill = Siege(validators=1)
    users = [group.model_dump(mode="json", exclude_unset=True) for group in drill.scenario().load.users]
    burst = {
        "workload": "flood",
        "count": 8,
        "interval_ms": 400,
        "from_height": 92,
        "until_height": 96,
        "options": {"timers": 14, "spread_blocks": 1, "burn": 2_000, "explicit_percent": 0},
    }
    record = run(drill, Change("load.users", [*users, burst]), Change("stop.height", 100))
    books = keep_books(record)
    target = record.scenario.chain.parameters().lane_timer_cycles // 2
    assert max(books.ledger.blocks.lane_cycles[90:]) > target
    found = measure(books)
    assert isinstance(found, Attacked) and found.ended.last < 90
    check = check_run(record, judge=drill.judge).check(PREFIX + "recovery")
    assert check.verdict is Outcome.PASS, check.detail


@pytest.mark.slow
def test_an_attack_that_did_nothing_shows_nothing() -> None:
    """What these attackers send never comes into a block."""
    drill = Siege(validators=1, attack="nonce-gaps")
    verdict = judged(drill)
    for name in ("attack", "honest_lateness", "honest_fires", "user_lane", "pace", "recovery"):
        check = verdict.check(PREFIX + name)
        assert check.verdict is Outcome.INCONCLUSIVE
        assert check.detail == "blocks from height 31 to 80 executed nothing of the attackers"


# --- changed scenarios ----------------------------------------------------------------------------------------------

KILL_BEFORE = {"kind": "kill", "target": "validator-0", "at_height": 6, "down_ms": 300}
CUT = {"kind": "partition", "groups": [["validator-2", "validator-3"]], "at_height": 15, "for_ms": 12_000}
DEGRADE_AFTER = {"kind": "degrade", "latency_ms": 400, "at_height": 60, "for_ms": 6_000}
FOUR_OF_FIVE = [{"from_view": 2, "members": [f"validator-{index}" for index in range(4)]}]
ONE_LIAR: list[dict[str, object]] = [{"byzantine": ["equivocating-leader", "conflicting-voter"]}]
STORM_FIRST = Storm(timers=2_000).scenario().model_dump(mode="json", exclude_unset=True)["load"]["users"][::-1]
OTHER_NAMES = [{"name": name} for name in "abcd"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drill", "changes"),
    [
        costly(Outage(), (Change("faults[+]", DEGRADE_AFTER), Change("stop.height", 90))),
        costly(Storm(timers=2_000), (Change("load.users", STORM_FIRST),)),
        costly(Partition(), (Change("validators.count", 7),)),
        (Partition(), (Change("faults", [KILL_BEFORE, CUT]),)),
        costly(Partition(validators=5), (Change("validators.epochs", FOUR_OF_FIVE),)),
        costly(Partition(), (Change("validators.nodes", [{}, {}, {}, {"joins_at_height": 8}]),)),
        costly(RestartAll(times=1), (Change("faults[+]", DEGRADE_AFTER | {"at_height": 25}),)),
        costly(Join(), (Change("validators.nodes", [{"name": "late", "joins_at_height": 30}]),)),
        costly(Byzantine(), (Change("validators.nodes", ONE_LIAR),)),
        costly(Upgrade(), (Change("faults[0].version", "9"),)),
        costly(Upgrade(), (Change("validators.nodes", OTHER_NAMES),)),
        (Upgrade(), (Change("faults", [KILL_BEFORE, {"kind": "upgrade", "at_height": 10}]),)),
        (Divergence(), (Change("validators.nodes", [{"name": "other", "mutant": "wrong-balance"}]),)),
    ],
)
def test_it_is_judged_by_the_scenario_that_ran(drill: Drill, changes: tuple[Change, ...]) -> None:
    verdict = judged(drill, *changes)
    assert verdict.outcome is Outcome.PASS, failures(verdict)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drill", "changes", "name", "words"),
    [
        costly(Outage(), (Change("validators.count", 7),), "backlog", "left a quorum"),
        costly(Outage(), (Change("validators.count", 7),), "recovery", "left a quorum"),
        (Storm(timers=2_000), (Change("load.users[1]", removes=True),), "storm", "0 timers are no storm"),
        (Partition(), (Change("faults", [KILL_BEFORE]), SHORT), "sides", "the scenario has no partition"),
        (Partition(), (Change("faults", [KILL_BEFORE]), SHORT), "one_again", "no partition"),
        (Partition(cut_off=1, for_s=1), (), "sides", "it lasted 1,000 ms"),
        costly(
            Partition(cut_off=1, for_s=1),
            (Change("consensus.advance_timeout_ms", 3_000),),
            "sides",
            "it lasted 1,000",
        ),
        costly(RestartAll(times=1), (Change("validators.count", 7),), "durable", "4 of 7 validators were down"),
        (RestartAll(times=1), (Change("faults[3].at_height", 20),), "durable", "3 of 4 validators were down"),
        costly(Join(), (Change("stop.height", 31), Change("stop.drain_blocks", 0)), "takes_part", "led 0 views"),
        (Byzantine(), (Change("validators.nodes", []), SHORT), "proven", "no byzantine validator"),
        costly(
            Byzantine(),
            (Change("validators.nodes", [{"byzantine": "silent-leader"}] * 3),),
            "withstood",
            "at most 2 must be tolerated",
        ),
        costly(Upgrade(), (Change("faults", [KILL_BEFORE]),), "upgraded", "the scenario has no upgrade"),
        (Upgrade(), (Change("faults[0].target", "validator-1"),), "upgraded", "was not to get another version"),
        (NodeLoss(), (Change("faults", [KILL_BEFORE]), SHORT), "goes_on", "no node was lost"),
        (NodeLoss(), (Change("faults", [KILL_BEFORE]), SHORT), "elsewhere", "no node was lost"),
        (NodeLoss(down_s=3), AT_THE_END, "elsewhere", "5 needed"),
        (CHEAP[10], (Change("load.users[3]", removes=True), SHORT), "honest_lateness", "the scenario has no attackers"),
        (CHEAP[10], UNDER_ATTACK, "recovery", "the attack ended at height "),
        (Divergence(), (*planted("double-fire", (1, 2)), SOON), "found", "2 validators have a planted bug"),
        costly(Divergence(), (Change("validators.nodes", []),), "others", "0 validators have a planted bug"),
        (Divergence(), (*planted("quorum-of-2f", (1,)), SHORT), "bisected", "is not known"),
    ],
)
def test_what_a_change_took_away_is_not_judged(
    drill: Drill, changes: tuple[Change, ...], name: str, words: str
) -> None:
    check = judged(drill, *changes).check(PREFIX + name)
    assert check.verdict is Outcome.INCONCLUSIVE, check.detail
    assert words in check.detail


def test_a_node_that_more_than_f_depend_on_is_no_drill() -> None:
    for drill in (NodeLoss(nodes=3), NodeLoss(validators=4, nodes=2)):
        assert "whose loss they tolerate; expected more --nodes or --validators" in (drill.problem("sim") or "")
    assert NodeLoss(validators=4, nodes=4).problem("live") is None


@pytest.mark.slow
def test_every_peer_of_a_joiner_has_something_to_send() -> None:
    (join,) = run(Join(at_height=20)).joins
    assert len(join.chunks) == 4, join.chunks


@pytest.mark.slow
def test_validators_of_a_lost_node_that_kept_their_disks_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedStage, "_lose_disk", lambda _self, _index: None)
    drill = CHEAP[9]
    record = simulate(change_scenario(drill.scenario(), [FAST], drill.name), 1, shortcuts=True)
    check = check_run(record, judge=drill.judge).check(PREFIX + "elsewhere")
    assert check.verdict is Outcome.FAIL
    assert "validator-3 serves the chain from the genesis on, though its disk was lost" in check.detail


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drill", "changes", "red"),
    [
        costly(
            Join(), (Change("validators.nodes", [{"joins_at_height": 30, "byzantine": "silent-leader"}]),), "takes_part"
        ),
        costly(Byzantine(), (Change("success.stall_ms", 300),), "withstood"),
        (Upgrade(), (Change("success.stall_ms", 300),), "upgraded"),
        (NodeLoss(down_s=3, gap_ms=100), (), "goes_on"),
        costly(Outage(), (Change("success.recovery_ms", 100),), "recovery"),
    ],
)
def test_the_changed_scenario_can_be_red(drill: Drill, changes: tuple[Change, ...], red: str) -> None:
    check = judged(drill, *changes).check(PREFIX + red)
    assert check.verdict is Outcome.FAIL, check.detail


def test_what_is_expected_follows_the_changes() -> None:
    drill = Divergence()
    changed = change_scenario(
        drill.scenario(), [Change("validators.nodes", [{"name": "a", "mutant": "wrong-balance"}])], ""
    )
    found, bisected, _ = drill.expectations(changed)
    assert found.text.startswith("a diverges")
    assert "'transaction'" in bisected.text
    cut = Partition()
    assert "neither side is a quorum" in cut.expectations(cut.scenario())[0].text
    changed = change_scenario(cut.scenario(), [Change("validators.count", 7)], "")
    assert "the side with a quorum makes progress" in cut.expectations(changed)[0].text


# --- interrupted ----------------------------------------------------------------------------------------------------


def interrupted(drill: Drill, height: int) -> Verdict:
    """What a drill comes to that is interrupted once a height is final."""

    def look(sample: Sample) -> None:
        if max(each or 0 for each in sample.heights) >= height:
            raise KeyboardInterrupt

    record = simulate(change_scenario(drill.scenario(), [FAST], drill.name), 1, on_sample=look, shortcuts=True)
    assert record.interrupted
    return check_run(record, judge=drill.judge)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drill", "height"),
    [(drill, height) for drill in CHEAP for height in (0, 1, 12)]
    + [(Outage(), height) for height in (21, 23, 30)]
    + [(Join(), 31), costly(Join(), 33), costly(Join(), 40)]
    + [(Partition(cut_off=1), height) for height in (15, 18, 30)]
    + [(Upgrade(), height) for height in (11, 20)]
    + [(RestartAll(times=2), 25), (Divergence(bug="p50-not-wired"), 1), (Reorg(times=1), 20)],
    ids=str,
)
def test_what_an_interruption_kept_from_being_reached_is_no_failure(drill: Drill, height: int) -> None:
    verdict = interrupted(drill, height)
    failed = [f"{check.name}: {check.detail}" for check in verdict.checks if check.verdict is Outcome.FAIL]
    assert not failed
    assert verdict.outcome is Outcome.INCONCLUSIVE


@pytest.mark.slow
def test_a_violation_stays_one_in_an_interrupted_run() -> None:
    liars = Byzantine(validators=4, liars=1)
    twice = run(CHEAP[4])
    twice = replace(twice, finalizations=Finalizations([*twice.finalizations, twice.finalizations[0]]))
    for drill, record, red in (
        (CHEAP[3], run(CHEAP[3], *planted("quorum-of-2f", ALL_OF_FOUR), APART), "sides"),
        (liars, run(liars, Change("validators.nodes", TOO_MANY), SOON), "withstood"),
        (CHEAP[4], twice, "durable"),
    ):
        assert of(check_run(replace(record, interrupted=True), judge=drill.judge), red) is Outcome.FAIL


@pytest.mark.slow
def test_nothing_that_was_collected_is_no_traceback() -> None:
    for drill in CHEAP:
        record = replace(run(drill), validators=[], interrupted=True)
        names = {PREFIX + each.name for each in drill.expectations(record.scenario)}
        verdicts = {
            check.name: check.verdict for check in check_run(record, judge=drill.judge).checks if check.name in names
        }
        assert Outcome.FAIL not in verdicts.values(), verdicts


# --- divergence -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bug", [pytest.param(bug, marks=[pytest.mark.slow] * (bug != "wrong-balance")) for bug in BUGS]
)
def test_every_bug_is_found_where_it_is(bug: str) -> None:
    verdict = judged(Divergence(bug=bug))
    assert verdict.outcome is Outcome.PASS, failures(verdict)
    assert verdict.check("state_roots").detail.startswith("fails, as expected here: validator-1 diverged at height ")


@pytest.mark.parametrize(
    "bug", [pytest.param(bug, marks=[pytest.mark.soak] * (bug != "wrong-balance")) for bug in BUGS]
)
def test_the_bug_of_an_executor_is_found_where_it_is(bug: str) -> None:
    verdict = judged(Divergence(bug=bug, where="executor"))
    assert verdict.outcome is Outcome.PASS, failures(verdict)
    assert verdict.check("state_roots").detail.startswith("fails, as expected here: validator-1 diverged at height ")


def test_an_executor_without_the_bug_proves_nothing() -> None:
    record = run(CHEAP[7])
    scenario = Divergence(bug="wrong-balance", where="executor", culprit=2).scenario()
    sound = replace(record, scenario=scenario, validators=[each for each in record.validators if each.index != 1])
    assert of(check_run(sound, judge=CHEAP[7].judge), "found") is Outcome.INCONCLUSIVE


def test_a_check_that_fails_for_the_bug_alone_is_no_failure() -> None:
    """The receipts of the validator's own execution are not as specified, and those of others are."""
    record = run(CHEAP[7])
    seen = check_run(record, judge=CHEAP[7].judge)
    assert check_run(record).check("timers").verdict is Outcome.FAIL
    assert seen.outcome is Outcome.PASS, failures(seen)
    assert seen.check("timers").detail.startswith("fails for the planted bug alone: validator-1 (its own execution)")
    other = replace(record, scenario=Divergence(culprit=2).scenario())
    assert check_run(other, judge=CHEAP[7].judge).check("timers").verdict is Outcome.FAIL


def test_an_external_node_needs_the_live_testnet() -> None:
    drill = Divergence(where="external")
    problem = drill.problem("sim")
    assert problem is not None and problem.endswith("(--backend live)") and "\n" not in problem
    assert drill.problem("live") is None
    assert list(drill.scenario().validators.external) == [1]


def test_the_bug_of_an_external_node_is_that_of_the_drill() -> None:
    """On the run of a validator with the bug, as if it had been external."""
    drill, record = Divergence(where="external"), run(CHEAP[7])
    verdict = check_run(replace(record, scenario=drill.scenario()), judge=drill.judge)
    assert (of(verdict, "found"), of(verdict, "bisected"), of(verdict, "others")) == (Outcome.PASS,) * 3
    other = Divergence(where="external", bug="wrong-balance")
    assert of(check_run(replace(record, scenario=other.scenario()), judge=other.judge), "bisected") is Outcome.FAIL
    sound = [replace(each, mutant_runs=0) for each in record.validators if each.index != 1]
    verdict = check_run(replace(record, scenario=drill.scenario(), validators=sound), judge=drill.judge)
    assert of(verdict, "found") is Outcome.INCONCLUSIVE


def test_nothing_runs_alongside_other_drills(tmp_path: Path) -> None:
    for drill in CHEAP:
        with drill.alongside(drill.scenario(), tmp_path / "run"):
            assert not (tmp_path / "run").exists()


def test_a_blind_bisection_turns_it_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bisecting, "first_difference", lambda *_: None)
    verdict = judged(CHEAP[7])
    assert (of(verdict, "bisected"), of(verdict, "found")) == (Outcome.FAIL, Outcome.PASS)


def test_the_wrong_bug_is_told_apart() -> None:
    record = run(CHEAP[7])
    other = replace(record, scenario=Divergence(bug="wrong-balance").scenario())
    assert of(check_run(other, judge=CHEAP[7].judge), "bisected") is Outcome.FAIL
    other = replace(record, scenario=Divergence(culprit=2).scenario())
    assert of(check_run(other, judge=CHEAP[7].judge), "found") is Outcome.FAIL


def test_a_blind_check_turns_it_red() -> None:
    record = run(CHEAP[7])
    sound = next(validator.blocks for validator in record.validators if validator.mutant is None)
    blind = [
        replace(each, status={**(each.status or {}), "diverged": None, "height": len(sound)}, blocks=sound, trace=b"")
        for each in record.validators
    ]
    seen = check_run(replace(record, validators=blind), judge=CHEAP[7].judge)
    assert seen.check("state_roots").verdict is Outcome.FAIL
    assert seen.check("state_roots").detail.startswith("did not find the planted bug: ")
    assert of(seen, "found") is Outcome.FAIL
    never = [replace(each, mutant_runs=0) for each in blind]
    seen = check_run(replace(record, validators=never), judge=CHEAP[7].judge)
    assert seen.check("state_roots").verdict is Outcome.INCONCLUSIVE


# --- the command ----------------------------------------------------------------------------------------------------


CHANGES = [
    "--set",
    "consensus.signatures=keyed-hash",
    "--set",
    'validators.nodes[0]={name: "0"}',
    "--unset",
    "description",
]
AGAIN = (
    "stampede drill divergence --bug wrong-balance --set consensus.signatures=keyed-hash"
    """ --set 'validators.nodes[0]={"name": "0"}' --unset description --backend sim --seed 3"""
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drill") / "run"
    options = ["--backend", "sim", "--seed", "3", "--bug", "wrong-balance", "--out", str(folder)]
    assert main(["drill", "divergence", *options, *CHANGES]) == ExitCode.PASS
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
    assert AGAIN in html.unescape(report)
    assert AGAIN in html.unescape((folder / "junit.xml").read_text())
    given = [shlex.join(CHANGES[at : at + 2]) for at in (0, 4)]
    assert result["drill"]["changes"] == [given[0], """--set 'validators.nodes[0]={"name": "0"}'""", given[1]]


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
        (["nope"], "unknown choice 'nope'; known: reorg, "),
        (["partition", "--list"], "unrecognized arguments: --list (see stampede drill partition --help)"),
        (["--nope"], "unrecognized arguments: --nope (see stampede drill --help)"),
        (["reorg", "--depth", "0"], "'0' is not a valid value of --depth: expected an integer from 1 to 12"),
        (["reorg", "--backend", "sim", "--set", "stop.heigth=3"], "drill reorg with --set: stop.heigth: "),
        (
            ["reorg", "--backend", "sim", "--unset", "name"],
            "drill reorg with --unset: name: is missing",
        ),
        (["partition", "--backend", "sim", "--cut-off", "4"], "--cut-off: 4 of 4 validators leave none"),
        (["byzantine", "--backend", "sim", "--liars", "3"], "--liars: 3 of 7 validators; at most 2 are tolerated"),
        (["divergence", "--backend", "sim", "--culprit", "4"], "--culprit: there is no validator 4, the last is 3"),
        (["byzantine", "--behaviour", "twins"], "twins runs in the simulator only"),
        (["byzantine", "--behaviour", "lock-breaker"], "--behaviour: lock-breaker lies in messages of hotstuff only;"),
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
            metadata, default = each.metadata, each.default
            values = ", ".join(f"`{choice}`" for choice in metadata["choices"])
            values = values or f"{metadata['least']:,} to {metadata['most']:,}"
            row = f"| `--{each.name.replace('_', '-')}` | `{default}` | {values} | {metadata['text']}"
            assert row in section, row
        for expectation in drill().expectations(drill().scenario()):
            assert f"`{PREFIX}{expectation.name}`" in section, expectation.name


@pytest.mark.soak
def test_a_storm_of_a_hundred_thousand() -> None:
    verdict = judged(Storm(timers=100_000))
    assert verdict.outcome is Outcome.PASS, failures(verdict)


@pytest.mark.soak
def test_a_storm_that_buys_the_lane_prices_honest_timers_out() -> None:
    verdict = judged(Storm(timers=30_000, bid_percent=400))
    assert of(verdict, "honest_lateness") is Outcome.FAIL, verdict.check(PREFIX + "honest_lateness").detail
    assert of(verdict, "timers_once") is Outcome.PASS
