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
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

from cluster.audit.served.proofs import SERVED_RULES
from cluster.checks.run import check_run
from cluster.checks.verdict import Verdict
from cluster.common.outcome import Outcome
from cluster.misbehaviour.mutants.base import Detection, Mutant, RunCounter
from cluster.misbehaviour.mutants.registry import MUTANTS
from cluster.record.rules import WATCHED_LIVE
from cluster.record.run import RunRecord
from cluster.report.junit import Case, Suite, junit_xml
from cluster.watches.safety_monitor import broken
from cluster.watches.watched_simulation import simulate
from consensus.types import ConsensusError
from kits.mutation.detection_scenarios import scenario_of
from kits.mutation.harness_mutants import HARNESS_MUTANTS, HarnessMutant
from validator.primitives.types import ValidatorError

AnyMutant = Mutant | HarnessMutant

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


def all_mutants() -> dict[str, AnyMutant]:
    """All planted bugs, by name."""
    return {**MUTANTS, **HARNESS_MUTANTS}


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
    mutant = all_mutants()[name]
    started = time.monotonic()
    detection = mutant.detection
    kill = Kill(
        mutant.name, mutant.area, mutant.description, _invariant(mutant), detection.scenario, detection.protocol
    )
    tried: list[Kill] = []
    for seed in range(1, max(min_seeds, detection.seeds) + 1):
        at = replace(kill, seed=seed)
        tried.append(_try_harness(mutant, at) if isinstance(mutant, HarnessMutant) else _try(mutant, at))
        if seed >= min_seeds and any(each.caught for each in tried):
            break
    judged = tried[: detection.seeds]
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


def _invariant(mutant: AnyMutant) -> str:
    if isinstance(mutant, HarnessMutant):
        return mutant.answer.words
    return f"{mutant.caught_by}: {mutant.rule}" if mutant.rule else mutant.caught_by


def _try(mutant: Mutant, kill: Kill) -> Kill:
    """Run a mutant of the validators with one seed; returns its row of the kill table."""
    try:
        record, verdict = _run(mutant.detection, mutant.name, kill.seed)
    except CRASHES as error:
        return replace(kill, detail=f"crashed: {type(error).__name__}: {error}")
    check = verdict.check(mutant.caught_by)
    live = dict.fromkeys(_seen_live(record, verdict), 1)
    kill = replace(kill, runs=mutant_runs(record), live=live, detail=f"{check.verdict}: {check.detail}")
    if check.verdict is not Outcome.FAIL:
        return kill
    if mutant.rule:
        assert record.monitor is not None, "mutants run in the simulator"
        violations = broken(record.monitor, mutant.rule)
        if not violations:
            return replace(kill, detail=f"another rule: {check.detail}")
        kill = replace(kill, detail=f"fail: {violations[0]}")
    if not kill.runs:
        return replace(kill, detail=f"the mutated line never ran; {kill.detail}")
    return _confirmed_without_mutant(mutant.detection, kill)


def _seen_live(record: RunRecord, verdict: Verdict) -> list[str]:
    """The checks that would also fail on the live testnet, which has less data than the simulator.

    For ``safety`` these are its broken rules on certificates and votes that live runs watch, and on data that
    validators serve.
    """
    failed = [check.name for check in verdict.checks if check.verdict is Outcome.FAIL and check.name != "safety"]
    monitor = record.monitor
    assert monitor is not None, "mutants run in the simulator"
    return failed + [f"safety: {rule}" for rule in (*WATCHED_LIVE, *SERVED_RULES) if broken(monitor, rule)]


def _try_harness(mutant: HarnessMutant, kill: Kill) -> Kill:
    """Run a mutant of the harness with one seed. It is caught if the bug changes the known answer."""
    answer, counter = mutant.answer, RunCounter()
    record, verdict = _run(answer.detection, answer.mutant, kill.seed)
    right = answer.given(record, verdict)
    if right is not answer.verdict:
        return replace(kill, detail=f"without it the answer is {right}: {verdict.check(answer.check).detail}")
    try:
        with mutant.plant(counter):
            record, verdict = _run(answer.detection, answer.mutant, kill.seed)
    except CRASHES as error:
        return replace(kill, runs=counter.runs, detail=f"crashed: {type(error).__name__}: {error}")
    wrong = answer.given(record, verdict)
    caught = counter.runs > 0 and wrong is not right
    detail = f"{wrong} in place of {right}: {verdict.check(answer.check).detail}"
    return replace(kill, runs=counter.runs, passes_unmutated=True, caught=caught, detail=detail)


def _confirmed_without_mutant(where: Detection, kill: Kill) -> Kill:
    """Mark the mutant as caught if the scenario passes without the bug, with the same seed."""
    outcome, why = _sound(where.scenario, where.protocol, kill.seed)
    if outcome is not Outcome.PASS:
        return replace(kill, detail=f"does not pass without it either: {why}")
    return replace(kill, caught=True, passes_unmutated=True)


@lru_cache(maxsize=256)
def _sound(scenario: str, protocol: str, seed: int) -> tuple[Outcome, str]:
    """The outcome of a detection scenario without a mutant, and the reason if it does not pass."""
    _, verdict = _run(Detection(scenario, (), protocol), None, seed)
    bad = verdict.decisive
    return verdict.outcome, "" if bad is None else f"{bad.name} {bad.verdict}: {bad.detail}"


def _run(where: Detection, mutant: str | None, seed: int) -> tuple[RunRecord, Verdict]:
    record = simulate(scenario_of(where, mutant), seed)
    if record.interrupted:
        raise KeyboardInterrupt
    return record, check_run(record)


def mutant_runs(record: RunRecord) -> int:
    """Number of times that the mutated line ran, in all validators together."""
    return sum(validator.mutant_runs for validator in record.validators)
