"""Scorecards made of measures, without running anything."""

from __future__ import annotations

from random import Random
from typing import Any

from cluster.scenario.files import scenario_from
from kits.market.dos.case_runs import CaseResult
from kits.market.dos.cases import BASELINE, make_plan, make_variants
from kits.market.dos.measures import RunMeasures, Window
from kits.market.dos.scorecard import Scorecard
from kits.market.dos.section import ATTACK_NAMES, DosSection

HEARTBEAT = {"workload": "heartbeat", "count": 2, "interval_ms": 400}
SMALL: dict[str, Any] = {
    "name": "small",
    "validators": 1,
    "load": {"users": [HEARTBEAT]},
    "stop": {"height": 12, "drain_blocks": 2},
    "dos": {"from_height": 3, "until_height": 9, "count": 2},
}
WINDOW = Window(4, 9)


def measures(late: int = 0, fires: int = 60, spend: int = 1_000, **fields: Any) -> RunMeasures:
    """A run in which 100 honest timers were due, all equally late."""
    found = RunMeasures(WINDOW, blocks=6, fires=fires, transactions=30, fees_of_fires=600, spend=spend, **fields)
    found.lateness.update([late] * 100)
    found.backlog = found.longest_wait = [0] * 12
    return found


def attacked(late: int = 0, **fields: Any) -> CaseResult:
    return CaseResult(measures(late, attackers_sent=5, **fields))


def card(
    *results: CaseResult, dos: DosSection | None = None, usual: dict[str, Any] | None = None, **baseline: Any
) -> Scorecard:
    """The scorecard of ``same-block``: one seed for each result. ``usual``: measures of the baseline."""
    seeds, scenario = range(len(results)), scenario_from(SMALL)
    plan = make_plan(scenario, ["same-block"], make_variants(scenario, [], []), seeds, is_quick=False)
    usual_run = CaseResult(measures(spend=0, **(usual or {})), **baseline)
    found = {plan.trial("cip1", BASELINE, seed): usual_run for seed in seeds}
    found |= {plan.trial("cip1", "same-block", seed): result for seed, result in zip(seeds, results, strict=True)}
    return Scorecard(plan, dos or DosSection(), found, "test")


def large_card(seeds: range, worse: int = 0) -> Scorecard:
    """All attacks on three variants, with drawn values; ``worse`` blocks are added to each lateness."""
    scenario, random = scenario_from(SMALL), Random(7)
    variants = make_variants(scenario, ["cip1", "hardened", "fifo"], ["SCAN_LIMIT=1024"])
    plan = make_plan(scenario, ATTACK_NAMES, variants, seeds, is_quick=False)
    results = {}
    for trial in plan.trials:
        if trial.cell[1] == BASELINE:
            results[trial] = CaseResult(measures(spend=0, state_bytes=10_000))
        else:
            late, fires = random.choice([0, 0, 2, 5, 12, 40]) + random.randrange(2) + worse, random.randrange(20, 61)
            spend = random.choice([0, 10**13])
            results[trial] = attacked(late, fires=fires, spend=spend, state_bytes=90_000, cpu_s=[0.1], full_block_s=0.2)
    return Scorecard(plan, DosSection(), results, "0123456789ab")
