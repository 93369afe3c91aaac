"""The ``success`` section of a scenario: what a run must have reached."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cluster.sections import Count, Section


class SuccessSection(Section):
    """What a run must have reached to be conclusive, or to pass."""

    heights_compared: Count = 30
    transactions: Annotated[int, Field(ge=0)] = 50
    """Least number of committed load transactions."""
    fires: Annotated[int, Field(ge=0)] = 50
    stall_ms: Annotated[int, Field(ge=1)] = 30_000
    """Longest time without a final block, faults included."""
    recovery_ms: Annotated[int, Field(ge=1, le=3_600_000)] | None = None
    """Once the last fault is over, a quorum must finalise a new block within this; ``None`` follows from timeouts."""
