"""The drills there are."""

from __future__ import annotations

from typing import Final

from cluster.drills.base import Drill
from cluster.drills.byzantine import Byzantine
from cluster.drills.divergence import Divergence
from cluster.drills.join import Join
from cluster.drills.outage import Outage
from cluster.drills.partition import Partition
from cluster.drills.reorg import Reorg
from cluster.drills.restart_all import RestartAll
from cluster.drills.storm import Storm
from cluster.drills.upgrade import Upgrade

ALL: Final[tuple[type[Drill], ...]] = (
    Reorg,
    Outage,
    Storm,
    Partition,
    RestartAll,
    Join,
    Byzantine,
    Upgrade,
    Divergence,
)
DRILLS: Final = {drill.name: drill for drill in ALL}
"""By name."""
