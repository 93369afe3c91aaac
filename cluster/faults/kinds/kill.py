"""``kill``: hosts of validators are killed."""

from __future__ import annotations

from typing import Literal

from cluster.faults.downtime import DownFault
from cluster.faults.events import Way
from cluster.faults.targets import Reach
from cluster.scenario.sections.faults import Problem


class KillFault(DownFault):
    """A validator's host is killed and loses data that was not synced. It starts again from its disk.

    Ray restarts a live host's process at once; its validators wait for ``down_ms``.
    """

    is_hard = takes_all = True
    SHOWN = ("reorders",)
    DRAWN = DownFault.DRAWN | {"reorders": lambda drawing: drawing.random.random() < 0.3}

    kind: Literal["kill"]
    how: Literal["actor", "process", "pod", "node", "chaos-mesh"] = "actor"
    """On the live testnet: Ray kills the host's actor, or the process gets a SIGKILL without Ray. In Kubernetes also:
    the host's pod is deleted, or evicted from its node, which is cordoned meanwhile, or Chaos Mesh kills it."""
    reorders: bool = False
    """Its disk reorders writes: any part of the unsynced data may survive, not only the earliest."""

    @property
    def way(self) -> Way:
        return Way(self.how, self.down_ms, reorders=self.reorders)

    def reach(self, acts_on_processes: bool = False, has_pods: bool = False) -> Reach:
        return "node" if has_pods and self.way.is_of_pods else "host"

    @property
    def needs_kubernetes(self) -> bool:
        return self.how in ("pod", "node")

    @property
    def live_problem(self) -> Problem | None:
        if not self.reorders:
            return None
        return (
            ".reorders",
            "only the simulator can do this (--backend sim): on the live testnet the operating system keeps what a"
            " killed process wrote",
        )
