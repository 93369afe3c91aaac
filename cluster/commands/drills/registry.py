"""The drills: the core's, and those of installed packages."""

from __future__ import annotations

from typing import Any, Final

from cluster.commands.drills.base import Drill
from cluster.commands.drills.kinds.byzantine import Byzantine
from cluster.commands.drills.kinds.divergence import Divergence
from cluster.commands.drills.kinds.join import Join
from cluster.commands.drills.kinds.node_loss import NodeLoss
from cluster.commands.drills.kinds.outage import Outage
from cluster.commands.drills.kinds.partition import Partition
from cluster.commands.drills.kinds.reorg import Reorg
from cluster.commands.drills.kinds.restart_all import RestartAll
from cluster.commands.drills.kinds.storm import Storm
from cluster.commands.drills.kinds.upgrade import Upgrade
from cluster.common.plugins import DRILLS as GROUP
from cluster.common.plugins import load_all
from validator.primitives.offered import expect_class

DRILLS: Final[dict[str, type[Drill]]] = {
    drill.name: drill
    for drill in (Reorg, Outage, Storm, Partition, RestartAll, Join, NodeLoss, Byzantine, Upgrade, Divergence)
}
"""All drills, keyed by name: those of the core, which none replaces, and those of installed packages."""


def _add(found: Any) -> None:
    drill = expect_class(found, Drill)  # type: ignore[type-abstract]
    name, _summary = drill.name, drill.summary
    if name in DRILLS:
        raise ValueError(f"there is a drill {name} already")
    DRILLS[name] = drill


load_all(GROUP, _add)
