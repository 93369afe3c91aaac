"""The ``success`` section of a scenario: what a run must have reached.

Criteria are data: bounds of the run's figures (``metrics``) and of single samples of them (``samples``), of which a
share may be out of bounds. What the names mean is in :mod:`cluster.scenario.sections.metric_names`; the check
``criteria`` judges them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from cluster.common.suggestions import meant_or_known
from cluster.scenario.sections.base import Height, Section
from cluster.scenario.sections.metric_names import METRICS, SAMPLES

Figure = Annotated[float, Field(allow_inf_nan=False)]
BreachShare = Annotated[float, Field(ge=0, lt=1)]


class Criterion(Section):
    """Bounds of a figure; at least one of them."""

    at_least: Figure | None = None
    """The least value that is right."""
    at_most: Figure | None = None
    """The greatest value that is right."""

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
    def words(self) -> str:
        """The bounds in words."""
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        return " and ".join(f"{word} {value:,.15g}" for word, value in bounds if value is not None)


class SampleCriterion(Criterion):
    """Bounds of each single sample; a share of them may be out of bounds."""

    breach_share: BreachShare = 0.0
    """Which share of the samples may be out of bounds."""


class SuccessSection(Section):
    """What a run must have reached to be conclusive, or to pass."""

    heights_compared: Height = 30
    """Heights at which all validators' blocks and state roots were compared."""
    transactions: Annotated[int, Field(ge=0)] = 50
    """Least number of committed load transactions."""
    fires: Annotated[int, Field(ge=0)] = 50
    """Least number of timers that fired."""
    stall_ms: Annotated[int, Field(ge=1)] = 30_000
    """Longest time without a final block, faults included."""
    recovery_ms: Annotated[int, Field(ge=1, le=3_600_000)] | None = None
    """Once the last fault is over, a quorum must finalise a new block within this; ``None`` follows from timeouts."""
    metrics: dict[str, Criterion] = {}
    """Bounds of the run's figures, by their names in ``result.json``."""
    samples: dict[str, SampleCriterion] = {}
    """Bounds of single blocks, fires or heights, by the name of what is measured of each."""

    def of_part(self, heights: int, of: int) -> SuccessSection:
        """What so many of all heights must have shown: the same part, and not nothing where anything was asked."""
        counts = ("heights_compared", "transactions", "fires")
        return self.model_copy(update={name: -(-getattr(self, name) * max(1, heights) // of) for name in counts})

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
