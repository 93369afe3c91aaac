"""What every check is: a subclass of :class:`CheckKind`, which says all that is to be known of it.

Checks that ship are in ``cluster/checks/kinds/``, and judge every run. Others, of installed packages
(:mod:`cluster.common.plugins`) or in files of users, judge the runs whose scenario names them (``success.checks``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum, auto
from functools import cache, cached_property
from importlib import import_module
from inspect import signature
from math import isfinite
from operator import index
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from cluster.audit.books import Books, Finding
from cluster.checks.metrics.actor_classes import ActorUse, ClassUse, class_of_actors, use_by_actor, use_by_class
from cluster.checks.metrics.load_latency import WorkloadLatency, load_latencies
from cluster.checks.metrics.metrics import Participation, participation, run_metrics
from cluster.checks.metrics.recovery import active_committees_during
from cluster.checks.verdict import Check, Evaluation, Result, Verdict
from cluster.common.outcome import Outcome
from cluster.common.wording import counted
from cluster.record.lag import explains_delay
from cluster.scenario import Scenario
from cluster.scenario.metric_names import METRICS
from cluster.scenario.sections.kinds import classes_in
from cluster.scenario.sections.success import BaseCheck, check_of
from validator.primitives.user_file import UserFileError, one_line


class Subject(IntEnum):
    """What a check is about. A run's checks follow each other in this order: what may explain another comes first."""

    CHAIN = auto()
    AMOUNTS = auto()
    PROGRESS = auto()
    FAULTS = auto()
    CRITERIA = auto()
    VALIDATORS = auto()
    INSIDE = auto()
    """Rules that are watched while the run goes on."""
    OWN = auto()
    """Checks of packages and users."""
    RUN = auto()
    COVERAGE = auto()


class Judged:
    """A run with all findings, each computed once, when it is first needed: for checks, result, report and sweeps."""

    verdict: Verdict
    """Known once all checks have judged (:func:`cluster.checks.run.judge_run`)."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self.measured: dict[str, float] = {}
        """The metrics of checks, by name."""
        self.evaluations: list[Evaluation] = []
        """What the checks so far have evaluated."""
        self.errors: dict[str, str] = {}
        """The first error of each check of a user or a package that raised one, by the check's name."""

    @cached_property
    def actor_classes(self) -> Mapping[bytes, str]:
        return class_of_actors(self.books.record)

    @cached_property
    def actors(self) -> list[ActorUse]:
        return use_by_actor(self.books, self.actor_classes)

    @cached_property
    def classes(self) -> list[ClassUse]:
        return use_by_class(self.actors)

    @cached_property
    def latencies(self) -> list[WorkloadLatency]:
        return load_latencies(self.books)

    @cached_property
    def all_metrics(self) -> dict[str, float]:
        """Metrics by name (:mod:`cluster.scenario.metric_names`); some may be infinite."""
        return run_metrics(self.books, self.actors, self.latencies) | self.measured

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Metrics by name, without infinite ones."""
        return {name: value for name, value in self.all_metrics.items() if isfinite(value)}

    @cached_property
    def participation(self) -> list[Participation]:
        """The part of each validator in consensus."""
        return participation(self.books)


FIXED: Final = ("check", "measurements", "evaluations")
"""Methods of a check that make something of the others."""


class CheckKind(BaseCheck):
    """A check of one run. The first paragraph of a subclass's docstring is the rule that ``stampede explain`` shows."""

    SUBJECT: ClassVar[Subject] = Subject.OWN
    RULES: ClassVar[tuple[str, ...]] = ()
    """What it evaluates, as the check ``coverage`` counts it."""

    def __init__(self, run: Judged) -> None:
        self.run = run
        self.books = run.books
        self.record = run.books.record
        self.rules = self.RULES
        """Those of its rules that are evaluated in such a run."""
        self.times: dict[str, int] = {}
        """How often it evaluated each of its rules. :meth:`judge` fills it."""

    def judge(self) -> Result:
        """The outcome, and its figures in one line. Too little to judge is inconclusive."""
        raise NotImplementedError

    def idle(self) -> str:
        """Why there is nothing to judge, so that the check passes; empty if there is something."""
        return ""

    def needed(self) -> Mapping[str, int]:
        """How often its rules must be evaluated for a pass to be meaningful; those left out, once."""
        return {}

    def measure(self) -> Mapping[str, float]:
        """The values of its :attr:`METRICS`; those that the run does not have are left out."""
        return {}

    # --- what is made of it -------------------------------------------------------------------------------------------

    @classmethod
    def require_fits(cls) -> None:
        if cls.name in (kind.name for kind in shipped()):
            raise ValueError(f"a check that ships is named {cls.name}; expected another name")
        subject: Any = cls.SUBJECT
        if not isinstance(subject, Subject) or subject is Subject.COVERAGE:
            raise ValueError(f"SUBJECT: expected a Subject other than COVERAGE, got {subject!r}")
        for field, pattern in (("RULES", rf"{re.escape(cls.name)}: \S.*"), ("METRICS", "[a-z][a-z0-9_]*")):
            names: Any = getattr(cls, field)
            if not isinstance(names, tuple) or not all(isinstance(n, str) and re.fullmatch(pattern, n) for n in names):
                raise ValueError(f"{field}: expected a tuple of texts like {pattern}, got {names!r}")
        if taken := METRICS.keys() & cls.metric_names():
            raise ValueError(f"METRICS: a metric that ships is named {min(taken)}; expected another name")
        if cls.judge is CheckKind.judge or any(getattr(cls, name) is not getattr(CheckKind, name) for name in FIXED):
            raise ValueError(f"expected a class that has judge, and none of {', '.join(FIXED)}")
        signature(cls).bind(None)

    def check(self) -> Check:
        """Judge the run. What the check has evaluated is added to :attr:`Judged.evaluations`."""
        why = self.idle()
        outcome, detail = (Outcome.PASS, why) if why else self.judge()
        found = Check(self.name, Outcome(outcome), " ".join(str(detail).split()), applies=not why)
        self.run.evaluations += self.evaluations(found)
        return found

    def measurements(self) -> dict[str, float]:
        """Its metrics, by name."""
        values = self.measure()
        if unnamed := sorted(values.keys() - set(self.METRICS)):
            raise ValueError(f"it measures {unnamed[0]}, which METRICS does not name")
        return {f"{self.name}_{name}": float(value) for name, value in values.items()}

    def evaluations(self, found: Check) -> list[Evaluation]:
        """How often each rule was evaluated. If the check failed, it may have ended before it came to some of them."""
        needed, looks_at_all = self.needed(), found.applies and found.verdict is not Outcome.FAIL
        return [
            Evaluation(rule, index(self.times.get(rule, 0)), index(needed.get(rule, 1)))
            for rule in self.rules
            if rule in self.times or looks_at_all
        ]

    # --- of the served chains -----------------------------------------------------------------------------------------

    def unless_vacuous(self, detail: str) -> Result:
        """The verdict if nothing wrong was found in what validators served: a pass, or inconclusive if too little was
        compared."""
        books, scenario = self.books, self.record.scenario
        expected = scenario.validators.count - byzantine_count(scenario)
        if len(books.seen) < expected:
            what = f"only {len(books.seen)} of {expected} validators served a block"
            return Outcome.INCONCLUSIVE, f"{what}; {detail}" if books.seen else what
        if books.common_height < (least := scenario.success.heights_compared):
            what = f"only {counted(books.common_height, 'height')} common to all validators, {least} needed; {detail}"
            return Outcome.INCONCLUSIVE, what
        return Outcome.PASS, detail

    def findings(self) -> list[str]:
        """The violations of this check that the books have, in words."""
        count = len(self.books.judged)
        return [
            f"{_whose(finding, count)} at height {finding.violation.height}: {finding.violation.what}"
            for finding in self.books.findings
            if finding.violation.check == self.name
        ]

    @property
    def highest(self) -> int:
        """The highest tip of a validator that is not byzantine."""
        return max((self.books.chains[validator.name].tip for validator in self.books.judged), default=0)


def _whose(finding: Finding, count: int) -> str:
    names = "all validators" if 1 < count == len(finding.validators) else ", ".join(finding.validators)
    return f"{names} (its own execution)" if finding.evidence else names


def unless_too_slow(outcome: Outcome, what: str, excuse: str) -> Result:
    """The verdict of a finding: ``outcome``, or inconclusive if an excuse is given, which says how the machine's lag
    explains the finding."""
    return (Outcome.INCONCLUSIVE, f"{what}; {excuse}") if excuse else (outcome, what)


def excuse_for(books: Books, begin_ms: float, end_ms: float, limit_ms: float) -> str:
    """Explains in words how the machine's lag caused a delay; empty if the lag does not explain it.

    The delay lasted from ``begin_ms`` to ``end_ms``, where ``limit_ms`` was allowed.
    """
    return explains_delay(books.record, active_committees_during(books, begin_ms, end_ms), begin_ms, end_ms, limit_ms)


def byzantine_count(scenario: Scenario) -> int:
    return sum(bool(node.byzantine) for node in scenario.validators.nodes)


# --- all checks of a run ----------------------------------------------------------------------------------------------

FOLDER: Final = Path(__file__).parent / "kinds"


@cache
def shipped() -> tuple[type[CheckKind], ...]:
    """The checks of every run, in the order of their subjects, then of files, and then as they are written."""
    modules = [import_module(f"{__package__}.kinds.{path.stem}") for path in sorted(FOLDER.glob("[a-z]*.py"))]
    return _in_order(kind for module in modules for kind in classes_in(module, CheckKind) if hasattr(kind, "name"))


def kinds_of(scenario: Scenario) -> tuple[type[CheckKind], ...]:
    """The checks of a scenario's runs, in their order. Files of users are executed."""
    named = [cast(type[CheckKind], check_of(each)) for each in scenario.success.checks]
    return _in_order([*shipped(), *named])


def checks_by(kinds: Sequence[type[CheckKind]], run: Judged) -> Iterator[Check]:
    """Judge a run. An exception of a check of a user or a package becomes what that found."""
    made: dict[str, CheckKind] = {}
    for kind in kinds:
        with _noting_error(kind, run.errors):
            made[kind.name] = kind(run)
            run.measured |= made[kind.name].measurements()
    for kind in kinds:
        with _noting_error(kind, run.errors):
            found = made[kind.name].check()
        error = run.errors.get(kind.name)
        yield found if error is None else Check(kind.name, Outcome.INCONCLUSIVE, error)


@contextmanager
def _noting_error(kind: type[CheckKind], errors: dict[str, str]) -> Iterator[None]:
    if not kind.file:
        yield
        return
    try:
        with one_line(kind.file):
            yield
    except UserFileError as error:
        errors.setdefault(kind.name, str(error))


def _in_order(kinds: Iterable[type[CheckKind]]) -> tuple[type[CheckKind], ...]:
    return tuple(sorted(kinds, key=lambda kind: kind.SUBJECT))
