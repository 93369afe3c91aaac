"""``disk_full``: a validator's disk has no space."""

from __future__ import annotations

from typing import Literal

from cluster.disks import NO_SPACE, Trap
from cluster.faults.downtime import TrapFault


class DiskFullFault(TrapFault):
    """A validator's disk is full at its next write: it stops, and starts again when there is space."""

    kind: Literal["disk_full"]

    @property
    def trap(self) -> Trap:
        return Trap("write")

    def is_cause(self, reason: str) -> bool:
        return super().is_cause(reason) or NO_SPACE in reason
