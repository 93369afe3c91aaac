"""The drills: the core's, and those of installed packages."""

from __future__ import annotations

from typing import Final

from cluster.common.plugins import DRILLS as GROUP
from cluster.common.plugins import load, plugins
from cluster.tools.drills.base import Drill
from cluster.tools.drills.kinds.byzantine import Byzantine
from cluster.tools.drills.kinds.divergence import Divergence
from cluster.tools.drills.kinds.join import Join
from cluster.tools.drills.kinds.node_loss import NodeLoss
from cluster.tools.drills.kinds.outage import Outage
from cluster.tools.drills.kinds.partition import Partition
from cluster.tools.drills.kinds.reorg import Reorg
from cluster.tools.drills.kinds.restart_all import RestartAll
from cluster.tools.drills.kinds.storm import Storm
from cluster.tools.drills.kinds.upgrade import Upgrade

DRILLS: Final[dict[str, type[Drill]]] = {
    drill.name: drill
    for drill in (Reorg, Outage, Storm, Partition, RestartAll, Join, NodeLoss, Byzantine, Upgrade, Divergence)
} | {name: load(point) for name, point in plugins(GROUP).items()}
"""All drills, keyed by name."""
