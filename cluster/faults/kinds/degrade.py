"""``degrade``: links are worse for a while."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, Self

from pydantic import model_validator

from cluster.faults.kind import Drawing
from cluster.faults.link_effects import LinkEffect
from cluster.faults.link_kind import Directed
from cluster.scenario.sections.base import LINK_FIELDS, LinkChanges
from cluster.scenario.sections.faults import Facts

SHARES: Final = {"loss", "duplication", "reordering"}
"""Fields that are a share of the messages."""


class DegradeFault(LinkChanges, Directed):
    """Links are worse for a while: the given values override those of the scenario."""

    FACTS = Facts(drops_messages=True, slows_progress=True)
    SHOWN = LINK_FIELDS

    kind: Literal["degrade"]

    @model_validator(mode="after")
    def _something_changes(self) -> Self:
        if not self.changes:
            raise ValueError(f"latency_ms: give at least one of {', '.join(LINK_FIELDS)}")
        return self

    def effect(self, names: Sequence[str]) -> LinkEffect:
        return self.hitting([self.places(names)], self.changes)

    @property
    def warning(self) -> str | None:
        if self.changes.keys() <= SHARES and not any(self.changes.values()):
            return "only removes losses, duplicates or reordering, which has no observable effect"
        return None

    @classmethod
    def draw(cls, drawing: Drawing) -> dict[str, Any]:
        random = drawing.random
        drawn = {
            "latency_ms": drawing.latency_ms * random.uniform(1.5, 20),
            "loss": random.uniform(0.05, 0.6),
            "duplication": random.uniform(0.1, 0.8),
            "reordering": random.uniform(0.1, 0.8),
            "bandwidth_kbps": random.randint(500, 5_000),
        }
        chosen = {name: drawn[name] for name in random.sample(list(drawn), random.randint(1, 3))}
        return {**chosen, "for_ms": drawing.lasting_ms()}
