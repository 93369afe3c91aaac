"""Detection of planted bugs: runs each mutant in its scenario, and judges whether it was caught.

A mutant is caught if its expected check *fails* (for ``safety``, by the expected rule), the mutated line ran, and the
same scenario and seed pass without it. An inconclusive check, a crash of the harness and a chain that merely stalls do
not count. Seeds are tried in order until one catches it, at most as many as the mutant states. More seeds are run to
count how often a mutant is provoked and caught.

The same runs show which checks would catch a mutant on the live testnet: those that also fail on the data of a live
run, which lacks only what the simulator's monitor watches. Whether a live run provokes the bug depends on its faults.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

from cluster.audit.proofs import SERVED_RULES
from cluster.checks.run import check_run
from cluster.checks.verdict import Verdict
from cluster.common.outcome import Outcome
from cluster.misbehaviour.planted import Planted, RunCounter, planted_bugs
from cluster.record.rules import WATCHED_LIVE
from cluster.record.run import RunRecord
from cluster.report.junit import Case, Suite, junit_xml
from cluster.watches.safety_monitor import broken
from cluster.watches.watched_simulation import simulate
from consensus.types import ConsensusError
from kits.mutation.bugs.harness import OF_THE_HARNESS
from kits.mutation.bugs.table import Area, Detection
from kits.mutation.detection_scenarios import scenario_of
from validator.primitives.types import ValidatorError

CRASHES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ConsensusError,
    LookupError,
    RuntimeError,
    TypeError,
    ValidatorError,
    ValueError,
)
"""Errors that a planted bug may raise in a run. Such a crash is reported, but the bug does not count as caught."""


def all_bugs() -> dict[str, Planted]:
    """The bugs that runs must catch, by name: those of validators that are installed, then those of the harness."""
    return planted_bugs() | OF_THE_HARNESS


@dataclass(frozen=True, slots=True)
class Kill:
    """A row of the kill table: the result of one mutant."""

    name: str
    area: str
    description: str
    invariant: str
    """The check that must catch the mutant, and for ``safety`` the rule."""
    scenario: str
    protocol: str
    caught: bool = False
    seed: int = 0
    """The first seed that caught the mutant, or the last one judged."""
    seeds_tried: int = 0
    """Number of seeds tried, from seed 1 on."""
    seeds_provoked: int = 0
    """Number of the seeds tried in which the mutated line ran."""
    seeds_caught: int = 0
    """Number of the seeds tried in which the mutant was caught."""
    live: dict[str, int] = field(default_factory=dict)
    """For each check that also fails on the data of a live run: the number of the seeds tried in which it fails. Keys
    are names of checks, for ``safety`` with the rule. Empty for a mutant of the harness."""
    runs: int = 0
    """Number of times that the mutated line ran with :attr:`seed`, in all validators together."""
    passes_unmutated: bool = False
    detail: str = ""
    """The check's detail; for a survivor, why it was not caught."""
    seconds: float = 0.0


def detect(name: str, min_seeds: int = 1) -> Kill:
    """Run one mutant with at least ``min_seeds`` seeds. Raises :class:`KeyboardInterrupt` if a run was interrupted."""
    bug = all_bugs()[name]
    started = time.monotonic()
    must: Detection = bug.must_fail
    kill = Kill(bug.name, bug.area, bug.words, invariant(bug), must.scenario, must.protocol)
    tried: list[Kill] = []
    for seed in range(1, max(min_seeds, must.seeds) + 1):
        tried.append(_try(bug, replace(kill, seed=seed)))
        if seed >= min_seeds and any(each.caught for each in tried):
            break
    judged = tried[: must.seeds]
    shown = next((each for each in judged if each.caught), judged[-1])
    return replace(
        shown,
        seeds_tried=len(tried),
        seeds_provoked=sum(each.runs > 0 for each in tried),
        seeds_caught=sum(each.caught for each in tried),
        live=dict(Counter(what for each in tried for what in each.live)),
        seconds=round(time.monotonic() - started, 2),
    )


def page(kills: Iterable[Kill]) -> dict[str, Any]:
    """The kill table as JSON data."""
    rows = list(kills)
    return {
        "planted": len(rows),
        "caught": sum(kill.caught for kill in rows),
        "survivors": [kill.name for kill in rows if not kill.caught],
        "mutants": [asdict(kill) for kill in rows],
    }


def table_xml(kills: Iterable[Kill]) -> str:
    """The kill table as JUnit XML: a test case per mutant, which fails if the mutant was not caught."""
    cases = [
        Case(kill.name, Outcome.PASS if kill.caught else Outcome.FAIL, kill.detail, kill.description, kill.seconds)
        for kill in kills
    ]
    return junit_xml([Suite("mutants", cases, {})])


def invariant(bug: Planted) -> str:
    """What must fail: the check and, for ``safety``, the rule; for a bug of the harness, its known answer."""
    must: Detection = bug.must_fail
    if bug.area != Area.HARNESS:
        return must.invariant
    of = "a sound chain" if must.mutant is None else must.mutant
    return f"known answer: {must.invariant} {must.right} on {of}"


def _try(bug: Planted, kill: Kill) -> Kill:
    """Run a bug with one seed; returns its row of the kill table.

    A bug of validators is caught if the check fails, one of the harness if it changes the known answer.
    """
    must, is_harness, counter = bug.must_fail, bug.area == Area.HARNESS, RunCounter()
    try:
        with bug.patch(counter) if is_harness else nullcontext():
            record, verdict = _run(must, must.mutant if is_harness else bug.name, kill.seed)
    except CRASHES as error:
        return replace(kill, runs=counter.runs, detail=f"crashed: {type(error).__name__}: {error}")
    answer, why = _answer(must, record, verdict)
    runs = counter.runs if is_harness else mutant_runs(record)
    live = {} if is_harness else dict.fromkeys(_seen_live(record, verdict), 1)
    kill = replace(kill, runs=runs, live=live, detail=f"{answer}: {why}")
    is_wrong = answer is not must.right if is_harness else answer is Outcome.FAIL
    if not is_wrong:
        return kill
    if is_harness:
        right, why = _answer(must, *_run(must, must.mutant, kill.seed))
        problem = "" if right is must.right else f"without it the answer is {right}: {why}"
    else:
        problem = _problem_without(must.scenario, must.protocol, kill.seed)
    if problem:
        return replace(kill, detail=problem)
    if not runs:
        return replace(kill, passes_unmutated=True, detail=f"the mutated line never ran; {kill.detail}")
    return replace(kill, caught=True, passes_unmutated=True)


def _answer(must: Detection, record: RunRecord, verdict: Verdict) -> tuple[Outcome, str]:
    """The verdict of a bug's check or, for ``safety``, of its rule, and the reason."""
    check = verdict.check(must.check)
    if not must.rule or check.verdict is not Outcome.FAIL:
        return check.verdict, check.detail
    assert record.monitor is not None, "mutants run in the simulator"
    violations = broken(record.monitor, must.rule)
    return (Outcome.FAIL, violations[0]) if violations else (Outcome.PASS, f"another rule: {check.detail}")


def _seen_live(record: RunRecord, verdict: Verdict) -> list[str]:
    """The checks that would also fail on the live testnet, which has less data than the simulator.

    For ``safety`` these are its broken rules on certificates and votes that live runs watch, and on data that
    validators serve.
    """
    failed = [check.name for check in verdict.checks if check.verdict is Outcome.FAIL and check.name != "safety"]
    monitor = record.monitor
    assert monitor is not None, "mutants run in the simulator"
    return failed + [f"safety: {rule}" for rule in (*WATCHED_LIVE, *SERVED_RULES) if broken(monitor, rule)]


@lru_cache(maxsize=256)
def _problem_without(scenario: str, protocol: str, seed: int) -> str:
    """Why a detection scenario does not pass without a mutant; empty if it passes."""
    _, verdict = _run(Detection(scenario, (), protocol), None, seed)
    bad = verdict.decisive
    if verdict.outcome is Outcome.PASS:
        return ""
    return f"does not pass without it either: {'' if bad is None else f'{bad.name} {bad.verdict}: {bad.detail}'}"


def _run(where: Detection, mutant: str | None, seed: int) -> tuple[RunRecord, Verdict]:
    record = simulate(scenario_of(where, mutant), seed)
    if record.interrupted:
        raise KeyboardInterrupt
    return record, check_run(record)


def mutant_runs(record: RunRecord) -> int:
    """Number of times that the mutated line ran, in all validators together."""
    return sum(validator.mutant_runs for validator in record.validators)
