"""Performs faults of a live run by Kubernetes or Chaos Mesh, or by a substitute.

A pod that carries a host is deleted (``how: pod``), evicted from its node, which gets no new pod until the fault's down
time is over (``how: node``), or killed by Chaos Mesh (``how: chaos-mesh``). The pod's Ray node is lost then, with
its disk kept. Faults of links with ``how: chaos-mesh`` become objects of Chaos Mesh (:mod:`.chaos`). A fault that Chaos
Mesh cannot do, or a cluster without Chaos Mesh, gets a substitute, and a notice and the fault's evidence say so.

What a fault changes in the cluster is undone when the fault is over, and at the end of the run (:mod:`.leftovers`).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, assert_never

import msgspec

from cluster.common.errors import BadInput
from cluster.faults.events import FaultCall, Way
from cluster.faults.impairment import Impairment
from cluster.faults.kind import CHAOS_MESH, FaultKind
from cluster.faults.link_effects import LinkEffect, Seen
from cluster.live.means import Means
from cluster.scenario import Scenario
from kits.kubernetes.client.errors import ClusterError
from kits.kubernetes.faults import chaos
from kits.kubernetes.faults.chaos import NotByPods
from kits.kubernetes.faults.leftovers import LeftLeftovers, Leftovers, take_back
from kits.kubernetes.faults.pods import Eviction, Pod, Pods, why_not_in_a_pod
from kits.kubernetes.faults.stress import (
    ALL_INJECTED,
    TRIES,
    TRY_EVERY_MS,
    LeftStress,
    ProcessorStress,
)

TOKEN_LETTERS: Final = 6


class Uncordon(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call that uncordons a Kubernetes node, so that it carries new pods again."""

    node: str


class Evict(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call that tries again to evict a pod, which a disruption budget has forbidden so far."""

    host: int
    pod: Pod
    tries_left: int


class AwaitKill(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call that looks whether Chaos Mesh has killed a pod."""

    host: int
    pod: Pod
    name: str
    """Name of the Chaos Mesh object."""
    tries_left: int


Call = Uncordon | Evict | AwaitKill


class LeftMeans(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of :class:`KubernetesMeans`."""

    leftovers: LeftLeftovers
    token: str
    count: int
    links: dict[int, list[str]]
    seen: dict[int, Seen]
    otherwise: dict[int, str]
    stress: LeftStress
    words: dict[int, str]
    calls: list[tuple[float, Call]]
    """Scheduled calls, each with its time. Those that wait for Chaos Mesh follow from the loop's orders."""


class KubernetesMeans(Means):
    """Performs the faults of one run that use Kubernetes or Chaos Mesh."""

    def __init__(
        self, scenario: Scenario, notice: Callable[[str], None], note_leftovers: Callable[[Mapping[str, Any]], None]
    ) -> None:
        self.leftovers = Leftovers(None, notice, note_leftovers)
        section = scenario.validators
        self._hosts = [section.host_of(index) for index in range(section.count)]
        self._network = scenario.network
        self.notice = notice
        self._token = uuid.uuid4().hex[:TOKEN_LETTERS]
        """Part of the names of all objects, unique to this run of the deployment."""
        self._count = 0
        self._links: dict[int, list[str]] = {}
        """Objects of the link faults that Chaos Mesh does, keyed by fault."""
        self._seen: dict[int, Seen] = {}
        """Results of the link faults that Chaos Mesh does, or did, keyed by fault."""
        self._otherwise: dict[int, str] = {}
        """Why the transport does a link fault in place of Chaos Mesh, keyed by fault."""
        self.stress = ProcessorStress(self._hosts, self)
        self._words: dict[int, str] = {}
        """How each host was last taken down, if the fault's plan does not say that; keyed by host."""
        self._calls: list[tuple[float, Call]] = []
        """Scheduled calls, each with its time."""

    @property
    def has_pods(self) -> bool:
        return self.leftovers.api is not None

    def prepare(self, faults: Sequence[FaultKind]) -> None:
        """Connect to the API if a fault uses it; if faults only prefer it, only if this process can use it.

        Raises :class:`BadInput` if a fault needs the API, and this process cannot use it.
        """
        needing = [(position, fault) for position, fault in enumerate(faults) if fault.needs_kubernetes]
        if not needing and not any(fault.prefers_chaos_mesh for fault in faults):
            return
        problem = why_not_in_a_pod(os.environ)
        api = None if problem else Pods.of_this_pod()
        if needing and api is not None:
            try:
                api.check()
            except ClusterError as error:
                problem = str(error)
        if needing and problem:
            position, fault = needing[0]
            raise BadInput(
                f"faults[{position}].how: {getattr(fault, 'how', '')}: only a driver in a pod with access to the"
                " Kubernetes API can do this (stampede k8s run; for a fault that is added later with"
                f" kubernetes.inject): {problem}; expected actor or process elsewhere"
            )
        self.leftovers.api = api or self.leftovers.api

    # --- from driver to driver ----------------------------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        left = LeftMeans(
            self.leftovers.state,
            self._token,
            self._count,
            self._links,
            self._seen,
            self._otherwise,
            self.stress.state,
            self._words,
            self._calls,
        )
        found: dict[str, Any] = msgspec.to_builtins(left, str_keys=True)
        return found

    def take_over(self, left: dict[str, Any]) -> None:
        if not left:
            return
        found = msgspec.convert(left, LeftMeans, strict=False)
        self.leftovers.take_over(found.leftovers)
        self._token, self._count = found.token, found.count
        self._links, self._seen, self._otherwise = found.links, found.seen, found.otherwise
        self.stress.take_over(found.stress)
        self._words, self._calls = found.words, found.calls

    def go_on(self) -> None:
        calls, self._calls = self._calls, []
        for at_ms, call in calls:
            self._at(at_ms, call)

    def note(self) -> None:
        self.leftovers.say()

    def close(self) -> None:
        self.leftovers.close()

    @staticmethod
    def take_back(facts: Mapping[str, Any], notice: Callable[[str], None]) -> None:
        take_back(notice, **facts)

    # --- calls to come ------------------------------------------------------------------------------------------------

    def later(self, delay_ms: int, call: Call) -> None:
        """Make a call after a delay."""
        self._at(self.port.agenda.now_ms + delay_ms, call)

    def again(self, call: Callable[[], None]) -> None:
        """Call it after :data:`~kits.kubernetes.faults.stress.TRY_EVERY_MS`."""
        self.port.agenda.at(self.port.agenda.now_ms + TRY_EVERY_MS, call)

    def _at(self, at_ms: float, call: Call) -> None:
        self._calls.append((at_ms, call))
        self.port.agenda.at(at_ms, partial(self._perform, at_ms, call))

    def _perform(self, at_ms: float, call: Call) -> None:
        self._calls.remove((at_ms, call))
        match call:
            case Uncordon(node):
                self.leftovers.uncordon(node)
            case Evict(host, pod, tries_left):
                self._evict(host, pod, tries_left)
            case AwaitKill(host, pod, name, tries_left):
                self._await_kill(host, pod, name, tries_left)
            case _:
                assert_never(call)

    # --- pods ---------------------------------------------------------------------------------------------------------

    def take(self, host: int, way: Way) -> None:
        """Take down the pod of a host. Its Ray node counts as lost at once, or when Kubernetes permits the eviction."""
        api = self.leftovers.api
        assert api is not None
        try:
            pod = api.pod_of(host)
            if way.how == "node":
                self._drain(host, pod, way.down_ms)
                return
            words = f"pod {pod.name} was deleted"
            if way.how == CHAOS_MESH:
                if not (problem := self.chaos_problem()):
                    self._kill_by_chaos(host, pod, way.down_ms)
                    return
                words += f", not killed by Chaos Mesh: {problem}"
            api.delete(pod)
        except ClusterError as error:
            self._fail(host, str(error))
        else:
            self._lose(host, words)

    def note_signal(self, host: int, way: Way) -> None:
        """Note that a host gets a signal in place of a kill by Chaos Mesh."""
        if way.how == CHAOS_MESH:
            self._words[host] = f"killed by a signal, not by Chaos Mesh: {self.chaos_problem()}"

    def describe(self, hosts: Iterable[int]) -> list[str]:
        """How hosts were last taken down, in words, if the fault's plan does not say that. Each is returned once."""
        return [words for host in hosts if (words := self._words.pop(host, None)) is not None]

    def _drain(self, host: int, pod: Pod, down_ms: int) -> None:
        if self.leftovers.cordon(pod.node):
            self.later(down_ms, Uncordon(pod.node))
        self._evict(host, pod, (down_ms - 1) // TRY_EVERY_MS, is_first=True)

    def _evict(self, host: int, pod: Pod, tries_left: int, *, is_first: bool = False) -> None:
        api = self.leftovers.api
        assert api is not None
        try:
            answer = api.evict(pod)
        except ClusterError as error:
            self._fail(host, str(error))
            return
        if answer is Eviction.BEGUN or (answer is Eviction.GONE and is_first):
            self._lose(host, f"pod {pod.name} was evicted from {pod.node}")
        elif answer is Eviction.GONE:
            self._fail(host, f"pod {pod.name} went before it could be evicted; the host may be in another one")
        elif tries_left > 0:
            self.later(TRY_EVERY_MS, Evict(host, pod, tries_left - 1))
        else:
            self._fail(host, f"a disruption budget kept pod {pod.name} on {pod.node} for the whole down time")

    def _kill_by_chaos(self, host: int, pod: Pod, down_ms: int) -> None:
        name = self.new_name()
        self.leftovers.create(chaos.POD, chaos.pod_chaos(name, self.leftovers.deployment, host))
        self._await_kill(host, pod, name, (down_ms - 1) // TRY_EVERY_MS)

    def _await_kill(self, host: int, pod: Pod, name: str, tries_left: int) -> None:
        if self._is_injected(chaos.POD, name):
            self._lose(host, f"Chaos Mesh killed pod {pod.name} (podchaos {name})")
        elif tries_left > 0:
            self.later(TRY_EVERY_MS, AwaitKill(host, pod, name, tries_left - 1))
            return
        else:
            self._fail(host, f"Chaos Mesh did not kill pod {pod.name} within the down time (podchaos {name})")
        self.leftovers.delete(name)

    def _lose(self, host: int, words: str) -> None:
        self._words[host] = words
        self.port.lose_node(host, words)

    def _fail(self, host: int, problem: str) -> None:
        self._words[host] = f"host {host} was not taken down: {problem}"
        self.notice(self._words[host])

    # --- links --------------------------------------------------------------------------------------------------------

    def set_links(
        self, faults: Mapping[int, LinkEffect], then: FaultCall
    ) -> tuple[dict[int, LinkEffect], Callable[[], None]]:
        """Make Chaos Mesh begin and end link faults, so that exactly ``faults`` are in force.

        Returns the link faults that the transport must do, and what to call once those are in force. It makes the
        call ``then`` once the faults of Chaos Mesh are in force, too.
        """
        ended = [name for key in [*self._links] if key not in faults for name in self._links.pop(key)]
        begun = [key for key in self._links if key not in self._seen]  # by another driver
        for key, effect in faults.items():
            if effect.prefers_chaos_mesh and key not in self._links and key not in self._otherwise:
                try:
                    self._links[key] = self._begin_links(effect)
                    self._seen.pop(key, None)  # a fault that comes and goes begins again
                    begun.append(key)
                except (ClusterError, NotByPods) as error:
                    self._otherwise[key] = str(error)
                    self.notice(f"{effect.what}: by the validators' transport, not Chaos Mesh: {error}")
        for name in ended:
            self.leftovers.delete(name)
        others = self.links_of_hosts(faults)
        if not begun and not ended:
            return others, partial(self.port.make, then)
        return others, partial(self._await_links, begun, ended, then)

    def links_of_hosts(self, faults: Mapping[int, LinkEffect]) -> dict[int, LinkEffect]:
        return {key: effect for key, effect in faults.items() if key not in self._links}

    def seen_on_links(self, key: int, effect: LinkEffect) -> Seen:
        """The observed effect of a link fault. The evidence mentions Chaos Mesh if that was meant to do the fault."""
        if key in self._seen:
            return self._seen[key]
        seen = effect.seen(self.port.link_counts(key))
        if key not in self._otherwise:
            return seen
        return Seen(seen.took_effect, f"{seen.evidence} by the validators' transport, not Chaos Mesh")

    def set_stress(
        self, impairments: Mapping[int, Impairment], then: FaultCall
    ) -> tuple[dict[int, Impairment], Callable[[], None]]:
        call = self.stress.set(impairments, then)
        return self.stress.left_of(impairments), call

    def impairments_of_hosts(self, impairments: Mapping[int, Impairment]) -> dict[int, Impairment]:
        return self.stress.left_of(impairments)

    def seen_stress(self, indices: Sequence[int], otherwise: Seen) -> Seen:
        return self.stress.seen(indices, otherwise)

    def _begin_links(self, effect: LinkEffect) -> list[str]:
        """Create the objects of a link fault. Raises :class:`ClusterError`, and :class:`NotByPods`."""
        if problem := self.chaos_problem():
            raise NotByPods(problem)
        found = chaos.by_pods(effect, self._network, self._hosts)
        names: list[str] = []
        try:
            for each in chaos.network_chaos(self.new_name(), self.leftovers.deployment, effect, found):
                self.leftovers.create(chaos.NETWORK, each)
                names.append(each["metadata"]["name"])
        except ClusterError:
            for name in names:
                self.leftovers.delete(name)
            raise
        return names

    def _await_links(self, begun: list[int], ended: list[str], then: FaultCall, tries_left: int = TRIES) -> None:
        """Look whether Chaos Mesh has put link faults in force, by their keys, and removed ended objects."""
        for key in begun:
            names = self._links.get(key, [])
            if names and all(self._is_injected(chaos.NETWORK, name) for name in names):
                self._seen[key] = Seen(True, f"in force on all pods by Chaos Mesh (networkchaos {', '.join(names)})")
        left = [key for key in begun if key not in self._seen]
        staying = [name for name in ended if self.leftovers.conditions_of(chaos.NETWORK, name) is not None]
        if (left or staying) and tries_left > 0:
            self.again(partial(self._await_links, left, staying, then, tries_left - 1))
            return
        for key in left:
            names = self._links.get(key, [])
            self._seen[key] = Seen(
                False, f"Chaos Mesh did not put networkchaos {', '.join(names)} in force on all pods"
            )
        for name in staying:
            self.notice(f"networkchaos {name} is deleted, but Chaos Mesh has not taken it back yet")
        self.port.make(then)

    # --- Chaos Mesh ---------------------------------------------------------------------------------------------------

    def chaos_problem(self) -> str:
        """Why Chaos Mesh cannot be used; empty if it can."""
        api = self.leftovers.api
        if api is None:
            return f"this is not a pod of Kubernetes: {why_not_in_a_pod(os.environ)}"
        try:
            return "" if api.has_chaos_mesh() else "the cluster does not have it"
        except ClusterError as error:
            return str(error)

    def new_name(self) -> str:
        self._count += 1
        return f"{self.leftovers.deployment.instance}-{self._token}-{self._count}"

    def _is_injected(self, kind: str, name: str) -> bool:
        return (self.leftovers.conditions_of(kind, name) or {}).get(ALL_INJECTED, False)
