"""``wipe``: validators lose their disks."""

from __future__ import annotations

from typing import Literal

from cluster.faults.downtime import DiskLossFault


class WipeFault(DiskLossFault):
    """A validator is killed and loses its disk; it starts again without state and joins by a snapshot."""

    kind: Literal["wipe"]
