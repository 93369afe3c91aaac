"""What the parts of a scenario are made of: a strict base and the types that several of them use."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cluster.common.limits import MAX_HEIGHTS, MAX_SECONDS

Milliseconds = Annotated[int, Field(ge=0, le=3_600_000)]
RunMilliseconds = Annotated[int, Field(ge=0, le=MAX_SECONDS * 1_000)]
"""A time of a run."""
Height = Annotated[int, Field(ge=1, le=MAX_HEIGHTS)]
NAME_PATTERN: Final = r"^[a-z0-9][a-z0-9_-]{0,63}$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Share = Annotated[float, Field(ge=0, le=0.9)]
LinkMilliseconds = Annotated[float, Field(ge=0, le=60_000)]
BandwidthKbps = Annotated[int, Field(ge=1, le=100_000_000)]


class Section(BaseModel):
    """A part of a scenario: unknown fields are refused, values are not coerced from other types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, serialize_by_alias=True)

    OLD_NAMES: ClassVar[dict[str, str]] = {}
    """Fields that had another name in an earlier release, by that name: files with it are still read."""

    @model_validator(mode="before")
    @classmethod
    def _read_old_names(cls, given: Any) -> Any:
        if not isinstance(given, dict) or cls.OLD_NAMES.keys().isdisjoint(given):
            return given
        for old, new in cls.OLD_NAMES.items():
            if old in given and new in given:
                raise ValueError(f"{old} is the old name of {new}: give one of them")
        return {cls.OLD_NAMES.get(name, name): value for name, value in given.items()}


LINK_FIELDS: Final = ("latency_ms", "jitter_ms", "loss", "duplication", "reordering", "bandwidth_kbps")


class LinkChanges(Section):
    """What some links have in place of what ``links`` says."""

    latency_ms: LinkMilliseconds | None = None
    """In place of that of ``links``, or of the regions."""
    jitter_ms: LinkMilliseconds | None = None
    """In place of that of ``links``, as all that follows; drawn for each message between minus and plus this."""
    loss: Share | None = None
    """Share of messages that are lost."""
    duplication: Share | None = None
    """Share of messages that arrive twice."""
    reordering: Share | None = None
    """Share of messages that are held back."""
    bandwidth_kbps: BandwidthKbps | None = None
    """Kilobits a second that each direction carries."""

    @property
    def changes(self) -> dict[str, float]:
        """What it replaces, by field."""
        return {name: value for name in LINK_FIELDS if (value := getattr(self, name)) is not None}
