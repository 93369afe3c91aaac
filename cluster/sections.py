"""What the parts of a scenario are made of: a strict base and the types that several of them use."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

Milliseconds = Annotated[int, Field(ge=0, le=3_600_000)]
MOST_SECONDS: Final = 86_400
"""A run lasts a day at most."""
RunMilliseconds = Annotated[int, Field(ge=0, le=MOST_SECONDS * 1_000)]
"""A time of a run."""
MOST_HEIGHTS: Final = 1_000_000
Height = Annotated[int, Field(ge=1, le=MOST_HEIGHTS)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]


class Section(BaseModel):
    """A part of a scenario: unknown fields are refused, values are not coerced from other types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, serialize_by_alias=True)
