"""``flap``: the links between two sides come and go."""

from __future__ import annotations

from typing import Literal

from cluster.faults.events import GoOn
from cluster.faults.kind import Cue
from cluster.faults.link_kind import BothWays, OnLinks
from cluster.scenario.sections.base import Duration


class Flapping(OnLinks):
    """Links that come and go."""

    plan: FlapFault
    _are_cut = True
    _is_waiting = False
    """Whether the links stay as they are for a while; otherwise they are being cut or mended."""

    def come_into_force(self) -> None:
        super().come_into_force()
        self.go_on(GoOn(self.key))

    def go_on(self, cue: Cue) -> None:
        """The links are cut, or mended, everywhere: wait. The wait is over: mend them, or cut them."""
        if self.is_over:
            return
        if self._is_waiting:
            self._are_cut = not self._are_cut
            self.stage.set_links(self.key, self.effect if self._are_cut else None, GoOn(self.key))
        else:
            wait_ms = self.plan.off_ms if self._are_cut else self.plan.on_ms
            self.stage.later(wait_ms, f"fault {self.number} flaps", GoOn(self.key))
        self._is_waiting = not self._is_waiting


class FlapFault(BothWays):
    """The links between two sides are cut in both directions, work, are cut again, and so on. All other links work."""

    COURSE = Flapping
    SHOWN = ("off_ms", "on_ms")
    EXAMPLE = {"from": ["validator-1"], "to": ["validator-2"], "off_ms": 200, "on_ms": 150, "for_ms": 2_000}

    kind: Literal["flap"]
    off_ms: Duration
    """How long the links are cut each time. It begins with that."""
    on_ms: Duration
    """How long they work each time."""
