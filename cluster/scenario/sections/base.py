"""The strict base of a scenario's sections, and types and checks that several of them use."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cluster.common.limits import MAX_HEIGHTS, MAX_SECONDS
from cluster.common.suggestions import unknown

Milliseconds = Annotated[int, Field(ge=0, le=3_600_000)]
RunMilliseconds = Annotated[int, Field(ge=0, le=MAX_SECONDS * 1_000)]
"""A time since the start of a run."""
Duration = Annotated[int, Field(ge=1, le=3_600_000)]
ClockSpeed = Annotated[float, Field(ge=0.01, le=100)]
Height = Annotated[int, Field(ge=1, le=MAX_HEIGHTS)]
NAME_PATTERN: Final = r"^[a-z0-9][a-z0-9_-]{0,63}$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Share = Annotated[float, Field(ge=0, le=0.9)]
LinkMilliseconds = Annotated[float, Field(ge=0, le=60_000)]
BandwidthKbps = Annotated[int, Field(ge=1, le=100_000_000)]


class Section(BaseModel):
    """A section of a scenario: unknown fields are rejected, values of other types are not converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, serialize_by_alias=True)

    OLD_NAMES: ClassVar[dict[str, str]] = {}
    """Field names of earlier releases, which are still accepted, with their new names."""

    @model_validator(mode="before")
    @classmethod
    def _read_old_names(cls, given: Any) -> Any:
        if not isinstance(given, dict) or cls.OLD_NAMES.keys().isdisjoint(given):
            return given
        for old, new in cls.OLD_NAMES.items():
            if old in given and new in given:
                raise ValueError(f"{old} is the old name of {new}: give one of them")
        return {cls.OLD_NAMES.get(name, name): value for name, value in given.items()}


def kind_of(model: type[BaseModel]) -> str:
    """The kind of a model that is distinguished by ``kind``, as scenarios write it."""
    name: str = model.model_fields["kind"].annotation.__args__[0]  # type: ignore[union-attr]
    return name


def check_kind(given: Any, what: str, kinds: Collection[str]) -> Any:
    """Check the ``kind`` of a given value and return the value. Raises :class:`ValueError` for an unknown kind.

    Without this check, pydantic's error would list all models.
    """
    if isinstance(given, dict):
        if "kind" not in given:
            raise ValueError(f"kind: is missing; known: {', '.join(kinds)}")
        if given["kind"] not in kinds:
            raise ValueError(f"kind: {unknown(what, given['kind'], kinds)}")
    return given


LEADER: Final = "leader"
RANDOM: Final = "random"
AS_MANY_AS_WITHSTOOD: Final = "f"
KEYWORDS: Final = (LEADER, RANDOM, AS_MANY_AS_WITHSTOOD)
"""Keywords that a fault may have as its target, in place of validators' names."""


def refuse_repeated(field: str, names: Sequence[str]) -> None:
    """Raise :class:`ValueError` if a validator is named twice."""
    if len(set(names)) < len(names):
        raise ValueError(f"{field}: a validator is named twice")


LINK_FIELDS: Final = ("latency_ms", "jitter_ms", "loss", "duplication", "reordering", "bandwidth_kbps")


class LinkChanges(Section):
    """Values of some links that override those of ``links``."""

    latency_ms: LinkMilliseconds | None = None
    """Overrides the latency of ``links`` or of the regions."""
    jitter_ms: LinkMilliseconds | None = None
    """Random delay per message, between minus and plus this; overrides that of ``links``, like all fields below."""
    loss: Share | None = None
    """Share of messages that are lost."""
    duplication: Share | None = None
    """Share of messages that arrive twice."""
    reordering: Share | None = None
    """Share of messages that are held back."""
    bandwidth_kbps: BandwidthKbps | None = None
    """Kilobits per second of each direction."""

    @property
    def changes(self) -> dict[str, float]:
        """The given values, by field."""
        return {name: value for name in LINK_FIELDS if (value := getattr(self, name)) is not None}
