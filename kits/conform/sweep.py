"""A sweep: every case of a source is put to a tool, in several processes, and compared with the expected output."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Generator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.util import Finalize
from typing import Any, Final

from cluster.common.checkout import checkout_commit
from cluster.common.errors import ExitCode, HarnessError
from kits.conform.case import AnsweredCase, Reference
from kits.conform.difference import first_difference
from kits.conform.families.table import rules_about
from kits.conform.rules import RULES
from kits.conform.source import Source
from kits.conform.tool import Tool, ToolCommand, ToolFailure, Unsupported

BATCH: Final = 8
BATCHES_AHEAD: Final = 3
"""Batches in flight for each worker."""
MAX_FAILURES: Final = 1_000
"""Maximum number of failures that a sweep keeps with their lines."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one case."""

    reference: Reference
    kind: str
    """What differs, without positions and values (:attr:`Difference.kind`), or ``no answer``; empty if nothing does."""
    detail: str
    """The first difference, or what the tool did, as one line."""
    seconds: float
    """Time that the tool took."""
    rules: frozenset[str]
    is_supported: bool = True
    """Whether the tool has what the case is about; if not, ``detail`` is its reason."""

    @property
    def rules_of_family(self) -> tuple[str, ...]:
        """Ids of the rules that the family is about and the case reaches."""
        return rules_about(self.reference.family, self.rules)


NO_ANSWER: Final = "no answer"


def judge(answered: AnsweredCase, tool: Tool, has_roots: bool) -> CaseResult:
    """Put a case to a tool, and compare its answer."""
    case, reference = answered.case, answered.case.reference
    begin = time.perf_counter()
    try:
        got = tool.answer(case)
    except ToolFailure as failure:
        return CaseResult(reference, NO_ANSWER, str(failure), time.perf_counter() - begin, answered.rules)
    except Unsupported as reason:
        return CaseResult(reference, "", str(reason), time.perf_counter() - begin, frozenset(), is_supported=False)
    took = time.perf_counter() - begin
    difference = first_difference(answered.answer, got, has_roots)
    if difference is None:
        return CaseResult(reference, "", "", took, answered.rules)
    return CaseResult(reference, difference.kind, difference.text, took, answered.rules)


@dataclass(slots=True)
class SweepResult:
    """The results of a sweep."""

    tool: str
    cases: Counter[str] = field(default_factory=Counter)
    """Number of cases by family."""
    failed: Counter[str] = field(default_factory=Counter)
    unsupported: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    """Why the first case that is not supported is not, by family."""
    failures: list[CaseResult] = field(default_factory=list)
    passed: list[Reference] = field(default_factory=list)
    rules: Counter[str] = field(default_factory=Counter)
    """Number of cases that reached a rule, by its id."""
    seconds: float = 0.0
    tool_seconds: dict[str, float] = field(default_factory=dict)
    was_interrupted: bool = False

    def add(self, result: CaseResult) -> None:
        """Count a result."""
        family = result.reference.family
        self.cases[family] += 1
        self.tool_seconds[family] = self.tool_seconds.get(family, 0.0) + result.seconds
        self.rules.update(result.rules)
        if not result.is_supported:
            self.unsupported[family] += 1
            self.reasons.setdefault(family, result.detail)
        elif result.kind:
            self.failed[family] += 1
            if len(self.failures) < MAX_FAILURES:
                self.failures.append(result)
        else:
            self.passed.append(result.reference)

    def finish(self, seconds: float) -> None:
        """End the count: failures are sorted by family and number."""
        self.seconds = seconds
        order = {name: place for place, name in enumerate(self.cases)}
        self.failures.sort(key=lambda result: (order[result.reference.family], result.reference.number))

    @property
    def exit_code(self) -> ExitCode:
        """Fail if a case differs; inconclusive if none was answered, or the sweep was interrupted."""
        if self.failures:
            return ExitCode.FAIL
        is_answered = self.unsupported.total() < self.cases.total()
        return ExitCode.PASS if is_answered and not self.was_interrupted else ExitCode.INCONCLUSIVE

    @property
    def cases_per_minute(self) -> float:
        return 60 * self.cases.total() / self.seconds if self.seconds else 0.0

    def page(self) -> dict[str, Any]:
        """The results as JSON data."""
        return {
            "tool": self.tool,
            "commit": checkout_commit(),
            "verdict": {ExitCode.PASS: "pass", ExitCode.FAIL: "fail"}.get(self.exit_code, "inconclusive"),
            "cases": self.cases.total(),
            "failed": self.failed.total(),
            "unsupported": self.unsupported.total(),
            "seconds": round(self.seconds, 3),
            "families": {
                name: {"cases": count, "failed": self.failed[name], "unsupported": self.unsupported[name]}
                for name, count in sorted(self.cases.items())
            },
            "unsupported_because": dict(sorted(self.reasons.items())),
            "failures": [
                {
                    "family": each.reference.family,
                    "number": each.reference.number,
                    "kind": each.kind,
                    "detail": each.detail,
                    "rules": list(each.rules_of_family),
                }
                for each in self.failures
            ],
            "rules": {name: self.rules[name] for name in RULES},
        }


def run_sweep(
    source: Source, command: ToolCommand, workers: int, has_roots: bool, stop_on_fail: bool, advance: Any
) -> SweepResult:
    """Run all cases of a source; ``advance`` is called after each. Ctrl-C ends the sweep early."""
    found, begin = SweepResult(command.text), time.perf_counter()
    results = _alone(source, command, has_roots) if workers == 1 else _fanned_out(source, command, workers, has_roots)
    try:
        with closing(results):
            for result in results:
                found.add(result)
                advance()
                if result.kind and stop_on_fail:
                    break
    except KeyboardInterrupt:
        found.was_interrupted = True
    found.finish(time.perf_counter() - begin)
    return found


def _alone(source: Source, command: ToolCommand, has_roots: bool) -> Generator[CaseResult, None, None]:
    with closing(command.open()) as tool:
        for reference in source.references():
            yield judge(source.load(reference), tool, has_roots)


def _fanned_out(
    source: Source, command: ToolCommand, workers: int, has_roots: bool
) -> Generator[CaseResult, None, None]:
    references = source.references()
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _begin_worker, (source, command, has_roots))
    waiting: deque[Future[list[CaseResult]]] = deque()
    try:
        while True:
            while len(waiting) < workers * BATCHES_AHEAD and (batch := list(islice(references, BATCH))):
                waiting.append(pool.submit(_judge_batch, batch))
            if not waiting:
                return
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                waiting.remove(future)
                yield from future.result()
    except BrokenProcessPool:
        raise HarnessError("a worker of the sweep was ended from outside, probably for lack of memory") from None
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Worker:
    source: Source
    tool: Tool
    has_roots: bool


_workers: Final[dict[int, _Worker]] = {}
"""This process's worker, if it is one."""


def _begin_worker(source: Source, command: ToolCommand, has_roots: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process stops its workers
    tool = command.open()
    Finalize(None, tool.close, exitpriority=1)
    _workers[os.getpid()] = _Worker(source, tool, has_roots)


def _judge_batch(batch: list[Reference]) -> list[CaseResult]:
    worker = _workers[os.getpid()]
    return [judge(worker.source.load(reference), worker.tool, worker.has_roots) for reference in batch]
