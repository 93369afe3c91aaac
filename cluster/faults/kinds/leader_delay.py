"""``leader_delay``: what a leader sends is late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cluster.faults.link_effects import LinkEffect
from cluster.faults.link_kind import LinkFault
from cluster.scenario.sections.base import LEADER, Duration
from cluster.scenario.sections.faults import BaseFault, Facts
from cluster.scenario.sections.validators import ValidatorsSection


class LeaderDelayFault(LinkFault):
    """Messages of the current view's leader are delayed."""

    FACTS = Facts(slows_progress=True)
    SHOWN = ("delay_ms",)
    DRAWN = {
        "delay_ms": lambda drawing: drawing.random.randint(1, drawing.leader_timeout_ms),
        "for_ms": lambda drawing: drawing.lasting_ms(),
    }

    kind: Literal["leader_delay"]
    delay_ms: Duration
    """The additional delay."""

    @property
    def whom(self) -> str:
        return LEADER

    def effect(self, names: Sequence[str]) -> LinkEffect:
        return self.hitting([], leader_delay_ms=self.delay_ms)

    def impaired(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(names)

    def aim(self, validators: ValidatorsSection, given: BaseFault) -> str:
        return "the current leader"
