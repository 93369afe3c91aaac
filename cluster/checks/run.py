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

from cluster.audit.books import Books, keep_books
from cluster.checks.kind import Judging, kinds_of
from cluster.checks.metrics.actor_classes import ActorUse, ClassUse, use_by_class
from cluster.checks.metrics.load_latency import WorkloadLatency
from cluster.checks.metrics.participation import Participation, participation
from cluster.checks.metrics.warnings import find_warnings
from cluster.checks.verdict import Check, Verdict, examples
from cluster.common.outcome import Outcome, worst
from cluster.record.run import RunRecord

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
    run = Judging(books if books is not None else keep_books(record))
    books, kinds = run.books, [kind(run) for kind in kinds_of(record.scenario)]
    for kind in kinds:
        run.more_metrics |= kind.measured()
    checks = tuple(_with_seen(record, kind.check()) for kind in kinds)
    if judge is not None:
        checks = judge(books, checks)
    warnings = find_warnings(books, run.latencies, run.actor_classes)
    verdict = Verdict(
        worst(check.verdict for check in checks), checks, tuple(run.evaluations), tuple(books.bisections), warnings
    )
    finite = {name: value for name, value in run.metrics.items() if isfinite(value)}
    classes = use_by_class(run.actors)
    return Judged(books, run.actor_classes, run.actors, classes, run.latencies, finite, verdict)


def _with_seen(record: RunRecord, check: Check) -> Check:
    """The check, turned into a failure if the live audit reported a violation of it during the run."""
    seen = record.seen_violations.get(check.name)
    if not seen or check.verdict is Outcome.FAIL:
        return check
    return replace(check, verdict=Outcome.FAIL, detail=f"told while it ran: {examples(seen)}", applies=True)


def check_run(record: RunRecord, books: Books | None = None, judge: Judge | None = None) -> Verdict:
    """Perform every check of a run, and return its verdict (:func:`judge_run`)."""
    return judge_run(record, books, judge).verdict
