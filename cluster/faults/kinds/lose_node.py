"""``lose_node``: a Ray node is lost with the validators on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cluster.faults.downtime import DownFault, Downtime
from cluster.faults.events import Observed, Way
from cluster.faults.targets import Reach
from cluster.scenario.sections.base import AS_MANY_AS_WITHSTOOD
from cluster.scenario.sections.faults import Stop
from cluster.scenario.sections.validators import ValidatorsSection
from consensus.types import fault_bound


class NodeLoss(Downtime):
    """Targets whose machine is lost: by a fault of the scenario, or by itself (:meth:`befall`)."""

    plan: LoseNodeFault
    _loss = ""
    """The reason of an unplanned loss; empty for a planned one."""

    def befall(self, indices: Sequence[int], reason: str) -> None:
        """Begin as an unplanned fault: the machine of these validators is already lost, for this reason."""
        self.targets = list(indices)
        self.record.targets = self.record.impaired = self.names_of(indices)
        self.hold_down()
        self._loss = reason
        self.note_loss(indices)
        self.record.took_effect = True
        self.come_into_force()

    def note_effect(self) -> None:
        if not self._loss:
            super().note_effect()

    def note_lost_disks(self) -> None:
        lost = [index for index in self.targets if self.plan.loses_disk or self.has_lost_disk(index)]
        self.record.lost_disks = self.names_of(lost)

    def conclude(self, seen: Observed) -> str:
        evidence = super().conclude(seen)
        return f"not planned: {self._loss}, {evidence}" if self._loss else evidence


class LoseNodeFault(DownFault):
    """The Ray node (machine) that runs a validator is lost for good, with all validators on it.

    They restart on another node: from their disks if those are kept, otherwise without state, by a snapshot.
    """

    COURSE = NodeLoss
    is_hard = takes_all = ends_nodes = True
    SHOWN = ("disks",)

    kind: Literal["lose_node"]
    how: Literal["ray", "process"] = "process"
    """On the live testnet: every process of the node gets a SIGKILL, or Ray ends the node gracefully."""
    disks: Literal["lost", "kept"] = "lost"
    """The disks of the node: lost with it, or on a volume that other nodes share. A live node that does not share the
    run's folder loses them anyway."""

    @property
    def way(self) -> Way:
        return Way(self.how, self.down_ms, ends_node=True)

    @property
    def loses_disk(self) -> bool:
        return self.disks == "lost"

    def reach(self, acts_on_processes: bool = False, has_pods: bool = False) -> Reach:
        return "node"

    def check_fits(self, validators: ValidatorsSection, stop: Stop) -> None:
        """The disks of no more validators than are tolerated may be lost, and ``f`` must be enough for a Ray node."""
        super().check_fits(validators, stop)
        most = fault_bound(validators.count)
        groups = [set(validators.on_same_ray_node(index)) for index in range(validators.count)]
        if self.keyword == AS_MANY_AS_WITHSTOOD:
            if min(map(len, groups)) > validators.withstood:
                raise ValueError(
                    f".target: every Ray node carries more than f ({validators.withstood}) validators, so the fault has"
                    f" no target; see validators.ray_nodes"
                )
        elif self.loses_disk:
            named = [] if self.keyword else [validators.names.index(name) for name in self.target]
            lost = len(set[int]().union(*(groups[index] for index in named))) or max(map(len, groups))
            if lost > most:
                raise ValueError(
                    f".target: {lost} of {validators.count} validators lose their disks with their nodes; at most"
                    f" {most} may, since the others must report the current view to them; see validators.ray_nodes, or"
                    f" give disks: kept"
                )
