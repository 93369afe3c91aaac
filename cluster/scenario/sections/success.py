"""The ``success`` section of a scenario: the criteria of a run.

They are bounds on metrics and on single samples, of which a share may be out of bounds. The names are in
:mod:`cluster.scenario.metric_names`; the check ``criteria`` judges them. ``checks`` has further checks, each a
class of an installed package, or the text of a file, which is not executed when a scenario is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from inspect import getfile
from typing import Annotated, Any, ClassVar, Final

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from cluster.common.plugins import CHECKS, load_named, points
from cluster.common.suggestions import meant_or_known, unknown
from cluster.scenario.metric_names import METRICS, SAMPLES
from cluster.scenario.sections.base import Height, Section
from cluster.scenario.sections.kinds import KEPT, OwnKind, refuse_path
from loadgen.workloads.own import executes
from validator.primitives.offered import expect_class
from validator.primitives.user_file import one_line

Bound = Annotated[float, Field(allow_inf_nan=False)]
PERCENT: Final = re.compile(r"(?:100|[0-9]{1,2})(?:\.[0-9]{1,3})?%")
BreachShare = Annotated[float, Field(ge=0, lt=1)]


class BaseCheck:
    """Base of all checks, by which they are found; a check is a :class:`cluster.checks.kind.CheckKind`."""

    name: ClassVar[str]
    """The check's name. Of a check in a file of the user, it is the file's."""
    file: ClassVar[str] = ""
    """The file of a user or a package that has it; empty for a check that ships."""
    METRICS: ClassVar[tuple[str, ...]] = ()
    """Metrics that it adds to those of the run, without the check's name, which comes before them."""

    @classmethod
    def require_fits(cls) -> None:
        """Raise :class:`ValueError` if the class, of a user or a package, cannot judge a run."""
        raise ValueError(f"expected a subclass of CheckKind, got {cls!r}")

    @classmethod
    def metric_names(cls) -> list[str]:
        """Its metrics, as ``result.json`` names them."""
        return [f"{cls.name}_{metric}" for metric in cls.METRICS]


@lru_cache(maxsize=KEPT)
def check_of(given: str | OwnKind) -> type[BaseCheck]:
    """The class of a check that a scenario names. The text of a custom one is executed.

    Raises :class:`UserFileError` for an invalid text, and :class:`BadInput` for an invalid class of a package.
    """
    if isinstance(given, OwnKind):
        with one_line(given.file):
            return _fitting(given.executed(BaseCheck, "check"), given.name, given.file)

    def take(found: Any) -> type[BaseCheck]:
        return _fitting(expect_class(found, BaseCheck, given, lambda kind: kind.name), given, getfile(found))

    return load_named(CHECKS, given, take)


def _fitting(kind: type[BaseCheck], name: str, file: str) -> type[BaseCheck]:
    found: type[BaseCheck] = type(kind.__name__, (kind,), {"name": name, "file": file})
    found.require_fits()
    return found


def _check(given: Any, info: ValidationInfo) -> Any:
    if isinstance(given, str):
        refuse_path("", given)
        if given not in (known := [point.name for point in points(CHECKS)]):
            raise ValueError(
                unknown("check", given, known) if known else f"no installed package has the check {given!r:.80}"
            )
    else:
        given = OwnKind.model_validate(given)
    if executes(info):
        check_of(given)
    return given


NamedCheck = Annotated[str | OwnKind, BeforeValidator(_check)]
"""A check by the name that an installed package gives it, or the text of a Python file, whose path a file has."""


def name_of_check(given: str | OwnKind) -> str:
    return given if isinstance(given, str) else given.name


class Criterion(Section):
    """Bounds on a metric; at least one of them."""

    at_least: Bound | None = None
    """Lower bound."""
    at_most: Bound | None = None
    """Upper bound."""

    @model_validator(mode="after")
    def _bounds_something(self) -> Criterion:
        if self.at_least is None and self.at_most is None:
            raise ValueError("at_least: give at_least or at_most, or both")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError(f"at_least: {self.at_least:g} is above at_most ({self.at_most:g})")
        return self

    def holds(self, value: float) -> bool:
        """Whether a value is within the bounds."""
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    @property
    def text(self) -> str:
        """The bounds as text."""
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        return " and ".join(f"{word} {value:,.15g}" for word, value in bounds if value is not None)


class SampleCriterion(Criterion):
    """Bounds on each single sample; a share of them may be out of bounds."""

    breach_share: BreachShare = 0.0
    """Share of the samples that may be out of bounds."""


class SuccessSection(Section):
    """The minimum for a conclusive run, and the bounds for a pass."""

    heights_compared: Height = 30
    """Minimum number of heights at which all validators' blocks and state roots are compared."""
    transactions: Annotated[int, Field(ge=0)] = 50
    """Minimum number of committed load transactions."""
    fires: Annotated[int, Field(ge=0)] = 50
    """Minimum number of timer fires."""
    stall_ms: Annotated[int, Field(ge=1)] = 30_000
    """Maximum time without a final block, including faults."""
    recovery_ms: Annotated[int, Field(ge=1, le=3_600_000)] | None = None
    """Limit from the end of the last fault to a quorum's next final block; by default it follows from timeouts."""
    max_failed_fires: Annotated[int, Field(ge=0)] | str | None = None
    """Maximum number of fires whose handler failed, or their share of all fires as a percentage, such as ``2%``."""
    checks: list[NamedCheck] = []
    """Checks in addition to those of every run: names of checks of installed packages, and paths of Python files."""
    metrics: dict[str, Criterion] = {}
    """Bounds on the run's metrics, keyed by their names in ``result.json``."""
    samples: dict[str, SampleCriterion] = {}
    """Bounds on single blocks, fires or heights, keyed by the name of the sample."""

    def of_part(self, heights: int, of: int) -> SuccessSection:
        """A copy for a run of ``heights`` out of ``of`` heights: minimum numbers in proportion, rounded up."""
        counts = ("heights_compared", "transactions", "fires")
        return self.model_copy(update={name: -(-getattr(self, name) * max(1, heights) // of) for name in counts})

    def failed_fires_allowed(self, fires: int) -> int | None:
        """The most of a number of fires that may fail; ``None`` if any number may."""
        allowed = self.max_failed_fires
        return int(Fraction(allowed[:-1]) * fires / 100) if isinstance(allowed, str) else allowed

    @field_validator("max_failed_fires")
    @classmethod
    def _is_number_or_share(cls, given: int | str | None) -> int | str | None:
        if isinstance(given, str) and (not PERCENT.fullmatch(given) or Fraction(given[:-1]) > 100):
            raise ValueError(f"expected a number of fires, or a percentage from 0% to 100%; got {given[:40]!r}")
        return given

    @field_validator("checks")
    @classmethod
    def _checks_differ(cls, given: list[str | OwnKind], info: ValidationInfo) -> list[str | OwnKind]:
        if len({name_of_check(each) for each in given}) < len(given):
            raise ValueError("a check is named twice")
        measured = [name for each in given for name in check_of(each).metric_names()] if executes(info) else []
        if twice := [name for name in measured if measured.count(name) > 1]:
            raise ValueError(f"two checks measure {twice[0]}")
        return given

    @field_validator("metrics", mode="before")
    @classmethod
    def _metrics_are_known(cls, given: Any, info: ValidationInfo) -> Any:
        if "checks" not in info.data:
            return given  # they are invalid, and what they measure is not known
        checks = info.data["checks"]
        if executes(info):
            measured = [name for each in checks for name in check_of(each).metric_names()]
        else:
            measuring = tuple(f"{name_of_check(each)}_" for each in checks)
            measured = [name for name in given if name.startswith(measuring)] if isinstance(given, dict) else []
        return _known(given, [*METRICS, *measured], "metric")

    @field_validator("samples", mode="before")
    @classmethod
    def _samples_are_known(cls, given: Any) -> Any:
        return _known(given, SAMPLES, "samples")


def _known(given: Any, names: Iterable[str], what: str) -> Any:
    for name in given if isinstance(given, dict) else ():
        if name not in names:
            raise ValueError(f"{name}: unknown {what}; {meant_or_known(name, names)}")
    return given
