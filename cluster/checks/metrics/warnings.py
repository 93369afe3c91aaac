"""Warnings about a run: what may be wrong although each check passes. They change no verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from cluster.audit.books import Books
from cluster.audit.figures import FailedRuns
from cluster.audit.violation import short
from cluster.checks.metrics.load_latency import WorkloadLatency
from cluster.common.wording import counted
from validator.primitives.types import address_text

MAX_NAMED: Final = 3
"""The most classes of actors with a warning each. Further ones are only counted."""
LONG_WAIT_BLOCKS: Final = 16
"""The wait of a due timer from which on there is a warning. A scenario sets a bound with the metric
``lateness_max_blocks``."""


def find_warnings(books: Books, latencies: Sequence[WorkloadLatency], classes: Mapping[bytes, str]) -> tuple[str, ...]:
    """All warnings about a run, each in one line. ``latencies`` are those of its load, ``classes`` its actors'."""
    return (
        *_short_books(books),
        *_always_failing(books, classes),
        *_long_wait(books, classes),
        *_silent_workloads(books, latencies),
    )


def name_of(actor: bytes, classes: Mapping[bytes, str]) -> str:
    """An actor's class, if it has one, and its address."""
    return f"{classes.get(actor, 'actor')} {address_text(actor)}"


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
