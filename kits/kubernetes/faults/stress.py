"""``slow_execution`` by Chaos Mesh: busy threads take the processors of a host's pod, so that its jobs take longer.

Chaos Mesh acts on pods, so a host is stressed only if the fault hits all validators that it carries. Otherwise, or
without Chaos Mesh, jobs of the executor take the fault's ``job_ms``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

import msgspec

from cluster.faults.events import FaultCall
from cluster.faults.impairment import Impairment, Stress
from cluster.faults.link_effects import Seen
from cluster.live.means import MeansPort
from kits.kubernetes.client.errors import ClusterError
from kits.kubernetes.faults import chaos
from kits.kubernetes.faults.chaos import NotByPods
from kits.kubernetes.faults.leftovers import Leftovers

TRY_EVERY_MS: Final = 250
"""Interval of repeated requests to Kubernetes."""
IN_FORCE_WITHIN_MS: Final = 15_000
"""Time that Chaos Mesh gets to begin or to end faults of pods."""
TRIES: Final = IN_FORCE_WITHIN_MS // TRY_EVERY_MS
ALL_INJECTED: Final = "AllInjected"
"""The condition of an object of Chaos Mesh that is in force on all of its pods."""


class LeftStress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of :class:`ProcessorStress`."""

    wanted: dict[int, Stress]
    names: dict[int, str]
    seen: dict[int, Seen]


class ChaosCluster(Protocol):
    """The parts of a cluster and of a run that :class:`ProcessorStress` needs."""

    leftovers: Leftovers
    notice: Callable[[str], None]
    port: MeansPort

    def chaos_problem(self) -> str:
        """Why Chaos Mesh cannot be used; empty if it can."""

    def new_name(self) -> str:
        """A new name for an object of Chaos Mesh."""

    def again(self, call: Callable[[], None]) -> None:
        """Call it after :data:`TRY_EVERY_MS`."""


class ProcessorStress:
    """Stresses the processors of hosts of one run by Chaos Mesh, and keeps track of these hosts."""

    def __init__(self, hosts: Sequence[int], cluster: ChaosCluster) -> None:
        """``hosts`` has the host of each validator."""
        self._hosts = list(hosts)
        self._cluster = cluster
        self._wanted: dict[int, Stress] = {}
        """Wanted stress, keyed by validator."""
        self._names: dict[int, str] = {}
        """Names of the Chaos Mesh objects, keyed by the host that each stresses."""
        self._seen: dict[int, Seen] = {}
        """Result of the last attempt to stress a host by Chaos Mesh, keyed by host."""

    @property
    def state(self) -> LeftStress:
        """The state for another driver that takes the run over."""
        return LeftStress(self._wanted, self._names, self._seen)

    def take_over(self, left: LeftStress) -> None:
        """Restore the state that another driver left."""
        self._wanted, self._names, self._seen = left.wanted, left.names, left.seen

    def set(self, impairments: Mapping[int, Impairment], then: FaultCall) -> Callable[[], None]:
        """Begin and end the stress of hosts, as the impairments of their validators say.

        Returns what to call once those that the hosts must do themselves (:meth:`left_of`) are in force. It makes the
        call ``then`` once the stress is in force, too.
        """
        for index, each in impairments.items():
            self._wanted.pop(index, None)
            if each.stress is not None:
                self._wanted[index] = each.stress
        begun, ended = [], list[str]()
        for host in sorted({self._hosts[index] for index in impairments}):
            mates = [index for index, each in enumerate(self._hosts) if each == host]
            wanted = [self._wanted[index] for index in mates if index in self._wanted]
            if wanted and host not in self._seen:
                is_begun = host in self._names  # by another driver
                begun += [host] if is_begun else self._begin(host, wanted, is_whole=len(wanted) == len(mates))
            elif not wanted and host in self._names:
                ended.append(self._names.pop(host))
                self._cluster.leftovers.delete(ended[-1])
        if not begun and not ended:
            return partial(self._cluster.port.make, then)
        return partial(self._look, begun, ended, then)

    def left_of(self, impairments: Mapping[int, Impairment]) -> dict[int, Impairment]:
        """What the hosts themselves must do of impairments."""
        return {index: self._left(self._hosts[index], each) for index, each in impairments.items()}

    def seen(self, indices: Sequence[int], otherwise: Seen) -> Seen:
        """The observed effect on validators of a fault that ends now. ``otherwise`` is the effect by the executor."""
        found = [self._seen.pop(host) for host in sorted({self._hosts[index] for index in indices} & self._seen.keys())]
        if not found:
            return otherwise
        by_chaos = [each for each in found if each != _BY_THE_EXECUTOR]
        if len(by_chaos) < len(found):
            told = f"{otherwise.evidence} by the validators' executor, not Chaos Mesh"
            by_chaos.append(Seen(otherwise.took_effect, told))
        return Seen(all(each.took_effect for each in by_chaos), "; ".join(each.evidence for each in by_chaos))

    def _begin(self, host: int, wanted: Sequence[Stress], is_whole: bool) -> list[int]:
        """Begin the stress of a host. Returns the host in a list if Chaos Mesh is to stress it."""
        try:
            if not is_whole:
                raise NotByPods(f"host {host} carries validators that the fault does not hit")
            if problem := self._cluster.chaos_problem():
                raise NotByPods(problem)
            name, threads = self._cluster.new_name(), max(each.threads for each in wanted)
            self._cluster.leftovers.create(
                chaos.STRESS, chaos.stress_chaos(name, self._cluster.leftovers.deployment, host, threads)
            )
        except (ClusterError, NotByPods) as error:
            self._seen[host] = _BY_THE_EXECUTOR
            self._cluster.notice(f"slow_execution of host {host}: by the validators' executor, not Chaos Mesh: {error}")
            return []
        self._names[host] = name
        return [host]

    def _left(self, host: int, impairment: Impairment) -> Impairment:
        """The part of an impairment that the host itself must do."""
        stress = impairment.stress
        if stress is None or host not in self._names:
            return replace(impairment, stress=None)
        return replace(impairment, job_ms=stress.job_ms, stress=None)

    def _look(self, begun: list[int], ended: list[str], then: FaultCall, tries_left: int = TRIES) -> None:
        """Check whether Chaos Mesh has done its part; go on if so, or if it takes too long."""
        left = []
        for host in begun:
            name = self._names.get(host)
            if name is not None and (self._cluster.leftovers.conditions_of(chaos.STRESS, name) or {}).get(ALL_INJECTED):
                self._seen[host] = Seen(True, f"host {host} was stressed by Chaos Mesh (stresschaos {name})")
            elif name is not None:
                left.append(host)
        staying = [name for name in ended if self._cluster.leftovers.conditions_of(chaos.STRESS, name) is not None]
        if (left or staying) and tries_left > 0:
            self._cluster.again(partial(self._look, left, staying, then, tries_left - 1))
            return
        for host in left:
            told = f"Chaos Mesh did not put stresschaos {self._names[host]} in force on host {host}"
            self._seen[host] = Seen(False, told)
        for name in staying:
            self._cluster.notice(f"stresschaos {name} is deleted, but Chaos Mesh has not taken it back yet")
        self._cluster.port.make(then)


_BY_THE_EXECUTOR: Final = Seen(False, "")
"""Placeholder for the result of a host whose executor does the fault in place of Chaos Mesh."""
