"""The outcome of one seed of a sweep: its verdict, the reason, and how much happened in its run; and those so far."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from cluster.checks.kind import Judged
from cluster.checks.metrics.reached import mechanisms_reached
from cluster.checks.run import judge_run
from cluster.common.errors import crash_reason
from cluster.common.outcome import Outcome
from cluster.record.rules import Mechanism
from cluster.record.run import RunRecord

HEIGHTS_TO_COUNT: Final = 30
FIRES_TO_COUNT: Final = 20
FAULTS_TO_COUNT: Final = 2
"""Number of faults that must take effect for a pass to count; with fewer, a passing seed is inconclusive. If the
scenario has fewer faults, all must take effect."""
BEYOND_MEMORY: Final = "it needs more than --memory"
CRASH: Final = "crash"
"""In place of a verdict: the run did not end."""
WORDS: Final = ("passed", "failed", "undecided")
MAX_SHOWN: Final = 100
"""Number of seeds that did not pass that the dashboard lists."""
MAX_HISTORY: Final = 480
HISTORY_EVERY_MS: Final = 1_000
COUNTED_HERE: Final = frozenset({"faults", "byzantine", "evidence"})
"""Checks that may be inconclusive in a seed that passes. :attr:`SeedOutcome.counts` decides instead whether enough
faults took effect."""


class SeedOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The verdict of one seed, its reason, and how much happened."""

    seed: int
    verdict: str
    """``pass``, ``fail``, ``inconclusive``, or :data:`CRASH`."""
    reason: str
    """The first check that did not pass, in one line; empty if all did."""
    undecided: list[str]
    """Names of the inconclusive checks."""
    heights: int
    fires: int
    faults: dict[str, int]
    """Number of faults that took effect, keyed by kind, and of effects of byzantine behaviours, keyed by their name."""
    faults_needed: int
    """Faults that must take effect: two, or all if the scenario has fewer."""
    digest: str
    seconds: float = 0.0
    """Wall-clock time of the run in seconds. All other fields follow from scenario and seed."""
    metrics: dict[str, float] = {}
    """The run's metrics, for ``stampede compare``; empty in logs of old versions."""
    reached: list[str] = []
    """The mechanisms that the run reached (:class:`~cluster.record.rules.Mechanism`)."""

    @property
    def counts(self) -> bool:
        """Whether enough happened for a pass to be meaningful."""
        return (
            self.heights >= HEIGHTS_TO_COUNT
            and self.fires >= FIRES_TO_COUNT
            and sum(self.faults.values()) >= self.faults_needed
        )

    @property
    def passed(self) -> bool:
        return not self.failed and set(self.undecided) <= COUNTED_HERE and self.counts

    @property
    def failed(self) -> bool:
        return self.verdict == Outcome.FAIL

    @property
    def crashed(self) -> bool:
        """Whether the run ended in an exception or with its process, which is no verdict: the seed is undecided."""
        return self.verdict == CRASH

    @property
    def word(self) -> str:
        return "failed" if self.failed else "passed" if self.passed else "undecided"

    @property
    def why(self) -> str:
        """The reason why the seed did not pass, in one line."""
        if self.reason or self.counts:
            return self.reason
        return (
            f"too little happened: {self.heights} heights of {HEIGHTS_TO_COUNT}, {self.fires} fires of"
            f" {FIRES_TO_COUNT}, {sum(self.faults.values())} faults of {self.faults_needed}"
        )


class SeedTally:
    """The outcomes of a sweep so far, as its dashboard shows them. It is read by another thread."""

    def __init__(
        self,
        title: str,
        commit: str,
        total: int,
        command: Callable[[int], str],
        before: Sequence[SeedOutcome] = (),
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``command`` gives the command that runs a seed again. ``before`` are outcomes of an interrupted sweep."""
        self._about = {"title": title, "commit": commit, "total": total}
        self._command = command
        self._now_s = now_s
        self._began_s = now_s()
        self._lock = threading.Lock()
        self._words: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._reached: Counter[str] = Counter()
        self._heights = self._fires = self._added = 0
        self._kept: deque[dict[str, Any]] = deque(maxlen=MAX_SHOWN)
        """The newest seeds that did not pass."""
        self._history: deque[dict[str, Any]] = deque(maxlen=MAX_HISTORY)
        for outcome in before:
            self._count(outcome)

    def add(self, outcome: SeedOutcome) -> None:
        with self._lock:
            self._count(outcome)
            self._added += 1
            now = self._figures()
            if not self._history or now["at_ms"] - self._history[-1]["at_ms"] >= HISTORY_EVERY_MS:
                self._history.append(now)

    def _count(self, outcome: SeedOutcome) -> None:
        self._words[outcome.word] += 1
        self._faults.update(outcome.faults)
        self._reached.update(outcome.reached)
        self._heights += outcome.heights
        self._fires += outcome.fires
        if not outcome.passed:
            command = self._command(outcome.seed)
            self._kept.append(
                {"seed": outcome.seed, "word": outcome.word, "why": outcome.why, "again": command,
                 "has_report": outcome.failed or outcome.crashed}
            )  # fmt: skip

    def _figures(self) -> dict[str, Any]:
        counts = {word: self._words[word] for word in WORDS}
        return {"at_ms": round(1_000 * (self._now_s() - self._began_s)), "done": self._words.total(), **counts}

    def update(self) -> dict[str, Any]:
        """The part of the state that changes: ``added`` are the seeds that this process ran."""
        with self._lock:
            return {
                **self._figures(),
                "added": self._added,
                "heights": self._heights,
                "fires": self._fires,
                "faults": dict(sorted(self._faults.items())),
                "reached": {mechanism.value: self._reached[mechanism.value] for mechanism in Mechanism},
                "kept": list(self._kept),
            }

    def snapshot(self) -> dict[str, Any]:
        now = self.update()
        with self._lock:
            return {"run": self._about, "now": now, "history": list(self._history)}


def judge(record: RunRecord, seconds: float) -> tuple[SeedOutcome, Judged]:
    """Run all checks on a finished run; returns the seed's outcome and the full judgement."""
    judged = judge_run(record)
    books, verdict = judged.books, judged.verdict
    outcome = SeedOutcome(
        seed=record.seed,
        verdict=verdict.outcome.value,
        reason=" ".join(verdict.reason.split()),
        undecided=[check.name for check in verdict.checks if check.verdict is Outcome.INCONCLUSIVE],
        heights=books.common_height,
        fires=books.ledger.timers.fires,
        faults=dict(Counter(fault.kind for fault in record.faults if fault.took_effect) + _effects(record)),
        faults_needed=min(FAULTS_TO_COUNT, len(record.scenario.faults)),
        digest=record.digest or "",
        seconds=seconds,
        metrics=judged.metrics,
        reached=[mechanism.value for mechanism in mechanisms_reached(books)],
    )
    return outcome, judged


def crashed(seed: int, error: Exception, seconds: float) -> SeedOutcome:
    """The outcome of a seed whose run ended in an exception."""
    return broken_off(seed, crash_reason(error, BEYOND_MEMORY if isinstance(error, MemoryError) else ""), seconds)


def broken_off(seed: int, reason: str, seconds: float = 0.0) -> SeedOutcome:
    """The outcome of a seed whose run did not complete. ``reason`` is one line."""
    return SeedOutcome(
        seed=seed,
        verdict=CRASH,
        reason=f"crashed: {reason}",
        undecided=[],
        heights=0,
        fires=0,
        faults={},
        faults_needed=0,
        digest="",
        seconds=seconds,
    )


def _effects(record: RunRecord) -> Counter[str]:
    effects = [validator.effects or {} for validator in record.validators if validator.byzantine]
    return Counter(name for counts in effects for name, count in counts.items() if count)
