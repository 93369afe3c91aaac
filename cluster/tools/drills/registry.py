"""The drills: the core's, and those of installed packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from cluster.common.errors import BadInput
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


def _installed() -> Iterator[tuple[str, type[Drill]]]:
    """The drills of installed packages. A broken one is told, and takes no other away."""
    for name, point in plugins(GROUP).items():
        try:
            yield name, load(point)
        except BadInput as error:
            print(f"stampede: {error}", file=sys.stderr)


DRILLS: Final[dict[str, type[Drill]]] = {
    drill.name: drill
    for drill in (Reorg, Outage, Storm, Partition, RestartAll, Join, NodeLoss, Byzantine, Upgrade, Divergence)
}
"""All drills, keyed by name: those of the core, which none replaces, and those of installed packages."""
DRILLS.update((name, drill) for name, drill in _installed() if name not in DRILLS)
