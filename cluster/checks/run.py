"""The checks of a run: what must hold for it to pass, judged from its books, without input or output.

Each check gives an outcome and its figures. *Pass* and *fail* are about what was observed. *Inconclusive* means that
too little was observed: nothing was compared, no load was committed, or a fault had no observable effect. The run fails
if any check fails, is inconclusive if any other is inconclusive, and passes otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from typing import Final

from cluster.audit.books import Books, keep_books
from cluster.checks.agreement import check_agreement, check_chain, check_state_roots
from cluster.checks.coverage import check_coverage, count_evaluations
from cluster.checks.criteria import check_criteria
from cluster.checks.faults import check_faults, check_joins, check_recovery
from cluster.checks.metrics.actor_classes import ActorUse, ClassUse, class_of_actors, use_by_actor, use_by_class
from cluster.checks.metrics.load_latency import WorkloadLatency, load_latencies
from cluster.checks.metrics.metrics import run_metrics
from cluster.checks.metrics.participation import Participation, participation
from cluster.checks.metrics.warnings import find_warnings
from cluster.checks.progress import check_load, check_no_problems, check_participation, check_progress
from cluster.checks.safety import check_byzantine, check_evidence, check_promises, check_safety
from cluster.checks.timers_and_amounts import check_bounds, check_conservation, check_timers
from cluster.checks.verdict import Check, Verdict, examples
from cluster.common.outcome import Outcome, worst
from cluster.record.run import RunRecord

CHECKS: Final[tuple[Callable[[Books], Check], ...]] = (
    check_agreement,
    check_state_roots,
    check_chain,
    check_timers,
    check_conservation,
    check_bounds,
    check_progress,
    check_load,
    check_faults,
    check_recovery,
    check_criteria,
    check_joins,
    check_participation,
    check_byzantine,
    check_evidence,
    check_safety,
    check_promises,
    check_no_problems,
)
CHECK_NAMES: Final = tuple(check.__name__.removeprefix("check_") for check in CHECKS)

Judge = Callable[[Books, tuple[Check, ...]], tuple[Check, ...]]
"""A function that adds a drill's expectations: it takes the checks of every run, and returns all of the verdict."""


@dataclass(frozen=True)
class Judged:
    """A run with all findings, each computed once: for its result, its report, and sweeps."""

    books: Books
    actor_classes: Mapping[bytes, str]
    actors: list[ActorUse]
    classes: list[ClassUse]
    latencies: list[WorkloadLatency]
    metrics: dict[str, float]
    """Metrics by name (:mod:`cluster.scenario.sections.metric_names`), without infinite ones."""
    verdict: Verdict

    @cached_property
    def participation(self) -> list[Participation]:
        """The part of each validator in consensus; sweeps do not ask for it."""
        return participation(self.books)


def judge_run(record: RunRecord, books: Books | None = None, judge: Judge | None = None) -> Judged:
    """Compute a run's metrics and perform every check. Its books are computed too, unless ``books`` are given."""
    books = books if books is not None else keep_books(record)
    actor_classes = class_of_actors(record)
    actors = use_by_actor(books, actor_classes)
    latencies = load_latencies(books)
    metrics = run_metrics(books, actors, latencies)
    checks = tuple(
        check_criteria(books, metrics, actors) if check is check_criteria else check(books) for check in CHECKS
    )
    evaluations = count_evaluations(books, checks)
    checks = tuple(_with_seen(record, check) for check in (*checks, check_coverage(evaluations)))
    if judge is not None:
        checks = judge(books, checks)
    outcome = worst(check.verdict for check in checks)
    verdict = Verdict(
        outcome, checks, evaluations, tuple(books.bisections), find_warnings(books, latencies, actor_classes)
    )
    finite = {name: value for name, value in metrics.items() if isfinite(value)}
    return Judged(books, actor_classes, actors, use_by_class(actors), latencies, finite, verdict)


def _with_seen(record: RunRecord, check: Check) -> Check:
    """The check, turned into a failure if the live audit reported a violation of it during the run."""
    seen = record.seen_violations.get(check.name)
    if not seen or check.verdict is Outcome.FAIL:
        return check
    return replace(check, verdict=Outcome.FAIL, detail=f"told while it ran: {examples(seen)}", applies=True)


def check_run(record: RunRecord, books: Books | None = None, judge: Judge | None = None) -> Verdict:
    """Perform every check of a run, and return its verdict (:func:`judge_run`)."""
    return judge_run(record, books, judge).verdict
