"""The checks of a run: what must hold for it to pass, judged from its books, without input or output.

Each check gives an outcome and its figures. *Pass* and *fail* are about what was observed. *Inconclusive* means that
too little was observed: nothing was compared, no load was committed, or a fault had no observable effect. The run fails
if any check fails, is inconclusive if any other is inconclusive, and passes otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from cluster.audit.books import Books, keep_books
from cluster.audit.figures import FailedRuns
from cluster.audit.violation import short
from cluster.checks.kind import Judged, checks_by, kinds_of
from cluster.checks.metrics.actor_classes import name_of
from cluster.checks.metrics.load_latency import WorkloadLatency
from cluster.checks.verdict import Check, Verdict, examples
from cluster.common.outcome import Outcome, worst
from cluster.common.wording import counted
from cluster.record.run import RunRecord

MAX_NAMED: Final = 3
"""The most classes of actors with a warning each. Further ones are only counted."""
LONG_WAIT_BLOCKS: Final = 16
"""The wait of a due timer from which on there is a warning. A scenario sets a bound with the metric
``lateness_max_blocks``."""

Judge = Callable[[Books, tuple[Check, ...]], tuple[Check, ...]]
"""A function that adds a drill's expectations: it takes the checks of every run, and returns all of the verdict."""


def judge_run(record: RunRecord, books: Books | None = None, judge: Judge | None = None) -> Judged:
    """Compute a run's metrics and perform every check. Its books are computed too, unless ``books`` are given."""
    judged = Judged(books if books is not None else keep_books(record))
    books = judged.books
    checks = tuple(_with_seen(record, check) for check in checks_by(kinds_of(record.scenario), judged))
    if judge is not None:
        checks = judge(books, checks)
    warnings = find_warnings(books, judged.latencies, judged.actor_classes)
    judged.verdict = Verdict(
        worst(check.verdict for check in checks), checks, tuple(judged.evaluations), tuple(books.bisections), warnings
    )
    return judged


def _with_seen(record: RunRecord, check: Check) -> Check:
    """The check, turned into a failure if the live audit reported a violation of it during the run."""
    seen = record.seen_violations.get(check.name)
    if not seen or check.verdict is Outcome.FAIL:
        return check
    return replace(check, verdict=Outcome.FAIL, detail=f"told while it ran: {examples(seen)}", applies=True)


def check_run(record: RunRecord, books: Books | None = None, judge: Judge | None = None) -> Verdict:
    """Perform every check of a run, and return its verdict (:func:`judge_run`)."""
    return judge_run(record, books, judge).verdict


# --- warnings ---------------------------------------------------------------------------------------------------------


def find_warnings(books: Books, latencies: Sequence[WorkloadLatency], classes: Mapping[bytes, str]) -> tuple[str, ...]:
    """What may be wrong although each check passes, each in one line; no verdict follows from it.

    ``latencies`` are those of its load, ``classes`` its actors'.
    """
    return (
        *_short_books(books),
        *_always_failing(books, classes),
        *_long_wait(books, classes),
        *_silent_workloads(books, latencies),
    )


def _short_books(books: Books) -> Iterator[str]:
    if books.ledger.broken:
        height = books.ledger.height
        yield f"figures of timers, fees and runs end at height {height}: the next block is not as specified"


def _always_failing(books: Books, classes: Mapping[bytes, str]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[FailedRuns]] = {}
    for each in books.ledger.outcomes.always_failing:
        name = classes.get(each.actor) or name_of(each.actor, classes)
        groups.setdefault((name, each.kind.value), []).append(each)
    for (name, kind), found in islice(groups.items(), MAX_NAMED):
        who = name_of(found[0].actor, classes) if len(found) == 1 else f"{len(found):,} actors of {name}"
        runs = counted(sum(each.runs for each in found), kind)
        reason = books.reasons.get(found[0].key)
        yield f"{who} failed always: {runs}, most often with {found[0].error}{f' ({reason})' if reason else ''}"
    if len(groups) > MAX_NAMED:
        yield f"actors of {len(groups) - MAX_NAMED:,} more classes failed always"


def _long_wait(books: Books, classes: Mapping[bytes, str]) -> Iterator[str]:
    ledger = books.ledger
    oldest = min(ledger.world.timers.values(), key=lambda life: life.trigger_height, default=None)
    if oldest is None or (waited := ledger.height + 1 - oldest.trigger_height) < LONG_WAIT_BLOCKS:
        return
    yield (
        f"{counted(ledger.backlog, 'due timer')} did not fire by the end; the oldest,"
        f" {short(oldest.timer_id)} of {name_of(oldest.actor, classes)}, has waited for {waited} blocks"
    )


def _silent_workloads(books: Books, latencies: Sequence[WorkloadLatency]) -> Iterator[str]:
    record = books.record
    plan = (record.given or record.scenario).load
    sent = {each.workload for each in latencies if each.sent}
    silent = [] if plan.external else [title for title in dict.fromkeys(plan.titles) if title not in sent]
    if silent:
        yield f"users of these workloads sent nothing: {', '.join(silent)}"
