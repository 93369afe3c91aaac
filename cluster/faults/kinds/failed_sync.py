"""``failed_sync``: a sync of a validator's disk fails."""

from __future__ import annotations

from typing import Literal

from cluster.disks import Trap
from cluster.faults.downtime import TrapFault


class FailedSyncFault(TrapFault):
    """The next sync of a validator fails: it stops, loses the data of that sync, and starts again."""

    SHOWN = ("of",)

    kind: Literal["failed_sync"]
    of: Literal["journal", "blocks", "state"] | None = None
    """The files: the journal, the archive of final blocks or the state's log; by default the first one synced."""

    @property
    def trap(self) -> Trap:
        return Trap("sync", self.of or "")
