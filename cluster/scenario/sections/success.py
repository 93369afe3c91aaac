"""The ``success`` section of a scenario: the criteria of a run.

They are bounds on metrics and on single samples, of which a share may be out of bounds. The names are in
:mod:`cluster.scenario.sections.metric_names`; the check ``criteria`` judges them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Annotated, Any, Final

from pydantic import Field, field_validator, model_validator

from cluster.common.suggestions import meant_or_known
from cluster.scenario.sections.base import Height, Section
from cluster.scenario.sections.metric_names import METRICS, SAMPLES

Bound = Annotated[float, Field(allow_inf_nan=False)]
PERCENT: Final = re.compile(r"(?:100|[0-9]{1,2})(?:\.[0-9]{1,3})?%")
BreachShare = Annotated[float, Field(ge=0, lt=1)]


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

    @field_validator("metrics", mode="before")
    @classmethod
    def _metrics_are_known(cls, given: Any) -> Any:
        return _known(given, METRICS, "metric")

    @field_validator("samples", mode="before")
    @classmethod
    def _samples_are_known(cls, given: Any) -> Any:
        return _known(given, SAMPLES, "samples")


def _known(given: Any, names: Iterable[str], what: str) -> Any:
    for name in given if isinstance(given, dict) else ():
        if name not in names:
            raise ValueError(f"{name}: unknown {what}; {meant_or_known(name, names)}")
    return given
