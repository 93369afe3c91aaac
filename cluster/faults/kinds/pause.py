"""``pause``: validators are suspended."""

from __future__ import annotations

from typing import Literal

from cluster.faults.impairing_kind import ImpairingFault
from cluster.faults.impairment import PAUSE, Impairment
from cluster.faults.targets import Reach


class PauseFault(ImpairingFault):
    """A validator pauses: messages wait, timers are late."""

    COUNTED = PAUSE
    is_hard = stops = True

    kind: Literal["pause"]

    @property
    def impairment(self) -> Impairment:
        return Impairment(is_paused=True)

    def reach(self, acts_on_processes: bool = False, has_pods: bool = False) -> Reach:
        return "host" if acts_on_processes else "validator"
