"""``slow_disk``: syncs take longer."""

from __future__ import annotations

from typing import Literal

from cluster.faults.impairing_kind import ImpairingFault
from cluster.faults.impairment import SLOW_DISK, Impairment
from cluster.scenario.sections.base import Duration


class SlowDiskFault(ImpairingFault):
    """Each sync takes longer."""

    COUNTED = SLOW_DISK
    SHOWN = ("sync_ms",)
    spoils_disks = True
    DRAWN = ImpairingFault.DRAWN | {"sync_ms": lambda drawing: drawing.random.randint(2, drawing.leader_timeout_ms)}

    kind: Literal["slow_disk"]
    sync_ms: Duration
    """Time of a sync."""

    @property
    def impairment(self) -> Impairment:
        return Impairment(sync_ms=self.sync_ms)
